"""Typed errors. `assert` is for our bugs; these are for the caller's. The HTTP mapping lives in the server alone."""

from __future__ import annotations


class FirstTokenError(Exception):
    """Base of every error that a user can act on: its text is one plain sentence that says what to do."""


class ConfigError(FirstTokenError):
    """A flag, a config file or an environment that cannot work."""


class ModelError(FirstTokenError):
    """The model cannot be found, read or run."""


class DownloadError(ModelError):
    """A download failed or its content is not what was promised."""


class OutOfMemory(FirstTokenError):
    """The model, its KV cache or a batch does not fit; the text carries the numbers."""


class RequestError(FirstTokenError):
    """One request cannot be served. `param` names the field at fault, `code` is OpenAI's error code."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class InvalidRequest(RequestError):
    """The request's content is wrong (HTTP 400)."""


class QueueFull(RequestError):
    """The queue holds as many requests as it may (HTTP 429)."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, code="queue_full")
        self.retry_after = retry_after  # seconds


class Unavailable(RequestError):
    """Loading, draining, or the engine is gone (HTTP 503)."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message, code="service_unavailable")
        self.retry_after = retry_after  # seconds
