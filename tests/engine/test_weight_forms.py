"""The factory of a GPU's weights, which needs no GPU to be chosen, and what the start-up summary says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.builders import tiny_config
from tests.qwen3_4b import CONFIG

from firsttoken.config import EngineConfig
from firsttoken.engine.device import Placement, place
from firsttoken.engine.weight_forms import describe_weights, make_linears
from firsttoken.kernels.linear import DenseLinear
from firsttoken.kernels.quant_forms import HEAD_FORMS
from firsttoken.kernels.quant_linear import QuantLinear
from firsttoken.kernels.quant_round import round_weight
from firsttoken.model.config import ModelConfig, parse_config
from firsttoken.model.cost import GPU_HEAD, GPU_PRODUCT, decode_weight_bytes, weight_bytes
from firsttoken.model.dummy import DummyWeights
from firsttoken.model.loading import build_decoder
from firsttoken.model.quant_linears import QuantLinears
from firsttoken.model.quantization import parse_quantization

BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def on_a_gpu(weights: Any) -> Placement:
    here = place(EngineConfig(model="m", path="p", device="cpu", dtype="bfloat16"), "bfloat16", lambda: None)
    return replace(here, device=torch.device("cuda"), weights=weights, why="why")


def factory(weights: Any, model: ModelConfig, *, dummy: bool = False) -> QuantLinears:
    made = make_linears(on_a_gpu(weights), model, dummy=dummy)
    assert isinstance(made, QuantLinears)
    return made


def test_random_weights_take_the_form_of_a_quantised_config() -> None:
    model = parse_config(CONFIG | {"quantization_config": BLOCKS})
    assert factory("keep", model).rounded is None
    made = factory("keep", model, dummy=True)
    assert (made.rounded, made.group, made.rows) == ("fp8", 128, 128)
    assert factory("int4", parse_config(CONFIG)).rounded == "int4"
    assert make_linears(on_a_gpu("dense"), model, dummy=False) is None


@pytest.mark.parametrize("form", ["fp8", "int8", "int4"])
def test_a_form_that_is_judged_has_its_rounded_numbers_in_float32(form: Any) -> None:
    model = parse_config(tiny_config(hidden_size=256, head_dim=64, intermediate_size=384, tied=True))
    placement = place(
        EngineConfig(model="m", path="p", device="cpu", dtype="float32", quantization=form), "float32", lambda: None
    )
    linears = make_linears(placement, model, dummy=False)
    source = DummyWeights(model, torch.float32, torch.device("cpu"))
    judged = build_decoder(model, source, dtype=torch.float32, make_linear=linears)
    plain = build_decoder(model, DummyWeights(model, torch.float32, torch.device("cpu")), dtype=torch.float32)
    down, exact = judged.layers[0].down, plain.layers[0].down
    assert isinstance(down, DenseLinear)
    assert isinstance(exact, DenseLinear)
    torch.testing.assert_close(down.weight, round_weight(exact.weight, form).dequantize(), rtol=0, atol=0)
    assert not torch.equal(down.weight, exact.weight)
    assert judged.embedding.equal(plain.embedding), "a lookup reads the checkpoint's own"
    assert isinstance(judged.head, DenseLinear)
    head = plain.embedding if form == "fp8" else round_weight(plain.embedding, "int8").dequantize()
    assert judged.head.weight.equal(head)


def test_a_plan_counts_the_heads_form_that_the_loader_makes() -> None:
    assert {form: GPU_PRODUCT[head] for form, head in HEAD_FORMS.items()} == GPU_HEAD


def test_the_summary_names_the_form_and_the_plans_bytes_are_those_read() -> None:
    raw = tiny_config(hidden_size=256, head_dim=64, intermediate_size=384, tied=True, torch_dtype="bfloat16")
    model = parse_config(raw)
    said = {}
    for form in ("fp8", "int8", "int4"):
        linears = replace(factory(form, model), device=torch.device("cpu"))
        source = DummyWeights(model, torch.bfloat16, torch.device("cpu"))
        decoder = build_decoder(model, source, dtype=torch.bfloat16, make_linear=linears)
        said[form] = describe_weights(decoder, on_a_gpu(form))
        each = (2.0, on_a_gpu(form).product_bytes(None), on_a_gpu(form).head_bytes)
        planned = decode_weight_bytes(model, *each)
        assert abs(decoder.weight_bytes - planned) < 0.05 * planned  # the plan leaves fp8's scales out, and adds norms
        table = decoder.embedding.numel() * 2
        assert weight_bytes(model, *each) == planned + (0 if form == "fp8" else table), "a tied one is held besides"
        assert isinstance(decoder.head, QuantLinear) == (form != "fp8")
    assert said == {
        "fp8": "fp8 weights with a scale for each row, why",
        "int8": "int8 weights with a scale for each 128 inputs, the head in int8, why",
        "int4": "int4 weights with a scale for each 128 inputs, the head in int8, why",
    }


def test_the_4b_model_in_published_forms_takes_the_bytes_that_its_config_promises() -> None:
    head, products = 151_936 * 2560 * 2, 36 * (2560 * (4096 + 2 * 1024 + 4096) + 3 * 2560 * 9728)
    for published, bytes_a_weight in (
        (BLOCKS, 1 + 4 / 128**2),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 3 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 0.5 + 2 / 128),
    ):
        model = parse_config(CONFIG | {"quantization_config": published})
        quantization = parse_quantization(published)
        assert quantization is not None
        assert quantization.bytes_per_weight == model.kept_bytes == bytes_a_weight
        total = weight_bytes(model, 2.0, model.kept_bytes)
        assert abs(total - head - products * bytes_a_weight) < 1e-3 * total
