"""What several commands, and several flags, do to each other; and what arithmetic rules out."""

from __future__ import annotations

import pytest
from tests.qwen3_4b import CONFIG

from firsttoken.cli.lint import own_table, shapes
from firsttoken.doctor.lint.linter import Linter
from firsttoken.model.config import ModelConfig, parse_config

GIB = 1 << 30


def known(model: str) -> ModelConfig | None:
    return parse_config(CONFIG) if "Qwen3-4B-Instruct-2507" in model else None


def linter(memory: int | None = None) -> Linter:
    return Linter(firsttoken=own_table, config_of=known, memory=memory, card="a card" if memory else "")


def judged(text: str, memory: int | None = None) -> list[tuple[str, str | None]]:
    found = linter(memory).check_text(text)
    return [(finding.rule, one.corrected) for one in found for finding in one.findings if finding.level != "note"]


MODEL = "Qwen/Qwen3-4B-Instruct-2507"


def test_a_pool_that_holds_no_sequence_of_full_length_is_impossible() -> None:
    # 144 KiB a token: 2 GiB hold 14,563 tokens
    command = f"vllm serve {MODEL} --kv-cache-memory-bytes 2G --max-model-len 32768"
    assert judged(command) == [
        ("pool-below-context", f"vllm serve {MODEL} --kv-cache-memory-bytes 2G --max-model-len 14336")
    ]
    assert judged(f"vllm serve {MODEL} --kv-cache-memory-bytes 5G --max-model-len 32768") == []
    assert judged(f"vllm serve {MODEL} --kv-cache-memory-bytes 3G --max-model-len 32768 --kv-cache-dtype fp8") == []


def test_a_length_beyond_the_model_s_own_is_impossible_unless_it_is_stretched() -> None:
    assert judged(f"vllm serve {MODEL} --max-model-len 300000")[0][0] == "longer-than-the-model"
    stretched = '--hf-overrides \'{"rope_parameters": {"factor": 2.0}}\''
    assert judged(f"vllm serve {MODEL} --max-model-len 300000 {stretched}") == []


def test_heads_that_do_not_divide_are_impossible() -> None:
    assert judged(f"vllm serve {MODEL} -tp 3") == [("heads-do-not-divide", f"vllm serve {MODEL} -tp 2")]
    assert judged(f"vllm serve {MODEL} -tp 8") == []


def test_the_full_length_does_not_fit_a_small_card_and_the_longest_that_does_is_named() -> None:
    ((rule, corrected),) = judged(f"vllm serve {MODEL}", 24 * GIB)
    assert rule == "context-does-not-fit"
    assert corrected is not None
    length = int(corrected.split()[-1])
    assert 80_000 < length < 110_000  # (24 x 0.92 - 7.5 - 1.5) GiB at 144 KiB a token
    assert judged(corrected, 24 * GIB) == []
    assert judged(f"vllm serve {MODEL}", 80 * GIB) == []
    assert judged(f"firsttoken serve {MODEL}", 24 * GIB) == []  # takes the longest that fits by itself


def test_weights_that_do_not_fit_have_no_correction() -> None:
    assert judged(f"vllm serve {MODEL} --max-model-len 4096", 8 * GIB) == [("weights-do-not-fit", None)]
    assert judged(f"vllm serve {MODEL}-AWQ --max-model-len 4096", 8 * GIB) == []
    assert judged(f"vllm serve {MODEL} --quantization fp8 --max-model-len 4096", 8 * GIB) == []


def test_shapes_are_known_by_name_or_read_from_a_folder(tmp_path: object) -> None:
    config = shapes(MODEL)
    assert config is not None
    assert config.context_length == 262144
    assert shapes("nobody/knows") is None
    assert shapes(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("vllm serve", "no-model"),
        ("sglang serve --port 30000", "no-model"),
        ("python -m vllm.entrypoints.openai.api_server m/a --model m/b", "two-models"),
        (
            "vllm serve m/m --no-enable-chunked-prefill --max-model-len 8192 --max-num-batched-tokens 4096",
            "batch-below-context",
        ),
        ("vllm serve m/m --num-gpu-blocks-override 100 --max-model-len 8192", "blocks-below-context"),
        ("docker run --gpus all vllm/vllm-openai:latest --model m/m", "no-port-published"),
        ("docker run --gpus all -p 80:8000 vllm/vllm-openai:latest --model m/m -tp 2", "container-shared-memory"),
    ],
)
def test_flags_that_contradict_each_other_or_their_surroundings_are_named(text: str, rule: str) -> None:
    found = judged(text)
    assert rule in [name for name, _ in found]
    for _, corrected in found:
        assert corrected is not None
        assert judged(corrected) == []


def test_two_servers_at_once_on_one_port_are_named_and_the_second_moves() -> None:
    text = "vllm serve a/a &\nchainlit run app.py\nvllm serve b/b --port 8000"
    found = linter().check_text(text)
    assert [finding.rule for finding in found[1].findings if finding.level != "note"] == ["port-taken"]
    assert found[1].corrected == "chainlit run app.py --port 8080"
    assert found[2].corrected == "vllm serve b/b --port 8001"
    assert judged("vllm serve a/a &\nsglang serve --model-path b/b &\nchainlit run a.py --port 8080") == []
    assert judged("vllm serve a/a\nvllm serve b/b") == []  # one after the other


SERVED = "vllm serve Qwen/Qwen3-4B-Instruct-2507 --served-model-name qwen --api-key sk-1 &"
REQUEST = 'curl http://localhost:8000/v1/chat/completions {} -d \'{{"model": "{}", "messages": []}}\''


def test_a_request_for_a_name_that_the_server_does_not_have_is_named() -> None:
    key = '-H "Authorization: Bearer sk-1"'
    ((rule, corrected),) = judged(f"{SERVED}\n{REQUEST.format(key, MODEL)}")
    assert rule == "model-name-unknown"
    assert corrected is not None
    assert judged(f"{SERVED}\n{corrected}") == []
    assert judged(f"{SERVED}\n{REQUEST.format(key, 'qwen')}") == []
    assert judged(f"vllm serve {MODEL} &\n{REQUEST.format('', MODEL)}") == []


def test_a_request_without_the_key_that_the_server_wants_is_named() -> None:
    ((rule, corrected),) = judged(f"{SERVED}\n{REQUEST.format('', 'qwen')}")
    assert rule == "request-without-key"
    assert corrected is not None
    assert judged(f"{SERVED}\n{corrected}") == []
