"""Nouns that every part shares. Standard library only: API workers and the CLI import this first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What an answer must look like. Checked and bounded where the request came in; compiled by the engine."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "lark"]
    source: str  # the schema's JSON, the expression, a JSON list of strings, the grammar; "" for json_object
    whitespace: str | None = None  # of JSON: what may stand where it allows whitespace; "" nothing, None the default
    around: str = ""  # a Lark grammar that names this one @answer, as for thoughts before it; "" nothing
    lenient: bool = False  # a schema's keywords that cannot be enforced are ignored, not refused


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen and when a sequence ends. Values are already validated and clamped.

    The defaults are neutral: they change nothing about the model's own distribution. The model's
    `generation_config` supplies other defaults one level up (server, `LLM`).
    """

    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 is off
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None  # None: the engine draws one at admission
    repetition_penalty: float = 1.0  # over prompt and output, as in CTRL (arXiv:1909.05858)
    presence_penalty: float = 0.0  # over output only, as in OpenAI's API
    frequency_penalty: float = 0.0  # over output only
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()  # no other id is ever chosen; empty: any may be
    bad_words: tuple[tuple[int, ...], ...] = ()  # runs of ids that the output never completes
    max_tokens: int | None = None  # None: up to the context's end
    min_tokens: int = 0  # end ids and stop_token_ids are masked until then
    stop: tuple[str, ...] = ()  # matched on text by the detokeniser, never by the engine
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # None: none; 0: the chosen token's; k: and the k likeliest
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None  # every token keeps to it


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt to run `n` times. `request_id` is internal, unique and made by the server."""

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    n: int = 1  # sequences; sequence i samples with seed + i; the prompt is computed once
    priority: int = 0  # lower runs first, as in vLLM
    cache_salt: str | None = None  # prefix blocks are shared only within one salt
    arrival: float = 0.0  # time.monotonic() when the request reached the API worker (one clock per host)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probabilities at one position, natural log, of the model's own distribution before temperature."""

    token_id: int
    logprob: float
    rank: int  # 1 is the likeliest
    top: list[tuple[int, float]]  # the k likeliest as (token id, logprob), best first


@dataclass(slots=True, kw_only=True)
class SequenceOutput:
    """What one step gave one sequence."""

    request_id: str
    index: int  # which of the request's n sequences
    token_ids: list[int]  # new tokens of this step, in order; may be empty on the last message
    logprobs: list[TokenLogprob] | None = None  # one a token when asked for
    prompt_logprobs: list[TokenLogprob | None] | None = None  # once, of index 0 with its first token; entry 0 is None
    num_cached_tokens: int = 0  # prompt tokens taken from the prefix cache
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None  # the end or stop id that finished it; it is the last of token_ids
    error: str | None = None  # with finish_reason "error": one sentence for the user


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine says of itself once it is ready; the server's limits and defaults come from here."""

    model: str  # the name users know it by (repository, path, or "demo")
    architecture: str  # "Qwen3ForCausalLM", ...
    device: str  # "cpu", "cuda:0"
    device_name: str
    dtype: str  # of activations
    weights: str  # "bf16", "float32", "Q4_1 (kept) + int8 activations", ...
    attention: str  # the kernel chosen
    max_model_len: int  # tokens, prompt and output together
    vocab_size: int  # rows of the output matrix
    token_id_limit: int  # ids from here up are padding and are never sampled nor accepted
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    default_sampling: dict[str, float]  # from generation_config: temperature, top_k, top_p, min_p, ...
    block_size: int  # tokens a KV block
    num_blocks: int
    max_num_seqs: int
    kv_bytes_per_token: int
    weight_bytes: int  # read once a decode step
    phases: dict[str, float]  # start-up seconds by phase
    kv_dtype: str = ""  # of the cache where it is not that of activations
    kv_note: str = ""  # whose scales such a cache has, or why it is not what the checkpoint declares
