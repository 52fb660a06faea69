"""The report's last part: with which commands, on which machine and against which ceilings a run was measured."""

from __future__ import annotations

import shlex
from html import escape

from firsttoken.bench import units
from firsttoken.bench.records import RunResult
from firsttoken.bench.words import Words, same

_NAMES = {
    "root": Words("Model's source", "模型来源"),
    "weights": Words("Weights", "权重形式"),
    "weight_bytes": Words("Weights in memory", "权重占用"),
    "kv_bytes_per_token": Words("KV cache a token", "每 token KV 缓存"),
    "device": Words("Device", "设备"),
    "dtype": Words("Precision", "精度"),
    "system": Words("System", "操作系统"),
    "cpu": Words("Processor", "处理器"),
    "cores": Words("Cores", "核数"),
    "memory": Words("Memory", "内存"),
    "gpu": Words("GPU", "GPU"),
    "gpu memory": Words("GPU memory", "显存"),
    "driver": Words("Driver", "驱动"),
    "server": Words("Server", "服务"),
    "client's cores": Words("Client's cores", "客户端核数"),
    "read_bytes_per_s": Words("Ceiling: memory reads", "上限：内存读取"),
    "copy_bytes_per_s": Words("Ceiling: memory copies", "上限：内存复制"),
    "product_flops_per_s": Words("Ceiling: products", "上限：矩阵乘"),
    "cache_bytes": Words("Last cache", "末级缓存"),
}
_SIZES = ("weight_bytes", "kv_bytes_per_token", "memory", "gpu memory", "cache_bytes")


def provenance(result: RunResult) -> str:
    """Everything that is needed to measure the same again, and what could not be read."""
    rows: list[tuple[Words, str]] = [
        (Words("Command", "命令"), _command(result.command)),
        (Words("Server's command", "服务启动命令"), result.server.command),
        (same("firsttoken"), result.version),
        (Words("Seed of the prompts", "提示词种子"), "" if result.seed is None else str(result.seed)),
        (Words("Client processes", "客户端进程"), str(result.client_processes)),
    ]
    if result.client_ceiling is not None:
        ceiling = f"{units.count(result.client_ceiling)} chunks/s"
        rows.append((Words("Client's own ceiling", "客户端自身上限"), ceiling))
    facts: dict[str, str | float | None] = {**result.server.details, **result.machine, **result.ceilings}
    rows += [(_NAMES.get(key, same(key)), fact(key, value)) for key, value in facts.items()]
    items = "".join(f"<dt>{name.html}</dt><dd><code>{escape(value)}</code></dd>" for name, value in rows if value)
    absent = "".join(f"<li>{escape(sentence)}</li>" for sentence in result.absent)
    missing = f"<h3>{Words('Sensors that are absent', '缺少的传感器').html}</h3><ul>{absent}</ul>" if absent else ""
    return f"<h2>{Words('How this was measured', '测量环境与命令').html}</h2>\n<dl>{items}</dl>{missing}\n"


def fact(key: str, value: str | float | None) -> str:
    """A value for people: sizes and rates with their units."""
    if value is None:
        return ""
    try:
        number = float(value)
    except ValueError:
        return str(value)
    if key in _SIZES:
        return units.size(number)
    if key.endswith("_bytes_per_s"):
        return f"{units.digits(number / 1e9)} GB/s"
    if key.endswith("_flops_per_s"):
        return f"{units.digits(number / 1e12)} TFLOP/s"
    return value if isinstance(value, str) else f"{value:,.10g}"


def _command(words: list[str]) -> str:
    """As a shell takes it; what was hidden stays readable."""
    return " ".join(word if word == "…" else shlex.quote(word) for word in words)
