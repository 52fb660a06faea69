"""Ready configs by use: what `serve --config` takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from firsttoken.doctor.fit.ask import Ask, Fit, fit, longest_context
from firsttoken.doctor.fit.form import Form
from firsttoken.errors import OutOfMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a server is for."""

    name: str
    text: str  # for the head of the file
    context: int  # tokens wanted
    least: int  # tokens below which the use makes no sense
    max_num_seqs: int | None = None  # None: as the device has it
    port: int = 8000


USES = {
    use.name: use
    for use in (
        Use(name="chat", text="short questions of many people", context=32_768, least=8_192),
        Use(
            name="code",
            text="code and papers: long prompts of a few people",
            context=131_072,
            least=32_768,
            max_num_seqs=16,
        ),
        Use(
            name="long",
            text="the longest contexts, on an instance of its own so that they delay nobody's chat",
            context=262_144,
            least=65_536,
            max_num_seqs=4,
            port=8001,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Profile:
    """A use and the launch that suits it."""

    use: Use
    fit: Fit

    def toml(self) -> str:
        """The config file's text."""
        ask, plan = self.fit.ask, self.fit.plan
        flags = ask.flags
        held = self.fit.sequences(self.fit.context)
        lines = [
            f"# {ask.model} on {ask.device.name}, for {self.use.text}.",
            f"# By `firsttoken fit`: {self.fit.context:,} tokens a sequence, {plan.kv_tokens:,} in the KV cache,",
            f"# which is {held} full sequence{'s' if held > 1 else ''} at once. Run it with",
            "#   firsttoken serve --config THIS_FILE",
            f"model = {json.dumps(ask.model)}",
            f"port = {self.use.port}",
            "enable-prefix-caching = true",
        ]
        return "\n".join([*lines, *(f"{name} = {_value(text)}" for name, text in flags.items())]) + "\n"


def profile(ask: Ask, use: Use, forms: tuple[Form, ...]) -> Profile:
    """The launch for `use`: the ask's own form where that holds enough, else the first of `forms` that does.

    A context and a batch that the ask names are kept. Raises OutOfMemory where no form holds what the use needs.
    """
    least = min(ask.context or use.least, ask.config.context_length)
    for asked in _candidates(ask, use, forms):
        context = longest_context(asked, ask.context or use.context)
        if context is not None and context >= least:
            return Profile(use, fit(replace(asked, context=context)))
    raise OutOfMemory(
        f"{ask.model} on {ask.device.name} holds less than the {least:,} tokens that a server for '{use.name}' needs; "
        "name a smaller context with --context, or another use."
    )


def _candidates(ask: Ask, use: Use, forms: tuple[Form, ...]) -> Iterator[Ask]:
    for form in (ask.form, *forms):
        seqs = ask.max_num_seqs or use.max_num_seqs
        yield replace(ask, form=form, max_num_seqs=None if seqs is None else max(seqs, ask.concurrency))


def _value(text: str) -> str:
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return json.dumps(text)
