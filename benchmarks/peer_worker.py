"""One peer in a process of its own, in the peers' environment: python peer_worker.py NAME MODEL.gguf FOLDER THREADS

Loads the model, prints a line of JSON when it can generate, then answers each line of JSON on stdin,
{"prompts": [[ids], ...], "max_tokens": n}, with {"ttft": s, "seconds": s, "tokens": n}. `check NAME` only imports it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

Prompts = list[list[int]]
OnToken = Callable[[], None]  # called when a step's tokens are there
Generate = Callable[[Prompts, int, OnToken], None]


def transformers_float32(model: Path, folder: Path, threads: int) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    torch.set_num_threads(threads)
    decoder = AutoModelForCausalLM.from_pretrained(folder / "float32", dtype=torch.float32)
    decoder.eval()

    class Clock(BaseStreamer):
        """Told of the prompt first, then of every step."""

        def __init__(self, on_token: OnToken) -> None:
            self.on_token, self.prompt_seen = on_token, False

        def put(self, value: object) -> None:
            if self.prompt_seen:
                self.on_token()
            self.prompt_seen = True

        def end(self) -> None:
            pass

    def generate(prompts: Prompts, max_tokens: int, on_token: OnToken) -> None:
        ids = torch.tensor(prompts)
        # A streamer refuses batches, and only the single prompt's TTFT is wanted.
        streamer = Clock(on_token) if len(prompts) == 1 else None
        with torch.inference_mode():
            decoder.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=max_tokens,
                max_new_tokens=max_tokens,
                pad_token_id=0,
                streamer=streamer,
            )

    return generate


def ctranslate2_int8(model: Path, folder: Path, threads: int) -> Generate:
    import ctranslate2

    generator = ctranslate2.Generator(
        str(folder / "ctranslate2"), device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
    )
    names = json.loads((folder / "ctranslate2" / "vocabulary.json").read_text())

    def generate(prompts: Prompts, max_tokens: int, on_token: OnToken) -> None:
        def step(result: object) -> bool:
            on_token()
            return False

        generator.generate_batch(
            [[names[i] for i in prompt] for prompt in prompts],
            min_length=max_tokens,
            max_length=max_tokens,
            sampling_topk=1,
            include_prompt_in_result=False,
            callback=step,
        )

    return generate


def llama_cpp_as_is(model: Path, folder: Path, threads: int) -> Generate:
    import llama_cpp as c

    c.llama_backend_init()
    weights = c.llama_model_load_from_file(str(model).encode(), c.llama_model_default_params())
    params = c.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 8 * 256, 2048, 512, 8
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True  # one cache for all, or a sequence would get an eighth of it
    context = c.llama_init_from_model(weights, params)
    batch = c.llama_batch_init(2048, 0, 8)

    def decode(rows: list[tuple[int, int, int, bool]]) -> None:
        """Runs (token, position, sequence, wants logits) rows."""
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants
            batch.seq_id[i][0] = sequence
        if c.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    sampler = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    c.llama_sampler_chain_add(sampler, c.llama_sampler_init_greedy())

    def generate(prompts: Prompts, max_tokens: int, on_token: OnToken) -> None:
        c.llama_memory_clear(c.llama_get_memory(context), True)
        rows = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        ends = [i for i, row in enumerate(rows) if row[3]]
        for step in range(max_tokens):
            decode(rows)
            chosen = [c.llama_sampler_sample(sampler, context, end) for end in ends]
            on_token()
            rows = [(token, len(prompts[sequence]) + step, sequence, True) for sequence, token in enumerate(chosen)]
            ends = list(range(len(rows)))

    return generate


# name in the table: (module it needs, loader)
PEERS: dict[str, tuple[str, Callable[[Path, Path, int], Generate]]] = {
    "transformers float32": ("transformers", transformers_float32),
    "llama.cpp Q4_1": ("llama_cpp", llama_cpp_as_is),
    "ctranslate2 int8": ("ctranslate2", ctranslate2_int8),
}


def prepare(model: Path, folder: Path) -> None:
    """Writes the weights in the forms that peers read, once: the same numbers, dequantised from the GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    decoder = AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name, dtype=torch.float32)
    config = decoder.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # it speaks of the file; what was loaded is float32
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(decoder.state_dict())  # strict: every weight comes from the file
    plain.save_pretrained(folder / "float32")
    AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name).save_pretrained(folder / "float32")
    if importlib.util.find_spec("ctranslate2"):
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(str(folder / "float32")).convert(str(folder / "ctranslate2"), quantization="int8")


def answer(generate: Generate, prompts: Prompts, max_tokens: int) -> dict[str, float]:
    times: list[float] = []
    start = time.perf_counter()
    generate(prompts, max_tokens, lambda: times.append(time.perf_counter() - start))
    seconds = time.perf_counter() - start
    return {"ttft": times[0] if times else seconds, "seconds": seconds, "tokens": max_tokens * len(prompts)}


def main() -> None:
    if sys.argv[1] == "check":
        print(importlib.import_module(PEERS[sys.argv[2]][0]).__version__)
        return
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    name, model, folder, threads = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    generate = PEERS[name][1](model, folder, threads)
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(generate, request["prompts"], request["max_tokens"])), flush=True)


if __name__ == "__main__":
    main()
