"""Offline use: the same engine as the server's, called directly.

with LLM("demo") as llm:
    print(llm.chat([{"role": "user", "content": "Hello!"}])[0].outputs[0].text)
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any, cast

from firsttoken.config import EngineConfig
from firsttoken.detokenizer import Detokenizer
from firsttoken.engine.loader import load
from firsttoken.engine.teacher import Forcing, Scored, force
from firsttoken.errors import ConfigError, InvalidRequest, RequestError
from firsttoken.model.hub import resolve
from firsttoken.stop_strings import StopStrings
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo, FinishReason, GenerateRequest, SamplingParams, SequenceOutput, TokenLogprob

Prompts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
Message = Mapping[str, Any]
Progress = Callable[[int, int], None]  # sequences done, sequences in all

_DEFAULT_MAX_TOKENS = 16  # of `generate` without sampling parameters, as over HTTP


@dataclass(slots=True)
class CompletionOutput:
    """One sequence's answer."""

    index: int
    text: str = ""  # without the end id's and the stop string's text
    token_ids: list[int] = field(default_factory=list)  # all that were generated, an end id too
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] | None = None  # one a token, where asked for


@dataclass(slots=True)
class RequestOutput:
    """One prompt's answers."""

    prompt: str | None  # None where token ids were given
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprob | None] | None = None  # entry 0 is None
    num_cached_tokens: int = 0


class LLM:
    """A loaded model. Close it, or use it as a context manager; one thread may call it at a time."""

    def __init__(
        self,
        model: str = "demo",
        *,
        hub: str = "huggingface",
        revision: str | None = None,
        download_dir: str | None = None,
        chat_template: str | None = None,
        on_load: Callable[[str, float], None] | None = None,
        **options: Any,
    ) -> None:
        """`model`, `hub`, `revision` and `download_dir` are as for `firsttoken serve`; `options` are the other fields
        of `EngineConfig`.

        `on_load` gets each phase of the start and the fraction done. Raises ConfigError, ModelError, DownloadError or
        OutOfMemory, each in one sentence.
        """
        known = {f.name for f in fields(EngineConfig)} - {"model", "path"}
        if unknown := options.keys() - known:
            raise ConfigError(f"LLM has no option {min(unknown)!r}; it has {', '.join(sorted(known))}.")
        weights = options.get("load_format") != "dummy"
        path = str(resolve(model, hub=hub, revision=revision, cache_dir=download_dir, weights=weights))
        self._tokenizer = Tokenizer.load(path, chat_template=chat_template)
        # every prompt of a call is queued at once, however many there are
        config = EngineConfig(**({"max_queue": sys.maxsize} | options), model=model, path=path)
        loaded = load(config, on_load or (lambda phase, fraction: None))
        self._engine, self._runner = loaded.engine, loaded.runner
        self._calls = 0
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        """What was loaded, and how."""
        return self._engine.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """The model's own defaults, from its generation_config."""
        defaults = dict(self.info.default_sampling)
        top_k = int(defaults.pop("top_k", 0))
        return SamplingParams(top_k=max(0, top_k), **cast("dict[str, Any]", defaults))

    def generate(
        self,
        prompts: Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        progress: bool | Progress = False,
    ) -> list[RequestOutput]:
        """Continues each prompt (a text, or token ids) `n` times; outputs are in the prompts' order.

        Without `sampling_params` the model's defaults hold, and 16 tokens. A list gives one set a prompt. `progress`
        shows a line on stderr, or calls back. Raises InvalidRequest where a prompt or a parameter cannot be.
        """
        texts = _as_list(prompts)
        if sampling_params is None:
            defaults = self.get_default_sampling_params()
            sampling_params = replace(defaults, max_tokens=_DEFAULT_MAX_TOKENS)
        limit = self.info.max_model_len
        ids = [self._tokenizer.encode(p, limit=limit) if isinstance(p, str) else list(p) for p in texts]
        names = [p if isinstance(p, str) else None for p in texts]
        return self._run(names, ids, sampling_params, n, progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        progress: bool | Progress = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **template_kwargs: Any,
    ) -> list[RequestOutput]:
        """Answers one conversation, or each of several, through the model's chat template.

        As `generate`, but without `sampling_params` an answer may go on to the context's end. Raises InvalidRequest
        where the template refuses the messages.
        """
        if not messages:
            raise InvalidRequest("There are no messages.", param="messages")
        one = isinstance(messages[0], Mapping)
        conversations = cast("Sequence[Sequence[Message]]", [messages] if one else messages)
        ids = [
            self._tokenizer.encode_chat(
                conversation,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                limit=self.info.max_model_len,
                **template_kwargs,
            )
            for conversation in conversations
        ]
        return self._run([None] * len(ids), ids, sampling_params or self.get_default_sampling_params(), n, progress)

    def force(self, texts: Sequence[Sequence[int]], how: Forcing) -> Generator[Scored]:
        """Teacher forcing: runs known token ids through the model and yields the logits after each of them.

        Use them before the next are asked for. Raises InvalidRequest where a text is empty or too long.
        """
        if self._closed:
            raise ConfigError("This LLM is closed; make a new one.")
        assert not self._engine.has_work
        if not all(0 < len(ids) <= self.info.max_model_len for ids in texts):
            raise InvalidRequest(f"A text must have 1 to {self.info.max_model_len} tokens.")
        most = self._runner.max_num_batched_tokens
        if how.company > self.info.max_num_seqs or how.chunk * how.company > most:
            raise InvalidRequest(f"A step takes up to {self.info.max_num_seqs} texts and {most} tokens.")
        return force(self._runner, self._engine.pool, texts, how)

    def close(self) -> None:
        """Ends the engine's thread. The object is of no use afterwards."""
        if not self._closed:
            self._closed = True
            self._runner.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(
        self,
        names: list[str | None],
        prompts: list[list[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams],
        n: int,
        progress: bool | Progress,
    ) -> list[RequestOutput]:
        if self._closed:
            raise ConfigError("This LLM is closed; make a new one.")
        params = _one_each(sampling_params, len(prompts))
        for each in params:
            _check(each)
        show = _Line() if progress is True else progress or _silent
        self._calls += 1
        results: dict[str, RequestOutput] = {}
        answers: dict[tuple[str, int], _Answer] = {}
        try:
            for i, (ids, name, each) in enumerate(zip(prompts, names, params, strict=True)):
                key = f"{self._calls}-{i}"
                mine = [_Answer(self._tokenizer, each, index) for index in range(n)]
                results[key] = RequestOutput(name, ids, [answer.output for answer in mine])
                answers |= {(key, answer.output.index): answer for answer in mine}
                self._engine.add(GenerateRequest(request_id=key, prompt_token_ids=ids, sampling=each, n=n))
            self._finish(results, answers, show)
        except BaseException:
            for key in results:
                self._engine.abort(key)
            while self._engine.has_work:
                self._engine.step()
            raise
        return list(results.values())

    def _finish(
        self, results: dict[str, RequestOutput], answers: dict[tuple[str, int], _Answer], show: Progress
    ) -> None:
        total = len(answers)
        show(0, total)
        while self._engine.has_work:
            for output in self._engine.step():
                key = output.request_id
                answer = answers.get((key, output.index))
                if answer is None:
                    continue  # a stop string was found while this was in flight
                if output.finish_reason == "error":
                    raise RequestError(output.error or "The engine failed on this request.")
                result = results[key]
                if output.prompt_logprobs is not None:
                    result.prompt_logprobs = output.prompt_logprobs
                if output.index == 0:  # the others find what the first one has just computed
                    result.num_cached_tokens = output.num_cached_tokens
                if answer.take(output):
                    self._engine.stop(key, output.index)
                if answer.output.finish_reason is not None:
                    del answers[key, output.index]
                    show(total - len(answers), total)


class _Answer:
    """One sequence on its way from tokens to text."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, index: int) -> None:
        self.output = CompletionOutput(index, logprobs=None if params.logprobs is None else [])
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(params.stop) if params.stop else None
        self._min_tokens = params.min_tokens  # stop strings count from this token on

    def take(self, step: SequenceOutput) -> bool:
        """Adds one step's tokens. True where a stop string ended the answer and the engine does not know yet."""
        output = self.output
        for i, token_id in enumerate(step.token_ids):
            output.token_ids.append(token_id)
            if output.logprobs is not None and step.logprobs is not None:
                output.logprobs.append(step.logprobs[i])
            if step.stop_token_id is not None and i == len(step.token_ids) - 1:
                break  # the end id is counted and not shown
            self._add(self._detokenizer.push((token_id,)))
            if self._stops is not None and self._stops.matched is not None:
                output.finish_reason = "stop"
                return step.finish_reason is None
        if step.finish_reason is not None:
            self._add(self._detokenizer.finish())
            if self._stops is not None:
                output.text += self._stops.finish()
            matched = self._stops is not None and self._stops.matched is not None
            output.finish_reason = "stop" if matched else step.finish_reason
        return False

    def _add(self, text: str) -> None:
        if self._stops is not None and len(self.output.token_ids) >= self._min_tokens:
            text = self._stops.push(text)
        self.output.text += text


class _Line:
    """Progress on one line of stderr."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        end = "\n" if done == total else ""
        with suppress(OSError):
            sys.stderr.write(f"\r{done} of {total} sequences, {time.monotonic() - self._start:.1f} s{end}")
            sys.stderr.flush()


def _silent(done: int, total: int) -> None:
    return


def _as_list(prompts: Prompts) -> list[str | Sequence[int]]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [cast("Sequence[int]", prompts)]
    return list(cast("Sequence[str | Sequence[int]]", prompts))


def _one_each(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise InvalidRequest(
            f"There are {count} prompts and {len(params)} sets of sampling parameters; give one, or one a prompt.",
            param="sampling_params",
        )
    return list(params)


def _check(params: SamplingParams) -> None:
    """What the server checks in its schema. Raises InvalidRequest naming the field."""
    rules: tuple[tuple[str, bool, str], ...] = (
        ("temperature", params.temperature >= 0, "at least 0"),
        ("top_p", 0 < params.top_p <= 1, "above 0 and at most 1"),
        ("min_p", 0 <= params.min_p <= 1, "between 0 and 1"),
        ("repetition_penalty", params.repetition_penalty > 0, "above 0"),
        ("top_k", params.top_k >= 0, "at least 0 (0 is off)"),
        ("min_tokens", params.min_tokens >= 0, "at least 0"),
        ("logprobs", (params.logprobs or 0) >= 0, "at least 0"),
        ("prompt_logprobs", (params.prompt_logprobs or 0) >= 0, "at least 0"),
        ("stop", "" not in params.stop and not isinstance(params.stop, str), "a tuple of strings that are not empty"),
        ("logit_bias", all(map(math.isfinite, params.logit_bias.values())), "finite numbers"),
    )
    for name, holds, expected in rules:
        if not holds:
            raise InvalidRequest(f"{name} must be {expected}, not {getattr(params, name)!r}.", param=name)
    for name in ("temperature", "presence_penalty", "frequency_penalty", "repetition_penalty"):
        if not math.isfinite(getattr(params, name)):
            raise InvalidRequest(f"{name} must be a finite number, not {getattr(params, name)!r}.", param=name)
