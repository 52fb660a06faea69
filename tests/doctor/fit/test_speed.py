from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firsttoken.doctor.fit.ask import Ask, Device, fit
from firsttoken.doctor.fit.speed import QUANTISED, Load, Rates, Speed, StepTimes
from firsttoken.model import cost
from firsttoken.model.memory_plan import DeviceMemory
from tests.doctor.fit.asks import QWEN3_4B, form_of

H200 = json.loads(Path(__file__).with_name("h200.json").read_text())


def times(rates: Rates) -> StepTimes:
    return StepTimes(
        config=QWEN3_4B,
        weight_bytes=cost.decode_weight_bytes(QWEN3_4B),
        kv_bytes_per_token=cost.kv_bytes_per_token(QWEN3_4B),
        rates=rates,
    )


MEASURED = times(Rates(kind="cuda", read=H200["read"], product=H200["product"]))
SHEET = times(Rates(kind="cuda", read=4.8e12, product=989e12, from_sheet=True))


def load_of(row: dict[str, Any]) -> Load:
    return Load(row["streams"], row["prompt"], row["output"])


def times_of(run: dict[str, Any], row: dict[str, Any]) -> StepTimes:
    """As `fit` has them for a measured row's form, by the ceilings that its run read."""
    total = H200["memory_total"]
    device = Device(
        name="an H200",
        memory=DeviceMemory(kind="cuda", total=total, free=total),
        rates=Rates(kind="cuda", read=run["read"], product=run["product"], sms=132),
    )
    return fit(Ask(model="Qwen3-4B", config=QWEN3_4B, device=device, form=form_of(row))).times


def check(found: Speed, row: dict[str, Any]) -> None:
    told = {"tpot_ms": found.tpot, "ttft_ms": found.ttft, "tokens_per_s": found.tokens_per_s}
    for name in told.keys() & row.keys():
        unit = 1e-3 if name.endswith("_ms") else 1.0
        assert told[name] == pytest.approx(row[name] * unit, rel=0.15), name


@pytest.mark.parametrize("row", H200["loads"], ids=lambda row: f"{row['streams']}x{row['prompt']}")
@pytest.mark.parametrize("rates", [MEASURED, SHEET], ids=["measured ceilings", "data sheet"])
def test_what_an_h200_did_is_predicted_within_15_percent(row: dict[str, Any], rates: StepTimes) -> None:
    check(rates.predict(load_of(row)), row)


@pytest.mark.parametrize(
    ("run", "row"),
    [
        pytest.param(run, row, id=f"{form_of(row).name} {row['streams']}x{row['prompt']}x{row['output']}")
        for run in H200["later"]
        for row in run["loads"]
    ],
)
def test_what_an_h200_did_with_fewer_bytes_is_predicted_within_15_percent(
    run: dict[str, Any], row: dict[str, Any]
) -> None:
    check(times_of(run, row).predict(load_of(row)), row)


@pytest.mark.parametrize("row", H200["steps"]["taken"], ids=lambda row: f"{form_of(row).name} {row['rows']}")
def test_steps_alone_are_predicted_too(row: dict[str, Any]) -> None:
    # Prompts of one token, and so many answers' that these are nothing beside them; 512 tokens of context on average
    found = times_of(H200["steps"], row).predict(Load(row["rows"], 1, 1022)).tpot
    assert found == pytest.approx(row["ms"] / 1e3, rel=0.15)


@pytest.mark.parametrize("form", ["fp8", "int8", "int4"])
def test_two_rows_of_quantised_weights_cost_more_than_one_and_two_blocks_more_than_one(form: str) -> None:
    shares = QUANTISED[form]
    assert shares.read(1) > shares.read(2) == shares.read(16) > shares.read(40) > shares.read(64)
    assert shares.read(128) == shares.read(65) == shares.read(64) / 2


@pytest.mark.parametrize("row", H200["loads"], ids=lambda row: f"{row['streams']}x{row['prompt']}")
def test_nothing_undercuts_a_floor(row: dict[str, Any]) -> None:
    floor, found = MEASURED.floor(load_of(row)), MEASURED.predict(load_of(row))
    assert floor.tpot is not None
    assert found.tpot is not None
    assert floor.tpot < found.tpot
    assert floor.tpot < row["tpot_ms"] / 1e3
    assert floor.tokens_per_s is not None
    assert found.tokens_per_s is not None
    assert floor.tokens_per_s > found.tokens_per_s


def test_a_floor_is_bytes_over_bandwidth_until_arithmetic_takes_longer() -> None:
    one = MEASURED.floor(Load(1, 32, 256)).tpot
    assert one == pytest.approx((8_044_936_192 + 160 * 147_456) / 4.38e12, rel=1e-3)
    narrow = times(Rates(kind="cuda", read=4.38e12, product=4.38e12)).floor(Load(64, 32, 256)).tpot
    assert narrow == pytest.approx(64 * cost.decode_flops(QWEN3_4B, 160) / 4.38e12)


def test_quantised_weights_are_bound_by_a_cards_multiprocessors_or_by_its_memory() -> None:
    def tpot(form: str, **rates: Any) -> float:
        one = replace(times(Rates(kind="cuda", product=989e12, **rates)), shares=QUANTISED[form])
        found = one.predict(Load(1, 32, 1024)).tpot
        assert found is not None
        return found

    h200 = tpot("int4", read=4.38e12, sms=132)
    assert tpot("int4", read=4.38e12) == pytest.approx(h200), "as an H200 where nothing is known of its multiprocessors"
    assert tpot("int4", read=8.76e12, sms=132) == pytest.approx(h200, rel=0.05), "more memory changes next to nothing"
    assert tpot("int4", read=4.38e12, sms=264) < 0.6 * h200
    slow = {"read": 0.36e12, "sms": 28}
    assert tpot("fp8", **slow) < 1.1 * 8_044_936_192 / 0.36e12 < tpot("int4", read=0.36e12)


def test_prompts_in_the_same_moment_wait_for_one_another() -> None:
    together = MEASURED.first_tokens_at_once(Load(64, 512, 256))
    assert together == pytest.approx(0.210, rel=0.15)  # measured where 64 clients began at once


def test_a_cpu_is_predicted_alone_and_without_what_arithmetic_decides() -> None:
    cpu = times(Rates(kind="cpu", read=20e9))
    assert cpu.predict(Load(1, 32, 256)).tpot == pytest.approx((8_044_936_192 + 160 * 147_456) / 20e9 / 0.88)
    assert cpu.predict(Load(1, 32, 256)).ttft is None
    assert cpu.predict(Load(2, 32, 256)).tpot is None
    assert cpu.floor(Load(2, 32, 256)).tokens_per_s is not None


def test_without_rates_nothing_is_told() -> None:
    unknown = times(Rates(kind="cuda", origin="the card is not named"))
    assert unknown.floor(Load(1, 32, 256)).tpot is unknown.predict(Load(1, 32, 256)).tpot is None
