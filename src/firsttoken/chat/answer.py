"""One answer as it grows, and its figures in one line."""

from __future__ import annotations

from dataclasses import dataclass

from firsttoken.chat.language import Language


@dataclass(slots=True)
class Answer:
    """Times are seconds on this side of the wire; token counts are the server's own unless `counted` is False."""

    text: str = ""
    reasoning: str = ""  # what a thinking model said before it answered
    ttft: float | None = None  # request sent to first text (or thought) received
    e2e: float | None = None  # request sent to stream closed
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    counted: bool = True  # False where the answer was stopped, so that the server sent no usage

    @property
    def tokens_per_second(self) -> float | None:
        """Decode speed: tokens after the first over the time after the first. None below two tokens."""
        if self.ttft is None or self.e2e is None or not self.completion_tokens or self.completion_tokens < 2:
            return None
        return (self.completion_tokens - 1) / max(self.e2e - self.ttft, 1e-9)

    @property
    def total_tokens(self) -> int | None:
        """Of prompt and answer, where the server told both."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens

    @property
    def cached_share(self) -> float | None:
        """The part of the prompt that came from the prefix cache, 0 to 1."""
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return self.cached_tokens / self.prompt_tokens


def figures(answer: Answer, language: Language = "en") -> str:
    """TTFT, decode speed, tokens, cached share, E2E; what is not known is left out."""
    chinese = language == "zh"
    about = "" if answer.counted else "≈"
    parts: list[str] = []
    if answer.ttft is not None:
        parts.append(f"{'首 token' if chinese else 'TTFT'} {answer.ttft * 1000:.0f} ms")
    if answer.tokens_per_second is not None:
        parts.append(f"{about}{answer.tokens_per_second:.1f} tok/s")
    if answer.completion_tokens is not None:
        parts.append(f"{about}{answer.completion_tokens} {'个 token' if chinese else 'tokens'}")
    if answer.prompt_tokens is not None:
        share = answer.cached_share
        cached = "" if share is None else (f"，缓存命中 {share:.0%}" if chinese else f", {share:.0%} cached")
        parts.append(f"{'提示词' if chinese else 'prompt'} {answer.prompt_tokens}{cached}")
    if answer.e2e is not None:
        parts.append(f"{'总耗时' if chinese else 'E2E'} {answer.e2e:.2f} s")
    if answer.finish_reason == "length":
        parts.append("到达 token 上限而截断" if chinese else "cut at the token limit")
    return " · ".join(parts)
