"""Probes, versions and the list of models."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from firsttoken.server.error_handlers import ModelNotFound
from firsttoken.server.sampling import default_sampling_params
from firsttoken.server.service import Service
from firsttoken.types import EngineInfo
from firsttoken.version import __version__

_RETRY_AFTER = {"Retry-After": "5"}  # seconds; of probes that say no


def _json(status: int, content: dict[str, Any]) -> Response:
    headers = _RETRY_AFTER if status == 503 else None
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def health(service: Service) -> Response:
    """200 while the engine runs and can answer what it has accepted; it may be draining. 503 also where it hangs."""
    backend = service.backend
    match backend.state:
        case "ready" | "draining":
            return _json(200, {"status": backend.state})
        case "loading":
            phase, fraction = backend.loading
            return _json(503, {"status": "loading", "phase": phase, "fraction": round(fraction, 3)})
        case state:
            return _json(503, {"status": state})


def ready(service: Service) -> Response:
    """200 while new requests are taken."""
    state = service.backend.state
    return _json(200 if state == "ready" else 503, {"status": state})


def start_profile(service: Service) -> Response:
    """200 when the engine has been told; what it records goes to the server's folder and log. Raises Unavailable."""
    service.backend.start_profile()
    return _json(200, {"status": "started", "steps": service.config.profile_steps})


def version() -> Response:
    return _json(200, {"version": __version__})


def _model_object(service: Service, name: str, info: EngineInfo) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "firsttoken",
        "root": service.names(info)[0],
        "parent": None,
        "max_model_len": info.max_model_len,
        "default_sampling_params": default_sampling_params(info),  # what a request gets for what it leaves out
        "max_num_seqs": info.max_num_seqs,
        "weights": info.weights,
        "device": info.device,
        "weight_bytes": info.weight_bytes,  # read once a decode step: with the memory's bandwidth, the speed's ceiling
        "kv_bytes_per_token": info.kv_bytes_per_token,  # read too, for each token of each running sequence's context
    }


def models(service: Service) -> Response:
    info = service.info()
    return _json(200, {"object": "list", "data": [_model_object(service, name, info) for name in service.names(info)]})


def model(service: Service, name: str) -> Response:
    info = service.info()
    names = service.names(info)
    if name not in names:
        raise ModelNotFound(name, names)
    return _json(200, _model_object(service, name, info))
