"""What can run where an ask cannot: the same with one thing changed, and only if that is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from firsttoken.doctor.fit.ask import Ask, Fit, fit, longest_context
from firsttoken.doctor.fit.form import Form
from firsttoken.doctor.fit.named import by_size
from firsttoken.errors import FirstTokenError
from firsttoken.model import cost

_FORMS = 3  # that are named: what fits in a few bits fits in fewer too


@dataclass(frozen=True, slots=True)
class Change:
    """One change, and the ask that fits by it."""

    text: str
    fit: Fit


def instead(ask: Ask, forms: tuple[Form, ...]) -> list[Change]:
    """The nearest asks that fit, the least change first; empty where nothing helps. `forms` are those to try."""
    found: list[Change] = []
    for text, changed in _changes(ask, forms):
        enough = sum(change.fit.ask.form != ask.form for change in found) >= _FORMS
        if not (enough and changed.form != ask.form) and (answer := _fits(changed)) is not None:
            found.append(Change(text, answer))
    smaller = _smaller_model(ask)
    return found if smaller is None else [*found, smaller]


def roomier(ask: Ask, forms: tuple[Form, ...]) -> list[Fit]:
    """The same ask in each of `forms`."""
    return [answer for form in forms if (answer := _fits(replace(ask, form=form))) is not None]


def _changes(ask: Ask, forms: tuple[Form, ...]) -> Iterator[tuple[str, Ask]]:
    if ask.context is not None:
        context = longest_context(ask, ask.context)
        if context is not None:
            yield f"a context of {context:,} tokens", replace(ask, context=context)
    if ask.concurrency > 1:
        alone = longest_context(replace(ask, concurrency=1), ask.context or 0)
        if alone is not None and alone < (ask.context or 0):
            yield f"one at once, with a context of {alone:,} tokens", replace(ask, concurrency=1, context=alone)
        streams = _most_streams(ask)
        if streams:
            yield f"{streams:,} at once", replace(ask, concurrency=streams)
    for form in forms:
        yield f"fewer bits: {form.name}", replace(ask, form=form)
    if ask.max_num_seqs is None and ask.max_num_batched_tokens is None and ask.device.on_gpu:
        seqs = max(ask.concurrency, 4)
        yield "smaller steps", replace(ask, max_num_seqs=seqs, max_num_batched_tokens=max(1024, seqs))


def _smaller_model(ask: Ask) -> Change | None:
    """The largest of the models known here that is smaller and fits."""
    size = cost.num_parameters(ask.config)
    for name, config in by_size():
        if cost.num_parameters(config) < 0.95 * size:
            answer = _fits(replace(ask, model=name, config=config))
            if answer is not None:
                return Change(f"a smaller model, {name}", answer)
    return None


def _most_streams(ask: Ask) -> int:
    fits, too_many = 0, ask.concurrency
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _fits(replace(ask, concurrency=middle)) is None:
            too_many = middle
        else:
            fits = middle
    return fits


def _fits(ask: Ask) -> Fit | None:
    with suppress(FirstTokenError):
        return fit(ask)
    return None
