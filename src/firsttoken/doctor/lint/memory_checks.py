"""Settings that arithmetic alone rules out: lengths, head counts, and bytes that no such card has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Edit, Finding
from firsttoken.doctor.lint.launch import Launch, Option
from firsttoken.doctor.lint.rules import quantity
from firsttoken.model.config import ModelConfig
from firsttoken.model.cost import kv_bytes_per_token, num_parameters

GIB = 1 << 30
_BESIDE = GIB // 2  # context and library workspaces; activations are left out, so that what is refused is impossible
_FORM = re.compile(r"(?i)[-_](fp8|awq|gptq|int4|int8|w4a16|w8a8|bnb|4bit|8bit|gptq-int[48]|dynamic|marlin).*$")
_EIGHT = re.compile(r"(?i)fp8|int8|w8a8|8bit")
_FOUR = re.compile(r"(?i)awq|gptq|int4|w4a16|4bit|bnb|bitsandbytes|mxfp4|nvfp4")
_SHARE = {"vllm": 0.92, "sglang": 0.88, "firsttoken": 0.9}
_LENGTH = ("--max-model-len", "--context-length")

FindConfig = Callable[[str], ModelConfig | None]

_SOURCE = "docs/guides/lint.md#memory"


def findings(case: Case, find: FindConfig, memory: int | None, card: str) -> Iterator[Finding]:
    """What cannot be: `memory` is one card's bytes where they are known."""
    launch = case.launch
    assert launch is not None
    model = case.model
    config = find(_FORM.sub("", model)) if model else None
    if config is None or model is None:
        return
    length = next((option for name in _LENGTH if (option := launch.given(name))), None)
    wanted = _tokens(length)
    stretched = any(launch.given(name) for name in ("--hf-overrides", "--rope-scaling", "--json-model-override-args"))
    forced = case.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").lower() in ("1", "true")
    if length and wanted and wanted > config.context_length and not stretched and not forced:
        what = f"{length.written} {length.value} is more than the {config.context_length} positions of {model}."
        why = "The server stops; longer contexts need RoPE scaling, and a model that stands it."
        yield case.finding(
            "longer-than-the-model", "error", what, why, (_set(length, config.context_length),), source=_SOURCE
        )
        wanted = config.context_length
    cards = _cards(launch)
    heads = launch.given("--tensor-parallel-size") or launch.given("--tp-size")
    if heads and config.num_heads % cards:
        fewer = max(count for count in range(1, cards) if config.num_heads % count == 0)
        what = f"{cards} cards cannot share the {config.num_heads} heads of {model} evenly."
        why = "Tensor parallelism gives each card the same number of attention heads; the server stops otherwise."
        yield case.finding("heads-do-not-divide", "error", what, why, (_set(heads, fewer),), source=_SOURCE)
        cards = fewer
    yield from _pool(case, launch, config, length, wanted, cards)
    if memory is not None and not (launch.given("--cpu-offload-gb") or launch.given("--device")):
        yield from _fits(case, launch, config, length, wanted, memory, card, cards)


def _pool(
    case: Case, launch: Launch, config: ModelConfig, length: Option | None, wanted: int | None, cards: int
) -> Iterator[Finding]:
    """A KV pool whose size is given, against one sequence of full length."""
    option = launch.given("--kv-cache-memory-bytes") or launch.given("--kv-cache-memory")
    size = _bytes(option)
    if option is None or size is None or (case.program == "firsttoken" and wanted is None):
        return
    tokens = wanted or config.context_length
    each = _kv(launch, config) / cards
    if tokens * each > size:
        most = int(size / each) // 256 * 256
        what = (
            f"{option.written} {option.value} holds {int(size / each):,} tokens and one sequence may have {tokens:,}."
        )
        why = (
            f"A token of {case.model} takes {each / 1024:.0f} KiB of keys and values; the server stops unless one fits."
        )
        edit = _set(length, most) if length else Edit(len(launch.words), len(launch.words), (_name(case), str(most)))
        yield case.finding("pool-below-context", "error", what, why, (edit,), source=_SOURCE)


def _fits(
    case: Case,
    launch: Launch,
    config: ModelConfig,
    length: Option | None,
    wanted: int | None,
    memory: int,
    card: str,
    cards: int,
) -> Iterator[Finding]:
    share = launch.text("--gpu-memory-utilization") or launch.text("--mem-fraction-static")
    part = min(quantity(share or "") or _SHARE[case.program], 1.0)
    budget = memory * part - _BESIDE
    weights = _weights(case, launch, config) / cards
    name = card or f"{memory / GIB:.0f} GiB"
    if weights > budget:
        what = f"{case.model} does not fit {name}: its weights take {weights / GIB:.1f} GiB a card."
        why = f"Of {memory / GIB:.1f} GiB {part:.0%} may be used: take a smaller model or quantised weights."
        yield case.finding("weights-do-not-fit", "error", what, why, source=_SOURCE)
        return
    if wanted is None and case.program in ("firsttoken", "sglang"):
        return  # both take what fits
    if launch.given("--kv-cache-memory-bytes"):
        return
    tokens = wanted or config.context_length
    each = _kv(launch, config) / cards
    if weights + tokens * each > budget:
        most = int((budget - weights - GIB) / each) // 1024 * 1024
        told = f"{tokens:,} tokens" if wanted else f"its full {tokens:,} tokens, for no length is given,"
        held, beside = tokens * each / GIB, weights / GIB
        what = f"One sequence of {told} takes {held:.1f} GiB of KV beside {beside:.1f} GiB of weights."
        why = f"{name} has {memory / GIB:.1f} GiB, of which {part:.0%} may be used, so the server stops."
        edits: tuple[Edit, ...] = ()
        if most >= 1024:
            flag = (_name(case), str(most))
            edits = (_set(length, most) if length else Edit(len(launch.words), len(launch.words), flag),)
        yield case.finding("context-does-not-fit", "error", what, why, edits, source=_SOURCE)


def _weights(case: Case, launch: Launch, config: ModelConfig) -> float:
    """Bytes of all weights; of quantised ones the embedding stays in 16 bits."""
    form = f"{case.model} {launch.text('--quantization') or ''}"
    every = num_parameters(config)
    embedding = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    each = 0.53 if _FOUR.search(form) else 1.0 if _EIGHT.search(form) else 2.0
    return (every - embedding) * each + embedding * 2.0


def _kv(launch: Launch, config: ModelConfig) -> int:
    return kv_bytes_per_token(config, 1 if "fp8" in (launch.text("--kv-cache-dtype") or "") else 2)


def _cards(launch: Launch) -> int:
    size = launch.text("--tensor-parallel-size") or launch.text("--tp-size")
    return int(size) if size and size.isdigit() and int(size) > 0 else 1


def _tokens(option: Option | None) -> int | None:
    size = quantity(option.value) if option and option.value else None
    return int(size) if size and size > 0 else None


def _bytes(option: Option | None) -> float | None:
    """`8G` is vLLM's 8 GiB, `8GiB` firsttoken's."""
    return quantity(re.sub(r"(?i)i?b$", "", option.value).strip()) if option and option.value else None


def _name(case: Case) -> str:
    return "--context-length" if case.program == "sglang" else "--max-model-len"


def _set(option: Option, value: int) -> Edit:
    return Edit(option.start, option.end, (option.written, str(value)))
