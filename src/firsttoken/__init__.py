"""firsttoken: Qwen3-4B-Instruct and its dense relatives on one GPU, with the shortest wait for the first token."""

from typing import TYPE_CHECKING, Any

from firsttoken.version import __version__

if TYPE_CHECKING:
    from firsttoken.llm import LLM
    from firsttoken.types import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy, so that `firsttoken --help` and the API workers never pay for torch.
    if name == "LLM":
        from firsttoken.llm import LLM

        return LLM
    if name == "SamplingParams":
        from firsttoken.types import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'firsttoken' has no attribute {name!r}")
