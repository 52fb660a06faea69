"""Which test shows that what broke other servers does not break this one.

Every kind of input is here with the tests that send it over HTTP. Each of them sends a plain request after it, which
must still get its right answer.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
STILL_RIGHT = ("next_is_right", "check", "_answer")  # calls that send the plain request

COVERED: dict[str, tuple[str, ...]] = {
    "a prompt of ids that ends inside a character": (
        "api/test_streaming.py::test_a_prompt_that_ends_inside_a_character_leaves_the_stream_valid_and_free_of_the_prompts_bytes",
        "api/test_whole_server.py::test_a_prompt_that_ends_inside_a_character_streams_valid_text",
    ),
    "a stop string that begins in one token and ends in the next": (
        "api/test_stop_strings.py::test_nothing_of_a_stop_string_over_several_tokens_is_ever_streamed",
        "api/test_whole_server.py::test_a_stop_string_ends_the_sequence_in_the_engine_too",
    ),
    "several stop strings that match": (
        "api/test_stop_strings.py::test_the_earliest_match_in_the_text_wins_whatever_the_order_of_the_list",
    ),
    "an empty stop string": ("api/test_stop_strings.py::test_a_stop_that_cannot_be_meant_is_refused_by_name",),
    "a streamed tool call with nested arguments": (
        "api/test_tools.py::test_a_streams_argument_deltas_join_to_the_unstreamed_call",
        "api/test_enforced_calls.py::test_a_streamed_call_is_the_unstreamed_one",
    ),
    "a tool call cut by max_tokens": (
        "api/test_tools.py::test_a_call_cut_by_the_length_is_no_call",
        "api/test_enforced_calls.py::test_a_call_cut_by_the_length_is_no_call",
    ),
    "the last token before max_tokens": (
        "api/test_streaming.py::test_the_text_of_the_last_token_is_not_lost_at_max_tokens",
    ),
    "logprobs of Chinese and of curly quotes": (
        "api/test_logprobs.py::test_the_bytes_of_chat_logprobs_join_to_the_exact_text",
        "api/test_demo_server.py::test_logprobs_of_chinese_and_quotes_join_to_the_text",
    ),
    "logprobs: 0": ("api/test_logprobs.py::test_zero_logprobs_of_a_completion_are_those_of_the_chosen_tokens",),
    "empty prompts and messages": (
        "api/test_validation.py::test_a_prompt_without_content_or_form_is_refused",
        "api/test_validation.py::test_a_model_with_a_first_token_goes_on_from_it_where_the_prompt_is_empty",
        "api/test_validation.py::test_messages_of_no_known_form_are_refused_where_they_are_wrong",
    ),
    "an echo without an answer": (
        "api/test_logprobs.py::test_an_echo_alone_gives_the_prompt_with_its_logprobs",
        "api/test_whole_server.py::test_an_echo_gives_the_prompts_logprobs_whether_cached_or_not",
    ),
    "ids, keys and values of logit_bias that cannot be": (
        "api/test_validation.py::test_a_value_out_of_range_is_refused_by_name",
        "api/test_validation.py::test_a_bias_that_is_no_number_is_refused",
        "api/test_whole_server.py::test_what_cannot_be_run_never_reaches_the_engine",
    ),
    "stop ids that the model does not have": (
        "api/test_validation.py::test_a_value_out_of_range_is_refused_by_name",
        "api/test_whole_server.py::test_what_cannot_be_run_never_reaches_the_engine",
    ),
    "millions of alternatives or choices": (
        "api/test_validation.py::test_too_many_alternatives_or_choices_are_refused_before_any_memory_is_taken",
    ),
    "sampling values out of range, NaN and infinity": (
        "api/test_validation.py::test_a_value_out_of_range_is_refused_by_name",
        "api/test_validation.py::test_numbers_that_are_none_are_refused_by_name",
    ),
    "bad, recursive, huge and unsatisfiable grammars, under load": (
        "api/test_structured_output.py::test_a_bad_grammar_is_refused_at_once_and_by_name",
        "api/test_structured_output.py::test_bad_grammars_touch_no_request_that_runs_beside_them",
        "soak/test_soak.py::test_hard_grammars_hold_up_no_stream_beside_them",
    ),
    "a continued message that ends in a newline": (
        "api/test_messages.py::test_a_continued_message_goes_on_from_exactly_its_text",
        "api/test_messages.py::test_a_continued_message_is_not_sent_back",
    ),
    "a tool call without content, and a result in parts": (
        "api/test_messages.py::test_a_tool_call_without_content_and_its_result_in_parts",
    ),
    "content in parts, developer, null content": (
        "api/test_messages.py::test_text_parts_are_joined",
        "api/test_messages.py::test_developer_is_system_and_null_content_is_empty",
    ),
    "control tokens in a user's text": (
        "api/test_messages.py::test_an_end_of_turn_in_a_users_text_ends_no_turn",
        "api/test_demo_server.py::test_users_text_cannot_end_a_turn",
    ),
    "a huge word, a prompt one token too long, a body of 50 MB": (
        "api/test_length.py::test_a_huge_word_is_refused_within_a_second",
        "api/test_length.py::test_messages_one_token_too_long_are_refused_in_openais_words",
        "api/test_limits.py::test_a_body_of_50_megabytes_is_refused_and_its_sender_still_gets_the_answer",
        "api/test_demo_server.py::test_a_huge_word_and_a_prompt_one_token_too_long_are_refused",
    ),
    "logits of padding ids": ("api/test_whole_server.py::test_ids_beyond_the_tokenizer_are_never_sampled",),
    "clients that leave in prefill, in decode and in the queue": (
        "api/test_disconnects.py::test_a_client_that_goes_away_in_mid_answer_frees_the_engine",
        "api/test_disconnects.py::test_a_client_that_goes_away_before_the_first_token_frees_the_engine",
        "api/test_whole_server.py::test_a_client_that_goes_away_leaves_nothing_behind",
        "api/test_whole_server.py::test_clients_that_go_away_while_queued_leave_nothing_behind",
        "soak/test_soak.py::test_clients_that_leave_at_any_moment_leave_nothing_behind",
    ),
    "a client that hardly reads": (
        "api/test_disconnects.py::test_a_slow_reader_slows_nobody_and_gets_its_text_merged",
    ),
    "the same prompt alone and among others": (
        "api/test_whole_server.py::test_the_same_prompt_has_the_same_answer_alone_and_among_others",
    ),
    "four streamed answers with a seed": (
        "api/test_choices.py::test_four_streamed_answers_have_their_own_role_text_and_end",
        "api/test_whole_server.py::test_four_seeded_answers_are_repeatable_and_differ",
    ),
    "usage in streams": ("api/test_streaming.py::test_usage_comes_last_and_alone_where_it_was_asked_for",),
    "max_completion_tokens, max_tokens, both and neither": (
        "api/test_length.py::test_max_completion_tokens_wins_over_max_tokens",
        "api/test_length.py::test_without_either_a_chat_goes_on_to_the_contexts_end",
        "api/test_whole_server.py::test_an_answer_without_a_length_goes_to_the_contexts_end",
    ),
    "unknown, unsupported and neutral fields": (
        "api/test_validation.py::test_an_unknown_field_is_ignored_and_named",
        "api/test_validation.py::test_strict_fields_refuses_unknown_ones",
        "api/test_validation.py::test_a_known_field_that_is_not_honoured_is_refused_by_name",
        "api/test_validation.py::test_openais_fields_at_their_neutral_values_change_nothing",
    ),
    "wrong keys and forged hosts": (
        "api/test_keys.py::test_a_wrong_key_is_a_401_in_openais_form",
        "api/test_keys.py::test_no_key_at_all_is_a_401",
        "api/test_keys.py::test_no_host_header_or_odd_path_gets_around_the_key",
    ),
    "several prompts with several answers": (
        "api/test_choices.py::test_two_prompts_with_two_answers_each_are_numbered_by_prompt",
        "api/test_whole_server.py::test_two_prompts_with_two_answers_are_each_prompts_own",
    ),
    "min_tokens against a stop id": ("api/test_whole_server.py::test_min_tokens_holds_a_stop_id_back",),
    "a killed engine, under load": ("soak/disasters.py::killed_engine",),
    "a killed API worker, under load": ("soak/disasters.py::killed_worker",),
    "SIGTERM, under load": ("soak/disasters.py::terminated",),
    "four times what queue and slots hold": ("soak/disasters.py::flood",),
}
ENDED = {"soak/disasters.py::terminated"}  # after it there is no server


@pytest.mark.parametrize("place", sorted({place for places in COVERED.values() for place in places}))
def test_each_of_them_is_there_and_sends_a_plain_request_after(place: str) -> None:
    file, _, name = place.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert found, f"{place} is gone"
    called = {node.attr for node in ast.walk(found[0]) if isinstance(node, ast.Attribute)}
    called |= {node.id for node in ast.walk(found[0]) if isinstance(node, ast.Name)}
    assert place in ENDED or called & set(STILL_RIGHT), f"{place} sends no plain request after it"
