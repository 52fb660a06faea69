"""What every route works with: the engine, the tokenizer, the configuration, and the names the model goes by."""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass, field
from pathlib import PurePath

from firsttoken.config import ServerConfig
from firsttoken.errors import Unavailable
from firsttoken.server.backend import Backend
from firsttoken.server.dialect import Dialect
from firsttoken.server.error_handlers import ModelNotFound
from firsttoken.server.prompts import Prompts
from firsttoken.server.sse import Identity
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo
from firsttoken.version import __version__


@dataclass(frozen=True, slots=True)
class Service:
    config: ServerConfig
    backend: Backend
    tokenizer: Tokenizer
    prompts: Prompts = field(init=False)
    dialect: Dialect = field(init=False)
    started: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        object.__setattr__(self, "dialect", Dialect.of(self.tokenizer, self.config))
        object.__setattr__(self, "prompts", Prompts(self.tokenizer))

    def info(self) -> EngineInfo:
        """Raises Unavailable unless new requests are taken, before anything is spent on one."""
        info = self.backend.info
        match self.backend.state:
            case "ready" if info is not None:
                return info
            case "draining":
                raise Unavailable("The server is shutting down; send the request to another one.", retry_after=5)
            case "hung":
                raise Unavailable("The engine does not answer; send the request again later.", retry_after=5)
            case "dead":
                raise Unavailable("The engine is not running; the server's log says why.", retry_after=5)
            case _:
                phase, fraction = self.backend.loading
                raise Unavailable(f"The model is still loading ({phase}, {fraction:.0%}).", retry_after=1)

    def names(self, info: EngineInfo) -> tuple[str, ...]:
        """A model from this machine's disk goes by its last part alone: answers tell of no paths."""
        return self.config.served_model_names or (_public_name(info.model),)

    def check_model(self, name: str | None, info: EngineInfo) -> str:
        """The name that answers carry. Raises ModelNotFound."""
        names = self.names(info)
        if name is None or (not self.config.served_model_names and name == info.model):
            return names[0]
        if name not in names:
            raise ModelNotFound(name, names)
        return name

    def identity(self, prefix: str, model: str, info: EngineInfo) -> Identity:
        """The fingerprint changes with whatever can change a seeded answer: code, weights, precision, device."""
        basis = "|".join((__version__, info.model, info.dtype, info.weights, info.attention, info.device_name))
        fingerprint = "fp_" + hashlib.sha256(basis.encode()).hexdigest()[:10]
        return Identity(f"{prefix}{uuid.uuid4().hex}", int(time.time()), model, fingerprint)


def _public_name(model: str) -> str:
    """`org/name` stays; a path that can be told from it (absolute, relative with dots, or of a file) is cut."""
    if model.startswith(("/", "./", "../", "~")) or model.endswith(".gguf"):
        return PurePath(model).name
    return model
