"""What can go wrong between a chat and its server, each in one sentence of either language."""

from __future__ import annotations

from typing import ClassVar

from firsttoken.chat.language import Language, Words
from firsttoken.errors import FirstTokenError


class ChatError(FirstTokenError):
    """Base. `values` fill the sentence's names; `text` gives it in a language, `str` in English."""

    words: ClassVar[Words]

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.text("en"))

    def text(self, language: Language) -> str:
        return self.words.text(language, **self.values)


class WaitingError(ChatError):
    """The same request may do better later. `retry_after` is the server's own advice in seconds, or None."""

    def __init__(self, *, retry_after: float | None = None, **values: object) -> None:
        self.retry_after = retry_after
        super().__init__(**values)


class ServerDown(WaitingError):
    """Nothing answers there."""

    words = Words(
        "No server answers at {url}; start one with `firsttoken serve`, or give its --url.",
        "{url} 没有服务在应答；请用 `firsttoken serve` 启动一个，或用 --url 指定地址。",
    )

    def __init__(self, url: str) -> None:
        super().__init__(url=url)


class ServerLoading(WaitingError):
    """The model is not ready yet. `phase` is the server's word, empty where it gave none; `fraction` is 0 to 1."""

    words = Words("The model is still loading{detail}.", "模型仍在加载{detail}。")

    def __init__(self, phase: str = "", fraction: float | None = None) -> None:
        self.phase = phase
        self.fraction = fraction
        super().__init__(retry_after=0.5)

    def text(self, language: Language) -> str:
        share = "" if self.fraction is None else f"{self.fraction:.0%}"
        detail = ", ".join(part for part in (self.phase, share) if part)
        opening, closing = ("（", "）") if language == "zh" else (" (", ")")
        return self.words.text(language, detail=f"{opening}{detail}{closing}" if detail else "")


class ServerBusy(WaitingError):
    """The queue is full (HTTP 429)."""

    words = Words(
        "The server's queue is full; it takes new questions again soon.", "服务器的队列已满，稍后会再接受提问。"
    )

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__(retry_after=retry_after)


class ServerUnavailable(WaitingError):
    """It runs, and takes no requests: shutting down, or without its engine (HTTP 502, 503, 504)."""

    words = Words("The server takes no questions now: {message}", "服务器目前不接受提问：{message}")

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(retry_after=retry_after, message=message)


class ContextTooLong(ChatError):
    """The system turn and the last question alone leave no room for an answer."""

    words = Words(
        "This question is too long for the model's context{detail}; shorten it or split it.",
        "这个问题超出了模型的上下文长度{detail}；请缩短或拆开提问。",
    )

    def __init__(self, tokens: int | None = None, context: int | None = None) -> None:
        self.tokens = tokens
        self.context = context
        super().__init__()

    def text(self, language: Language) -> str:
        if not (self.tokens and self.context):
            return self.words.text(language, detail="")
        both = f"{self.tokens:,} / {self.context:,}"
        detail = f"（{both} token）" if language == "zh" else f" ({both} tokens)"
        return self.words.text(language, detail=detail)


class AnswerCut(ChatError):
    """The stream ended before the answer was done; what came before is kept."""

    words = Words("The answer was cut off: {message}", "回答中断：{message}")
    closed = Words("the server closed the connection.", "服务器断开了连接。")

    def __init__(self, message: str = "") -> None:
        self._message = message  # the server's own sentence
        super().__init__()

    def text(self, language: Language) -> str:
        return self.words.text(language, message=self._message or self.closed.text(language))


class KeyRefused(ChatError):
    """HTTP 401 or 403."""

    words = Words(
        "The server got no API key that it accepts; set OPENAI_API_KEY or give --api-key.",
        "服务器没有收到有效的 API 密钥；请设置 OPENAI_API_KEY，或使用 --api-key。",
    )


class Refused(ChatError):
    """The server will not do this, and says why in its own words."""

    words = Words("{message}", "{message}")

    def __init__(self, message: str) -> None:
        super().__init__(message=message)


class NotAServer(ChatError):
    """Something answers, and it does not speak OpenAI's API."""

    words = Words("{url} does not answer like an OpenAI-compatible server.", "{url} 的应答不像是兼容 OpenAI 的服务。")

    def __init__(self, url: str) -> None:
        super().__init__(url=url)
