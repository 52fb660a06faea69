"""Fields of OpenAI's and vLLM's APIs that this server knows and does not honour.

Each has values that change nothing, so clients that always send them work; any other value is refused by name, because
an answer that silently ignores what was asked for is a wrong one. null is neutral everywhere.
"""

from __future__ import annotations

from typing import Any

from firsttoken.errors import InvalidRequest

Neutral = tuple[Any, ...]  # () is: null alone
ANYTHING: Neutral = (object(),)  # it cannot change an answer here

_SHARED: dict[str, Neutral] = {
    "user": ANYTHING,
    "detokenize": (True,),
    "guided_decoding_backend": ANYTHING,
    "kv_transfer_params": (),
    "length_penalty": (1.0, 1),
    "logits_processors": ([],),
    "repetition_detection": (),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
}

CHAT: dict[str, Neutral] = _SHARED | {
    "add_special_tokens": (False,),
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "metadata": ANYTHING,
    "modalities": (["text"],),
    "moderation": (),
    "mm_processor_kwargs": ({},),
    "prediction": (),
    "prompt_cache_key": ANYTHING,
    "prompt_cache_options": ({},),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "reasoning_effort": ("none",),
    "safety_identifier": ANYTHING,
    "service_tier": ("auto", "default"),
    "store": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}

COMPLETIONS: dict[str, Neutral] = _SHARED | {"suffix": ("",)}

# Of chat completions: the APIs that are translated to it have names or forms of their own for these, or none.
_OF_CHAT: dict[str, Neutral] = {
    "add_generation_prompt": (True,),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "logprobs": (False,),
    "max_completion_tokens": (),
    "n": (1,),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "structured_outputs": (),
}

RESPONSES: dict[str, Neutral] = (
    _SHARED
    | _OF_CHAT
    | {
        "access_programs": (),
        "background": (False,),
        "background_options": (),
        "context_management": ([],),
        "conversation": (),
        "image": (),
        "max_tokens": (),
        "messages": (),
        "moderation": (),
        "previous_response_id": (),
        "prompt": (),
        "prompt_cache_options": ({},),
        "prompt_cache_retention": ("in_memory", "in-memory"),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "stream_options": ({}, {"include_obfuscation": False}),
    }
)

RESPONSES_ITEM: dict[str, Neutral] = {
    "annotations": ANYTHING,
    "async": (False,),
    "caller": ({"type": "direct"},),
    "encrypted_content": ANYTHING,
    "id": ANYTHING,
    "namespace": (),
    "phase": ANYTHING,
    "status": ANYTHING,
    "summary": ANYTHING,
}

RESPONSES_TOOL: dict[str, Neutral] = {
    "allowed_callers": (["direct"],),
    "async": (False,),
    "defer_loading": (False,),
    "output_schema": (),
}

RESPONSES_TEXT: dict[str, Neutral] = {"verbosity": ("medium",)}

RESPONSES_REASONING: dict[str, Neutral] = {
    "context": ("auto",),
    "generate_summary": ("auto",),
    "mode": (),
    "summary": ("auto",),
}

MESSAGES: dict[str, Neutral] = (
    _SHARED
    | _OF_CHAT
    | {
        "cache_control": ANYTHING,  # every prompt is cached
        "container": (),
        "context_management": ({}, {"edits": []}),
        "diagnostics": (),
        "inference_geo": (),
        "mcp_servers": ([],),
        "parallel_tool_calls": (True,),
        "metadata": ANYTHING,
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
        "user_profile_id": ANYTHING,
        "workspace_id": ANYTHING,
    }
)

COUNT_TOKENS: dict[str, Neutral] = {
    name: MESSAGES[name] for name in ("cache_control", "container", "context_management", "mcp_servers", "speed")
}

MESSAGES_TOOL: dict[str, Neutral] = {
    "allowed_callers": (["direct"],),
    "cache_control": ANYTHING,
    "defer_loading": (False,),
    "eager_input_streaming": ANYTHING,  # arguments are streamed as they come
    "input_examples": ([],),
}

MESSAGES_THINKING: dict[str, Neutral] = {"budget_tokens": (), "display": ("summarized",)}

MESSAGES_OUTPUT: dict[str, Neutral] = {"effort": ("high",)}

TOKENIZE: dict[str, Neutral] = {"chat_template": (), "mm_processor_kwargs": ({},)}

MESSAGE: dict[str, Neutral] = {
    "annotations": ANYTHING,
    "audio": (),
    "function_call": (),
    "parsed": ANYTHING,
}

STRUCTURED_OUTPUTS: dict[str, Neutral] = {
    "disable_additional_properties": (False,),
    "disable_fallback": ANYTHING,
    "structural_tag": (),
}

RESPONSE_FORMAT: dict[str, Neutral] = {"structural_tag": (), "structures": (), "triggers": ()}

STREAM_OPTIONS: dict[str, Neutral] = {"include_obfuscation": (False,)}


_INSTEAD = {"functions": "tools", "function_call": "tool_choice"}


def is_neutral(value: Any, neutral: Neutral) -> bool:
    if value is None or neutral is ANYTHING:
        return True
    return any(type(value) is type(same) and value == same for same in neutral)


def refuse_unsupported(fields: dict[str, Any], known: dict[str, Neutral], prefix: str = "") -> list[str]:
    """Names of the fields that nobody knows. Raises InvalidRequest for a known field whose value matters."""
    unknown: list[str] = []
    for name, value in fields.items():
        neutral = known.get(name)
        if neutral is None:
            unknown.append(prefix + name)
        elif not is_neutral(value, neutral):
            advice = f"use '{_INSTEAD[name]}'" if name in _INSTEAD else "leave it out"
            raise InvalidRequest(
                f"'{prefix}{name}' is not supported by this server with the value given; {advice}.",
                param=prefix + name,
                code="unsupported_parameter",
            )
    return unknown
