"""Configuration: frozen, resolved once, printed at start. Names follow vLLM's flags where they mean the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Device = Literal["auto", "cpu", "cuda"]
Truncation = Literal["none", "left", "right", "middle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything the engine needs to load one model and run it. `path` is local: downloads happened before."""

    model: str  # what the user asked for
    path: str  # a folder with config.json and safetensors, or one .gguf file
    device: Device = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    # auto: a quantised checkpoint's own form, and the fast low-bit form on a CPU unless dtype is float32; "none" runs
    # the dense dtype; a form is made of float weights at load
    quantization: Literal["auto", "none", "fp8", "int8", "int4"] = "auto"
    # auto: what the checkpoint declares where the GPU's kernels read it, else "none": the form of activations
    kv_cache_dtype: Literal["auto", "none", "fp8", "fp8_e4m3"] = "auto"
    load_format: Literal["auto", "dummy"] = "auto"
    block_size: int = 16
    max_model_len: int | None = None  # None is "auto": the largest that fits
    max_num_batched_tokens: int | None = None  # None: chosen by device
    max_num_seqs: int | None = None  # None: chosen by device
    max_step_ms: float | None = None  # prefill chunks beside decoding rows are cut to this; None: chosen by device
    max_queue: int = 1024  # sequences waiting, beyond those running
    max_grammar_seconds: float = 5.0  # a grammar that compiles longer is refused
    gpu_memory_utilization: float = 0.9
    kv_cache_memory: int | None = None  # bytes; wins over gpu_memory_utilization
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    cudagraph_capture_sizes: tuple[int, ...] | None = None  # rows of decode steps' graphs; None: the usual ones
    launch_table: str = "auto"  # of the GPU kernels: "auto" as measured for the card, "none", or a file
    rope_scaling: dict[str, Any] | None = None  # overrides the model's own; {} turns scaling off
    generation_config: Literal["auto", "none"] = "auto"  # "none" ignores the model's sampling defaults
    cpu_threads: int | None = None
    seed: int = 0  # for dummy weights, and the stream that unseeded requests draw from
    profile_steps: int | None = None  # that a recording holds; None: none can be asked for
    profile_dir: str | None = None  # where recordings go; there when profile_steps is


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything an API worker needs besides the engine."""

    tokenizer_path: str  # a folder, or a .gguf file
    chat_template: str | None = None  # a file that overrides the model's own
    served_model_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    api_workers: int = 1
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_key_file: str | None = None  # one key a line; read again when it changes
    allowed_hosts: tuple[str, ...] = ()  # names that `Host` may hold; (): local ones, on a loopback without keys
    allowed_origins: tuple[str, ...] = ()  # of web pages that may use the API
    metrics_prefix: str = "firsttoken"
    tool_call_parser: Literal["auto", "hermes", "llama3_json"] = "auto"  # auto: by the chat template
    reasoning_parser: Literal["auto", "none", "qwen3", "deepseek_r1"] = "auto"
    strict_fields: bool = False
    truncate: Truncation = "none"
    max_body_bytes: int = 8 * 1024 * 1024
    max_body_memory: int = 1024**3  # bytes of all requests' bodies at once
    max_header_bytes: int = 32 * 1024  # names, values, path and query string together
    max_headers: int = 100
    max_json_depth: int = 100  # levels of lists and objects in a body
    max_string_length: int | None = None  # characters of one text in a body; None: as the body's size allows
    max_n: int = 16
    max_logprobs: int = 20
    max_stop: int = 256
    max_stop_length: int = 16_384  # characters of a request's stop strings together
    max_grammar_size: int = 65_536  # characters of a schema, an expression or another grammar
    max_grammar_depth: int = 64  # levels of a schema's objects and lists
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    max_connections: int = 8192  # of all API workers together
    header_timeout: float = 60.0  # seconds for a request's head, and for a connection's first one to begin
    request_timeout: float = 300.0  # seconds for a whole request to arrive
    keep_alive_timeout: float = 65.0  # between requests; usual load balancers keep 60 s, and must close first
    send_timeout: float = 300.0  # seconds for a client to take the next 48 KiB of what waits for it
    engine_timeout: float | None = None  # seconds without a sign of the engine that count as a hang; None: by device
    drain_seconds: float = 30.0
    engine_dead: Literal["exit", "restart"] = "exit"
    profile_steps: int | None = None  # as the engine's: whether there is /start_profile
    engine_socket: str = ""  # the engine's Unix socket; set by the supervisor
