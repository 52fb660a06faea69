"""The flags of `serve`, in groups, named as vLLM's where they mean the same."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import click

from firsttoken.cli.config_file import load_defaults
from firsttoken.cli.grouped_options import apply_options, grouped_option
from firsttoken.cli.option_checks import api_keys, key_file, metric_prefix, origins
from firsttoken.cli.option_types import ByteSize, FloatRange, IntRange, JsonObject, RowCounts, TokenCount, in_units
from firsttoken.config import EngineConfig, ServerConfig


def _defaults() -> dict[str, Any]:
    """The configs' own defaults: a flag has no second one."""
    defaults: dict[str, Any] = {}
    for field in (*dataclasses.fields(EngineConfig), *dataclasses.fields(ServerConfig)):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
    return defaults


_DEFAULTS = _defaults()


def _option(group: str, *names: str, help: str, **kwargs: Any) -> Callable[[Any], Any]:
    """An option whose parameter is the last name, or the first flag's; its default is the config's."""
    parameter = names[-1] if not names[-1].startswith("-") else names[0].split("/")[0].lstrip("-").replace("-", "_")
    flags = [name for name in names if name.startswith("-")]
    default = _DEFAULTS.get(parameter)
    if default is not None and "multiple" not in kwargs:
        kwargs.setdefault("default", in_units(default) if isinstance(kwargs.get("type"), ByteSize) else default)
        kwargs.setdefault("show_default", True)
    return grouped_option(group, *flags, parameter, help=help, **kwargs)


_MODEL, _MEMORY, _RUN = "Model", "Memory and batching", "How it runs"
_HTTP, _LIMITS, _PAGE, _LIFE = "HTTP", "Limits and requests", "Chat page", "Starting and stopping"
_AT_LEAST_1 = IntRange(1)
_MOST_ROWS = 4096  # of a CUDA graph
_SECONDS = FloatRange(0, min_open=True)

_OPTIONS = [
    _option(
        _MODEL,
        "--hub",
        type=click.Choice(["huggingface", "modelscope"]),
        default="huggingface",
        show_default=True,
        help="Where a repository is fetched from.",
    ),
    _option(_MODEL, "--revision", help="Branch, tag or commit of the repository."),
    _option(
        _MODEL,
        "--download-dir",
        type=click.Path(file_okay=False),
        help="Where downloads are kept, instead of the hub's own cache.",
    ),
    _option(
        _MODEL,
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
        help="Of activations; float32 is the exact mode on a CPU.",
    ),
    _option(
        _MODEL,
        "--quantization",
        type=click.Choice(["auto", "none", "fp8", "int8", "int4"]),
        help="Rounds float weights at load (fp8: on a GPU); auto keeps a quantised model's own form, none widens it. "
        "On a CPU with --dtype float32: to a GPU's form, slow and exact, to judge it.",
    ),
    _option(
        _MODEL,
        "--load-format",
        type=click.Choice(["auto", "dummy"]),
        help="dummy fills random weights, for benchmarks, and fetches none.",
    ),
    _option(_MODEL, "--rope-scaling", type=JsonObject(), help="JSON that replaces the model's own; {} turns it off."),
    _option(
        _MODEL,
        "--generation-config",
        type=click.Choice(["auto", "none"]),
        help="none ignores the model's own sampling defaults.",
    ),
    _option(
        _MODEL,
        "--chat-template",
        type=click.Path(exists=True, dir_okay=False, readable=True),
        help="A Jinja file instead of the model's own template.",
    ),
    _option(
        _MODEL,
        "--tool-call-parser",
        type=click.Choice(["auto", "hermes", "llama3_json"]),
        help="The form in which the model writes calls of tools; auto tells it from the chat template.",
    ),
    _option(
        _MODEL,
        "--reasoning-parser",
        type=click.Choice(["auto", "none", "qwen3", "deepseek_r1"]),
        help="How thoughts are told from the answer; auto looks for <think> in the chat template.",
    ),
    _option(
        _MODEL,
        "--served-model-name",
        "served_model_names",
        multiple=True,
        help="The model's name in the API; give it several times for several names.",
    ),
    _option(
        _MEMORY,
        "--kv-cache-dtype",
        type=click.Choice(["auto", "none", "fp8", "fp8_e4m3"]),
        help="Form of the KV cache: fp8 (E4M3) holds twice the tokens of none, the activations' form; auto is fp8 on a "
        "GPU if the checkpoint declares it, else none.",
    ),
    _option(
        _MEMORY,
        "--max-model-len",
        type=TokenCount(),
        help="Longest prompt and answer together: 32768, 32K, or auto for the longest that fits.  [default: auto]",
    ),
    _option(
        _MEMORY,
        "--gpu-memory-utilization",
        type=FloatRange(0, 1, min_open=True),
        help="Share of a GPU's memory for weights, activations and KV cache.",
    ),
    _option(
        _MEMORY,
        "--kv-cache-memory",
        "--kv-cache-memory-bytes",
        "kv_cache_memory",
        type=ByteSize(),
        help="Size of the KV cache, such as 2GiB; wins over --gpu-memory-utilization.",
    ),
    _option(_MEMORY, "--block-size", type=_AT_LEAST_1, help="Tokens a KV block."),
    _option(_MEMORY, "--max-num-batched-tokens", type=_AT_LEAST_1, help="Most tokens a step.  [default: by device]"),
    _option(_MEMORY, "--max-num-seqs", type=_AT_LEAST_1, help="Most sequences running at once.  [default: by device]"),
    _option(
        _MEMORY,
        "--max-step-ms",
        type=FloatRange(0, min_open=True),
        help="Prefill chunks beside decoding rows are cut so that a step stays under this.  "
        "[default: 55 on a GPU, 200 on a CPU]",
    ),
    _option(
        _MEMORY,
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Reuse the KV blocks of equal prompt beginnings.",
    ),
    _option(_RUN, "--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where the model runs."),
    _option(_RUN, "--enforce-eager", is_flag=True, help="No CUDA graphs: slower, for debugging."),
    _option(
        _RUN,
        "--cudagraph-capture-sizes",
        type=RowCounts(_MOST_ROWS),
        help="Rows of decode steps that get a CUDA graph, such as 1,2,4,8; other steps are padded up to the next.  "
        "[default: 1,2,4, … 256, up to --max-num-seqs]",
    ),
    _option(
        _RUN,
        "--launch-table",
        metavar="auto|none|FILE",
        help="How the GPU kernels are launched: as measured for the card, by default shapes, or by a file that "
        "`kernels measure` wrote.",
    ),
    _option(_RUN, "--cpu-threads", type=_AT_LEAST_1, help="Threads for the model on a CPU.  [default: by machine]"),
    _option(
        _RUN,
        "--profile-steps",
        type=_AT_LEAST_1,
        help="Adds POST /start_profile: records this many steps, after 25 others without a pause, and writes a trace "
        "and a page that sums it up; answers may stall for a second or more.  "
        "[default: off; 100 with --profile-dir]",
    ),
    _option(
        _RUN,
        "--profile-dir",
        type=click.Path(file_okay=False, writable=True, resolve_path=True),
        help="Where recordings go.  [default: profiles, here]",
    ),
    _option(_RUN, "--seed", type=int, help="For requests without a seed, and for dummy weights."),
    _option(_HTTP, "--host", help="Address to listen on; 0.0.0.0 is every interface."),
    _option(_HTTP, "--port", type=IntRange(0, 65535), help="0 lets the system choose."),
    _option(
        _HTTP,
        "--api-workers",
        "--api-server-count",
        "api_workers",
        type=IntRange(1, 64),
        help="Processes that speak HTTP.",
    ),
    _option(
        _HTTP,
        "--api-key",
        "api_keys",
        multiple=True,
        envvar="FIRSTTOKEN_API_KEY",
        show_envvar=True,
        callback=api_keys,
        help="Clients must send one of these keys.",
    ),
    _option(
        _HTTP,
        "--api-key-file",
        type=click.Path(exists=True, dir_okay=False, readable=True, resolve_path=True),
        callback=key_file,
        help="A file with one such key a line, read again when it changes.",
    ),
    _option(
        _HTTP,
        "--allowed-hosts",
        multiple=True,
        help="A host name that clients may call the server by; *.NAME for all under it, * for any.  "
        "[default: local names on a loopback address without keys, else any]",
    ),
    _option(
        _HTTP,
        "--allowed-origins",
        multiple=True,
        callback=origins,
        help="An origin whose web pages may use the API (CORS), such as https://chat.example; * for all.  "
        "[default: none]",
    ),
    _option(_HTTP, "--metrics-prefix", callback=metric_prefix, help="vllm suits existing dashboards."),
    _option(
        _HTTP, "--strict-fields", is_flag=True, help="Refuse unknown request fields instead of naming them in a header."
    ),
    _option(_LIMITS, "--max-queue", type=IntRange(0), help="Most answers waiting; more get 429."),
    _option(
        _LIMITS,
        "--max-body-size",
        "max_body_bytes",
        type=ByteSize(),
        help="Largest request body, such as 8MiB.",
    ),
    _option(
        _LIMITS,
        "--max-body-memory",
        type=ByteSize(),
        help="Most bytes of all requests' bodies at once; more get 503.",
    ),
    _option(
        _LIMITS,
        "--max-header-size",
        "max_header_bytes",
        type=ByteSize(),
        help="Largest headers of a request together.",
    ),
    _option(_LIMITS, "--max-headers", type=_AT_LEAST_1, help="Most headers of a request."),
    _option(_LIMITS, "--max-json-depth", type=IntRange(8, 200), help="Most levels of lists and objects in a body."),
    _option(
        _LIMITS,
        "--max-string-length",
        type=_AT_LEAST_1,
        help="Most characters of one text in a body.  [default: what --max-body-size allows]",
    ),
    _option(_LIMITS, "--max-n", type=_AT_LEAST_1, help="Most answers a request may ask for."),
    _option(_LIMITS, "--max-logprobs", type=IntRange(0), help="Most logprobs a token may carry."),
    _option(_LIMITS, "--max-stop", type=IntRange(0), help="Most stop strings of a request."),
    _option(_LIMITS, "--max-stop-length", type=IntRange(0), help="Most characters of its stop strings together."),
    _option(
        _LIMITS,
        "--max-grammar-size",
        type=_AT_LEAST_1,
        help="Most characters of a JSON schema, a regular expression or another grammar.",
    ),
    _option(_LIMITS, "--max-grammar-depth", type=_AT_LEAST_1, help="Most levels of a JSON schema's objects and lists."),
    _option(
        _LIMITS,
        "--max-grammar-seconds",
        type=FloatRange(0, min_open=True),
        help="A grammar that takes longer to compile is refused.",
    ),
    _option(
        _LIMITS,
        "--scheduling-policy",
        type=click.Choice(["fcfs", "priority"]),
        help="fcfs runs requests as they arrive and refuses their priority; priority runs low ones first.",
    ),
    _option(
        _LIMITS,
        "--truncate",
        type=click.Choice(["none", "left", "right", "middle"]),
        help="Cut prompts that are too long here instead of refusing them; middle keeps system turn and last question.",
    ),
    _option(_LIMITS, "--max-connections", type=_AT_LEAST_1, help="Most connections at once; more get 503."),
    _option(
        _LIMITS,
        "--header-timeout",
        type=_SECONDS,
        help="Seconds for a request's head to arrive.",
    ),
    _option(_LIMITS, "--request-timeout", type=_SECONDS, help="Seconds for a whole request to arrive."),
    _option(
        _LIMITS,
        "--keep-alive-timeout",
        type=_SECONDS,
        help="Seconds that a connection may idle between requests; longer than a proxy's, which else meets our close.",
    ),
    _option(
        _LIMITS,
        "--send-timeout",
        type=_SECONDS,
        help="Seconds for a client to take 48 KiB of what waits for it; then it is cut off.",
    ),
    _option(_PAGE, "--ui", is_flag=True, help="Serve the chat page too; the first time sets it up."),
    _option(
        _PAGE,
        "--ui-host",
        help="Where the page listens; elsewhere than on this machine it wants a password in FIRSTTOKEN_UI_PASSWORD.  "
        "[default: 127.0.0.1]",
    ),
    _option(_PAGE, "--ui-port", type=IntRange(1, 65535), help="The page's port.  [default: 8080, or the next]"),
    _option(
        _LIFE,
        "--engine-timeout",
        type=_SECONDS,
        help="Seconds that a step may take; an engine silent for longer turns /health to 503.  "
        "[default: 60 on a GPU, 600 on a CPU]",
    ),
    _option(
        _LIFE,
        "--drain-seconds",
        type=FloatRange(0),
        help="Time for running answers after SIGTERM or Ctrl-C; a second one stops at once.",
    ),
    _option(
        _LIFE,
        "--engine-dead",
        type=click.Choice(["exit", "restart"]),
        help="What to do when the engine process dies.",
    ),
    _option(
        _LIFE,
        "--config",
        type=click.Path(exists=True, dir_okay=False, readable=True),
        is_eager=True,
        expose_value=False,
        callback=load_defaults,
        help="TOML or JSON file with these names as keys; flags given here win over it.",
    ),
]


def serve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a command function with every flag of `serve`."""
    return apply_options(_OPTIONS, function)


def engine_config(values: dict[str, Any]) -> EngineConfig:
    """The engine's part of the parsed flags; its model is not known yet."""
    return EngineConfig(model="", path="", **_part(EngineConfig, _profiling(values)))


def server_config(values: dict[str, Any]) -> ServerConfig:
    """The API workers' part of the parsed flags; the tokeniser's path is not known yet."""
    return ServerConfig(tokenizer_path="", **_part(ServerConfig, _profiling(values)))


def _profiling(values: dict[str, Any]) -> dict[str, Any]:
    """Either flag turns recordings on."""
    steps, folder = values["profile_steps"], values["profile_dir"]
    if steps is None and folder is None:
        return values
    return values | {"profile_steps": steps or 100, "profile_dir": folder or os.path.abspath("profiles")}


def _part(kind: type[EngineConfig] | type[ServerConfig], values: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}
