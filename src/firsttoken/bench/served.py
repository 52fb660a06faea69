"""What is behind a URL: which server, which model, how long its context, and what it takes as a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

import httpx

from firsttoken.bench.http_client import Address
from firsttoken.bench.records import ServerIdentity
from firsttoken.errors import ConfigError, Unavailable

_KINDS = {
    "firsttoken": "firsttoken",
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "llama.cpp": "llama.cpp",
}
_DETAILS = (
    "root",
    "max_num_seqs",
    "weights",
    "weight_bytes",
    "kv_bytes_per_token",
    "device",
    "dtype",
)  # of its entry in /v1/models


class Served:
    """Plain questions to an OpenAI-compatible server, outside of any measurement. A context manager."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 600.0,
        verify_tls: bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._root = address.root
        self._client = httpx.Client(
            headers=dict(headers or {}),
            timeout=httpx.Timeout(timeout, connect=5.0),
            verify=verify_tls,
            transport=transport,
            trust_env=False,
        )
        self.model = ""

    def is_ready(self) -> bool:
        """Whether it lists its models, and its health is good where it tells it."""
        try:
            health = self._client.get(f"{self._root}/health", timeout=2.0).status_code
            if health >= 500:
                return False
            # A key may be wrong: that is said later, better than by waiting for ever.
            return self._client.get(f"{self._root}/v1/models", timeout=2.0).status_code in (200, 401, 403)
        except httpx.HTTPError:
            return False

    def answers(self) -> bool:
        """Whether anything at all listens and speaks HTTP."""
        try:
            self._client.get(f"{self._root}/health", timeout=2.0)
        except httpx.HTTPError:
            return False
        return True

    def identify(self, model: str | None) -> ServerIdentity:
        """Who it is; `model` None takes its first. Raises ConfigError and Unavailable in one sentence."""
        try:
            answer = self._client.get(f"{self._root}/v1/models", timeout=10.0)
        except httpx.HTTPError as error:
            raise Unavailable(
                f"no server answers at {self._root} ({error}): start one, or let --launch do it"
            ) from None
        if answer.status_code in (401, 403):
            raise ConfigError(f"the server at {self._root} got no API key that it accepts: give one with --api-key")
        if answer.status_code >= 500:
            raise Unavailable(
                f"the server at {self._root} is not ready (HTTP {answer.status_code}): try again when it is"
            )
        listed = _objects(_json(answer).get("data")) if answer.status_code == 200 else []
        names = [str(entry.get("id", "")) for entry in listed]
        if model is None and not names:
            raise ConfigError(f"the server at {self._root} lists no models: name one with --model")
        if model is not None and names and model not in names:
            raise ConfigError(f"the server at {self._root} serves {', '.join(names)}, not {model}")
        self.model = model if model is not None else names[0]
        entry = next((entry for entry in listed if entry.get("id") == self.model), {})
        kind = _KINDS.get(str(entry.get("owned_by", "")).lower(), "")
        identity = ServerIdentity(kind=kind, model=self.model, max_model_len=_whole(entry.get("max_model_len")))
        self._complete(identity, entry)
        return identity

    def _complete(self, identity: ServerIdentity, entry: Mapping[str, Any]) -> None:
        version = self._get("/version").get("version")
        if identity.kind == "llama.cpp" or version is None:
            props = self._get("/props")
            version = version or props.get("build_info")
            settings = props.get("default_generation_settings")
            if isinstance(settings, dict):
                identity.max_model_len = identity.max_model_len or _whole(settings.get("n_ctx"))
        if identity.kind == "sglang":
            version = version or self._get("/get_server_info").get("version")
        identity.version = str(version or "")
        identity.details = {name: str(value) for name, value in entry.items() if name in _DETAILS}

    def metrics(self) -> str:
        """The text of its /metrics. Raises ConfigError and Unavailable in one sentence."""
        try:
            answer = self._client.get(f"{self._root}/metrics", timeout=10.0)
        except httpx.HTTPError as error:
            raise Unavailable(f"no server answers at {self._root} ({error})") from None
        if answer.status_code == 404:
            raise ConfigError(f"the server at {self._root} has no /metrics: start SGLang with --enable-metrics")
        if answer.status_code != 200:
            raise Unavailable(f"the server at {self._root} does not tell its metrics (HTTP {answer.status_code})")
        return answer.text

    def tokenize(self, text: str) -> list[int] | None:
        """Ids without special tokens: vLLM's form of /tokenize first, then llama.cpp's."""
        bodies: list[dict[str, Any]] = [
            {"model": self.model, "prompt": text, "add_special_tokens": False},
            {"content": text, "add_special": False},
        ]
        for body in bodies:
            tokens = self._post("/tokenize", body).get("tokens")
            if isinstance(tokens, list) and tokens and all(type(token) is int for token in tokens):
                return tokens
        return None

    def prompt_tokens(self, kind: Literal["ids", "text", "chat"], prompt: str | list[int]) -> int | None:
        """The usage's count for a prompt that is answered with one token."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": 1}
        if kind == "chat":
            answer = self._post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": prompt}]})
        else:
            answer = self._post("/v1/completions", {**body, "prompt": prompt})
        usage = answer.get("usage")
        return _whole(usage.get("prompt_tokens")) if isinstance(usage, dict) else None

    def refuses(self, fields: Mapping[str, Any]) -> bool:
        """Whether it answers a chat request of one token, and refuses the same one with these fields."""
        body = {"model": self.model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
        path = "/v1/chat/completions"
        return not self._post(path, {**body, **fields}) and bool(self._post(path, body))

    def _get(self, path: str) -> dict[str, Any]:
        with suppress(httpx.HTTPError):
            answer = self._client.get(self._root + path, timeout=5.0)
            if answer.status_code == 200:
                return _json(answer)
        return {}

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with suppress(httpx.HTTPError):
            answer = self._client.post(self._root + path, json=body)
            if answer.status_code == 200:
                return _json(answer)
        return {}

    def __enter__(self) -> Served:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if type(value) is int else None
