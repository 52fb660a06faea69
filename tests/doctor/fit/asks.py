"""Asks about the 4B model."""

from __future__ import annotations

from typing import Any

from firsttoken.doctor.fit.ask import Ask
from firsttoken.doctor.fit.devices import sheet_device
from firsttoken.doctor.fit.form import Form, on_gpu, with_kv
from firsttoken.machine.cards import find_card
from firsttoken.model.config import parse_config
from tests.qwen3_4b import CONFIG

QWEN3_4B = parse_config(CONFIG)
BF16 = on_gpu("auto", "auto", QWEN3_4B, (9, 0))


def ask_about(card: str, **fields: Any) -> Ask:
    """An ask about the 4B model in bfloat16 on a card."""
    device = sheet_device(find_card(card), 0.9)
    return Ask(**{"model": "Qwen3-4B", "config": QWEN3_4B, "device": device, "form": BF16, **fields})


def form_of(row: dict[str, Any]) -> Form:
    """The form of a measured row: `form` is its --quantization, `kv` its --kv-cache-dtype."""
    form = on_gpu("auto", row.get("form", "auto"), QWEN3_4B, (9, 0))
    return with_kv(form, row.get("kv", "auto"), QWEN3_4B, gpu=True)
