from __future__ import annotations

import pytest
from tests.engine.paged_runner import VOCAB, bench, engine_info, request

from firsttoken.engine.admission import check_request, max_total_tokens
from firsttoken.errors import InvalidRequest
from firsttoken.types import GenerateRequest, Grammar

ANY_OBJECT = Grammar(kind="json_object", source="")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (request("r", []), "prompt"),
        (request("r", [1, VOCAB]), "prompt"),
        (request("r", [-1]), "prompt"),
        (request("r", [1], n=0), "n"),
        (request("r", [1], max_tokens=-1), "max_tokens"),
        (request("r", [1], stop_token_ids=(VOCAB,)), "stop_token_ids"),
        (request("r", [1], logit_bias={999_999: 1.0}), "logit_bias"),
        (request("r", [1], grammar=ANY_OBJECT, allowed_token_ids=(1,)), "allowed_token_ids"),
        (request("r", [1], grammar=ANY_OBJECT, bad_words=((1,),)), "bad_words"),
        (request("r", [1], logit_bias={-1: 1.0}), "logit_bias"),
    ],
)
def test_a_wrong_field_is_named_and_the_next_request_is_served(asked: GenerateRequest, param: str) -> None:
    run = bench()
    with pytest.raises(InvalidRequest) as error:
        run.engine.add(asked)
    assert error.value.param == param
    assert not run.engine.has_work
    run.engine.add(request("next", [1, 2], max_tokens=2, ignore_eos=True))
    run.run()
    assert len(run.ids("next")) == 2


def test_a_prompt_over_the_context_is_refused_in_openai_s_words() -> None:
    with pytest.raises(InvalidRequest) as error:
        check_request(request("r", [1] * 65), engine_info())
    assert error.value.code == "context_length_exceeded"
    assert error.value.message == (
        "This model's maximum context length is 64 tokens. However, your messages resulted in 65 tokens. "
        "Please reduce the length of the messages."
    )


def test_a_prompt_as_long_as_the_context_leaves_no_room_for_an_answer_but_can_be_scored() -> None:
    check_request(request("r", [1] * 63), engine_info())
    check_request(request("r", [1] * 64, max_tokens=0), engine_info())
    with pytest.raises(InvalidRequest, match="leaves no room for an answer"):
        check_request(request("r", [1] * 64), engine_info())


def test_a_prompt_that_the_kv_cache_can_never_hold_is_refused_with_the_numbers() -> None:
    info = engine_info(num_blocks=5)
    check_request(request("r", [1] * 19), info)
    with pytest.raises(InvalidRequest, match=r"has 20 tokens, but the server's KV cache holds 20 tokens") as error:
        check_request(request("r", [1] * 20), info)
    assert error.value.code == "context_length_exceeded"


def test_length_is_as_asked_and_cut_to_context_and_pool() -> None:
    assert max_total_tokens(request("r", [1] * 10, max_tokens=5), engine_info()) == 15
    assert max_total_tokens(request("r", [1] * 10, max_tokens=500), engine_info()) == 64
    assert max_total_tokens(request("r", [1] * 10), engine_info()) == 64
    assert max_total_tokens(request("r", [1] * 10), engine_info(num_blocks=5)) == 20
