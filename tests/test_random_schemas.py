"""Whatever schema is asked for, an answer that ends by itself satisfies it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

from firsttoken.llm import LLM
from firsttoken.types import Grammar, SamplingParams
from tests.builders import tiny_model_folder


def random_schema(random: Random, depth: int = 0) -> dict[str, Any]:
    """Bounded in every direction, so that an answer can end."""
    kinds = ["string", "integer", "number", "boolean", "enum", "pattern", "null"]
    kind = random.choice([*kinds, "object", "object", "array", "anyOf"] if depth < 3 else kinds)
    match kind:
        case "string":
            least = random.randrange(3)
            return {"type": "string", "minLength": least, "maxLength": least + random.randrange(6)}
        case "integer":
            low = random.randrange(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + random.randrange(100)}
        case "number":
            return {"type": "number", "minimum": 0, "exclusiveMaximum": random.randrange(1, 10), "multipleOf": 0.5}
        case "enum":
            return {"enum": random.sample(["a", "b c", 'q"\\', "绿", 1, 2.5, None, True, [1], {"k": "v"}], 3)}
        case "pattern":
            return {"type": "string", "pattern": random.choice(["^[a-f]{2,4}$", r"^\d{3}-\d$", "^(yes|no)$"])}
        case "object":
            names = random.sample(["name", "age", "tags", "b", "名", "with space"], random.randrange(1, 5))
            return {
                "type": "object",
                "properties": {name: random_schema(random, depth + 1) for name in names},
                "required": names[: random.randrange(len(names) + 1)],
                "additionalProperties": False,
            }
        case "array":
            least = random.randrange(2)
            items = random_schema(random, depth + 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + random.randrange(3)}
        case "anyOf":
            return {"anyOf": [random_schema(random, depth + 1) for _ in range(2)]}
        case _:
            return {"type": kind}


def check(llm: LLM, count: int, max_tokens: int) -> None:
    random = Random(7)
    schemas = [random_schema(random) for _ in range(count)]
    params = [
        SamplingParams(
            seed=i,
            temperature=random.choice([0.0, 1.0, 1.5]),
            max_tokens=max_tokens,
            ignore_eos=i % 3 == 0,
            min_tokens=i % 4,
            grammar=Grammar(kind="json_schema", source=json.dumps(schema)),
        )
        for i, schema in enumerate(schemas)
    ]
    whole = 0
    for schema, result in zip(schemas, llm.generate(["An example:"] * count, params), strict=True):
        (answer,) = result.outputs
        if answer.finish_reason == "stop":
            jsonschema.validate(json.loads(answer.text), schema)
            whole += 1
        else:
            assert answer.finish_reason == "length"
    assert whole > count * 0.7, "most of these answers can end"


def test_a_model_of_random_weights_satisfies_random_schemas(tmp_path: Path) -> None:
    with LLM(str(tiny_model_folder(tmp_path / "model")), dtype="float32", kv_cache_memory=16 << 20) as llm:
        check(llm, 80, 200)


@pytest.mark.demo
def test_the_demo_model_satisfies_random_schemas(demo_file: Path) -> None:
    with LLM(str(demo_file), max_model_len=512, kv_cache_memory=64 << 20) as llm:
        check(llm, 24, 120)
