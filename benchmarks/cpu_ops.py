"""What a step of the demo model costs on this CPU in each weight form, and how far each form is from float32.

    python benchmarks/cpu_ops.py speed --arch native,avx2 --threads 1,2
    python benchmarks/cpu_ops.py quality

`speed` times the whole forward pass and the head: one and eight sequences decoding at a context of 100, prompts of 32
and 512 tokens. Wall time is the least of many runs, beside the processor time of all threads (which other programs
disturb less) and the speed at which memory is read right after. `quality` reads text with known next tokens: mean KL
divergence from float32's distribution, in nats a token, and how often both like the same token best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from firsttoken.engine.model_runner import make_kv_cache
from firsttoken.kernels.cpu_build import build
from firsttoken.kernels.cpu_forms import CpuLinears
from firsttoken.kernels.cpu_ops import CpuKernels, cpu_kernels
from firsttoken.kernels.plan import AttentionPlan, KVLayer
from firsttoken.machine.ceilings import measure_memory
from firsttoken.model.config import ModelConfig, load_config
from firsttoken.model.decoder import Decoder
from firsttoken.model.hub import resolve
from firsttoken.model.loading import build_decoder, open_weights
from firsttoken.model.rope import RopeTable
from firsttoken.tokenizer import Tokenizer

BLOCK = 16
STEPS = {  # (new tokens, context) of each sequence, and how often to run
    "decode 1": ([(1, 100)], 60),
    "decode 8": ([(1, 100)] * 8, 30),
    "prefill 32": ([(32, 32)], 12),
    "prefill 512": ([(512, 512)], 3),
}
HERE = Path(__file__).resolve()
TEXTS = {"English": HERE.parent.parent / "README.md", "code": HERE}
TEXT_TOKENS = 512


@dataclass(frozen=True)
class Model:
    """The demo model in one form, with an empty KV cache."""

    config: ModelConfig
    decoder: Decoder
    kv: list[KVLayer]
    rope: RopeTable

    def logits(self, token_ids: Tensor, rows: list[tuple[int, int]], *, all_tokens: bool = False) -> Tensor:
        """Of each row's last token, or of all: float32 [rows or tokens, vocab]."""
        plan = attention_plan(rows, self.config)
        table, plan.rope_rows = self.rope.rows(plan.rope_rows, plan.rope_rows + 1)
        hidden = self.decoder.forward(token_ids, self.kv, plan, table)
        return self.decoder.logits(hidden if all_tokens else hidden[plan.query_start[1:].long() - 1])


def attention_plan(rows: list[tuple[int, int]], config: ModelConfig) -> AttentionPlan:
    """Every row has blocks of its own, one after the other; `rope_rows` are positions yet."""
    width = max(-(-context // BLOCK) for _, context in rows)
    tables = torch.arange(len(rows) * width, dtype=torch.int32).view(len(rows), width)
    positions = [torch.arange(context - new, context) for new, context in rows]
    slots = [i * width * BLOCK + position for i, position in enumerate(positions)]
    ends = torch.tensor([new for new, _ in rows]).cumsum(0).tolist()
    return AttentionPlan(
        num_heads=config.num_heads,
        scale=config.head_dim**-0.5,
        num_tokens=ends[-1],
        num_rows=len(rows),
        num_decode_rows=sum(new == 1 for new, _ in rows),
        rope_rows=torch.cat(positions),
        slots=torch.cat(slots),
        query_start=torch.tensor([0, *ends], dtype=torch.int32),
        context_lens=torch.tensor([context for _, context in rows], dtype=torch.int32),
        block_tables=tables,
        host_rows=[(end - new, end, context) for end, (new, context) in zip(ends, rows, strict=True)],
    )


def load(path: str, form: str, kernels: CpuKernels | None) -> Model:
    """`form` is float32, bfloat16, keep, int8 or int4."""
    config = load_config(path)
    dtype = torch.bfloat16 if form == "bfloat16" else torch.float32
    factory = None
    if form in ("keep", "int8", "int4"):
        factory = CpuLinears(kernels, "keep" if form == "keep" else "int8" if form == "int8" else "int4")
    decoder = build_decoder(config, open_weights(path, config), dtype=dtype, make_linear=factory)
    kv = make_kv_cache(config, 8 * TEXT_TOKENS // BLOCK, BLOCK, dtype, torch.device("cpu"))
    return Model(config, decoder, kv, RopeTable(config, 2 * TEXT_TOKENS, torch.device("cpu")))


def least(run: Callable[[], object], times: int) -> tuple[float, float]:
    """Milliseconds of the fastest run by the clock, and of processor time by the thriftiest."""
    wall, busy = [], []
    for _ in range(times):
        begin, begin_busy = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - begin)
        busy.append(time.process_time() - begin_busy)
    return min(wall) * 1000, min(busy) * 1000


def speed(path: str, forms: list[str], arches: list[str], threads: list[int]) -> Iterator[str]:
    yield "| form | build | threads | " + " | ".join(f"{name}, ms (CPU ms)" for name in STEPS) + " | memory, GB/s |"
    yield "|---" * (len(STEPS) + 4) + "|"
    for form in forms:
        low_bit = form in ("keep", "int8", "int4")
        for arch in arches if low_bit else ["torch"]:
            kernels = CpuKernels(build(arch)) if low_bit else None
            model = load(path, form, kernels)
            for count in threads:
                for each in (kernels, cpu_kernels()):  # attention has the default library's own pool
                    if each is not None:
                        each.set_threads(count)
                torch.set_num_threads(count)
                cells = []
                for rows, times in STEPS.values():
                    ids = torch.randint(0, 40000, (sum(new for new, _ in rows),))
                    wall, busy = least(partial(model.logits, ids, rows), times)
                    cells.append(f"{wall:.1f} ({busy:.1f})")
                memory = measure_memory(count).bytes_per_second / 1e9
                yield f"| {form} | {arch} | {count} | " + " | ".join(cells) + f" | {memory:.1f} |"


def quality(path: str, forms: list[str]) -> Iterator[str]:
    yield "| form | " + " | ".join(f"{name}: KL, same best" for name in TEXTS) + " |"
    yield "|---" * (len(TEXTS) + 1) + "|"
    tokenizer = Tokenizer.load(path)
    texts = {name: tokenizer.encode(text.read_text())[:TEXT_TOKENS] for name, text in TEXTS.items()}
    exact: dict[str, Tensor] = {}
    for form in ["float32", *(form for form in forms if form != "float32")]:
        model = load(path, form, cpu_kernels())
        cells = []
        for name, ids in texts.items():
            logits = model.logits(torch.tensor(ids), [(len(ids), len(ids))], all_tokens=True)
            logprobs = F.log_softmax(logits, dim=-1)
            truth = exact.setdefault(name, logprobs)
            divergence = F.kl_div(logprobs, truth, log_target=True, reduction="none").sum(-1).mean().item()
            same = (logprobs.argmax(-1) == truth.argmax(-1)).float().mean().item()
            cells.append(f"{divergence:.5f}, {same:.1%}")
        yield f"| {form} | " + " | ".join(cells) + " |"


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "quality"))
    parser.add_argument("--model", default="demo", help="a GGUF file, or demo")
    parser.add_argument("--forms", default="keep,int8,int4,float32,bfloat16")
    parser.add_argument("--arch", default="native,avx2", help="builds of the kernels: native, avx2, plain")
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    path = str(resolve(options.model))
    forms = options.forms.split(",")
    threads = [int(count) for count in options.threads.split(",")]
    lines = quality(path, forms) if options.what == "quality" else speed(path, forms, options.arch.split(","), threads)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
