"""Reasons not to believe a scenario's figures, looked for in its own records. One sentence each, with the numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from firsttoken.bench.metrics import ttft
from firsttoken.bench.records import STOPPED, Cache, Check, Level, RequestRecord, ScenarioResult

# The client: shares of its ceiling in its busiest second, and how late its event loop may be.
BUSY_FLAG, BUSY_FAIL = 0.5, 0.8
LATE_FLAG = 0.05  # seconds
# The schedule: how late sends may be, in seconds or as a share of the median TTFT.
LAG_FLAG, LAG_FLAG_SHARE = 0.005, 0.1
LAG_FAIL = 0.25
# The cache: tokens of a cold prompt that may be found (a template's beginning), and what reuse must find of a history.
COLD_TOKENS, COLD_SHARE = 64, 0.02
REUSED_SHARE = 0.5
# The warm-up: how much slower than later ones the first requests may be, in share and in seconds.
WARM_SHARE, WARM_SECONDS = 1.5, 0.005
ERRORS_FAIL = 0.01


def check_scenario(
    result: ScenarioResult,
    *,
    cache: Cache = "any",
    client_ceiling: float | None = None,
    late: float = 0.0,
) -> list[Check]:
    """Every check that the records allow. `client_ceiling` in chunks a second; `late` in seconds."""
    records = [r for r in result.records if r.phase == "measured" and r.error != STOPPED]
    if not records:
        return [_check("errors", "fail", "not one request was measured")]
    good = [record for record in records if record.error is None]
    checks = [check_errors(records)]
    if not good:
        return checks
    checks.append(check_client(good, client_ceiling, late))
    if result.load.open:
        checks.append(check_schedule(records))
    checks += check_prompt_tokens(good)
    checks += check_output_tokens(good)
    checks += check_cache(good, cache)
    checks.append(check_warm_up(good, result))
    return checks


def _check(name: str, level: Level, text: str) -> Check:
    return Check(name=name, level=level, text=f"{text[0].upper()}{text[1:].rstrip('.')}.")


def check_errors(records: Sequence[RequestRecord]) -> Check:
    """Server errors, refused connections, streams that broke."""
    errors = Counter(record.error for record in records if record.error is not None)
    if not errors:
        return _check("errors", "ok", f"all {len(records)} requests were answered")
    failed = errors.total()
    level: Level = "fail" if failed > ERRORS_FAIL * len(records) else "flag"
    text, times = errors.most_common(1)[0]
    return _check("errors", level, f"{failed} of {len(records)} requests failed, {times} of them with: {text}")


def check_client(records: Sequence[RequestRecord], ceiling: float | None, late: float) -> Check:
    """Whether the client itself was the limit."""
    seconds = Counter(int(chunk.at) for record in records for chunk in record.chunks)
    busiest = max(seconds.values(), default=0)
    if late > LATE_FLAG:
        return _check(
            "client",
            "flag",
            f"a client process was held up for {late * 1000:.0f} ms at worst: times of chunks may be late by as much, "
            "so give the client cores of its own",
        )
    if ceiling is None:
        return _check("client", "flag", "the client's own ceiling was not measured")
    share = busiest / ceiling
    text = f"{busiest:,} chunks in the busiest second, {share:.0%} of the {ceiling:,.0f} that this client can take"
    if share > BUSY_FAIL:
        return _check("client", "fail", f"the client was the limit: {text}; give it more --processes")
    return _check("client", "flag" if share > BUSY_FLAG else "ok", text)


def check_schedule(records: Sequence[RequestRecord]) -> Check:
    """Whether an open loop's requests went out when they were due."""
    lags = sorted(r.sent - r.intended for r in records if r.intended is not None)
    if not lags:
        return _check("schedule", "flag", "no request carries the time at which it was due")
    worst = lags[-1]
    waits = [wait for record in records if record.error is None and (wait := ttft(record)) is not None]
    allowed = max(LAG_FLAG, LAG_FLAG_SHARE * statistics.median(waits)) if waits else LAG_FLAG
    text = f"requests went out {statistics.median(lags) * 1000:.1f} ms after they were due, {worst * 1000:.1f} at worst"
    if worst > LAG_FAIL:
        return _check("schedule", "fail", f"{text}: the client could not keep the schedule; give it more --processes")
    return _check("schedule", "flag" if worst > allowed else "ok", text)


def check_prompt_tokens(records: Sequence[RequestRecord]) -> list[Check]:
    """Whether prompts had the length that was asked for, by the server's own count."""
    meant = [record for record in records if record.prompt_tokens_intended is not None]
    if not meant:
        return []
    counted = [r for r in meant if r.prompt_tokens is not None]
    if not counted:
        return [_check("prompt-tokens", "flag", "the server sent no usage, so prompt lengths are not verified")]
    off = [(r.prompt_tokens or 0) - (r.prompt_tokens_intended or 0) for r in counted]
    wrong = [difference for difference in off if difference]
    if not wrong:
        return [_check("prompt-tokens", "ok", f"all {len(counted)} prompts had the intended number of tokens")]
    worst = max(wrong, key=abs)
    share = max(abs(d) / (r.prompt_tokens_intended or 1) for d, r in zip(off, counted, strict=True))
    text = f"{len(wrong)} of {len(counted)} prompts had another length than intended, at worst by {worst:+d} tokens"
    return [_check("prompt-tokens", "fail" if share > 0.01 else "flag", text)]


def check_output_tokens(records: Sequence[RequestRecord]) -> list[Check]:
    """Whether answers had the length that was asked for, and whether chunks and usage agree."""
    if all(record.completion_tokens is None for record in records):
        early = [r for r in records if r.ignore_eos and r.finish_reason not in ("length", None)]
        if early:
            text = f"the server sent no usage, and {len(early)} of {len(records)} answers ended before their length"
            return [_check("output-tokens", "flag", f"{text}: it does not know ignore_eos")]
        known = all(record.token_source == "asked" for record in records)
        how = "are those asked for, as every answer ended by its length" if known else "are counted chunk by chunk"
        text = f"the server sent no usage, so output tokens {how}"
        return [_check("output-tokens", "flag", text)]
    due = [r for r in records if r.ignore_eos and r.max_tokens is not None and r.completion_tokens is not None]
    short = [r for r in due if r.completion_tokens != r.max_tokens]
    if short:
        lengths = [r.completion_tokens or 0 for r in short]
        text = (
            f"{len(short)} of {len(due)} answers did not have the {short[0].max_tokens} tokens that were asked for "
            f"({min(lengths)} to {max(lengths)}): the server ignores ignore_eos, or its context was full"
        )
        return [_check("output-tokens", "fail", text)]
    # An end token is in the usage and has no text; beyond that the two counts are the same tokens.
    own = [r for r in records if r.token_source in ("server", "tokenizer") and r.completion_tokens is not None]
    differ = [r for r in own if not -1 <= sum(c.tokens for c in r.chunks) - (r.completion_tokens or 0) <= 0]
    if differ:
        text = f"in {len(differ)} of {len(own)} answers the chunks' tokens do not add up to the usage's"
        return [_check("output-tokens", "flag", text)]
    silent = [r for r in records if not r.chunks and (r.completion_tokens or 0) > 1]
    if silent:
        text = f"{len(silent)} of {len(records)} answers had tokens but not one chunk with text: they have no TTFT"
        return [_check("output-tokens", "flag", text)]
    said = f"all {len(due)} answers had the length asked for" if due else "the server's usage counts every answer"
    return [_check("output-tokens", "ok", said)]


def check_cache(records: Sequence[RequestRecord], cache: Cache) -> list[Check]:
    """Whether the prefix cache held what the scenario means it to hold."""
    if cache == "any":
        return []
    told = [r for r in records if r.cached_tokens is not None and r.prompt_tokens]
    if not told:
        text = "the server does not say how many prompt tokens it took from its cache, so that is not verified"
        return [_check("cache", "flag", text)]
    if cache == "cold":
        warm = [r for r in told if (r.cached_tokens or 0) > COLD_TOKENS + COLD_SHARE * (r.prompt_tokens or 0)]
        if warm:
            most = max(r.cached_tokens or 0 for r in warm)
            text = (
                f"{len(warm)} of {len(told)} prompts should be new but were found in the cache, up to {most:,} tokens"
            )
            return [_check("cache", "fail", text)]
        return [_check("cache", "ok", "no prompt was found in the prefix cache, as intended")]
    before = {(r.stream, r.client, r.id.rsplit("/", 1)[0], r.turn): r.prompt_tokens or 0 for r in told}
    found: list[float] = []
    for r in told:
        history = before.get((r.stream, r.client, r.id.rsplit("/", 1)[0], r.turn - 1))
        if history:
            found.append(min((r.cached_tokens or 0) / history, 1.0))
    if not found:  # no dialogues: prompts share a prefix
        share = sum(r.cached_tokens or 0 for r in told) / sum(r.prompt_tokens or 0 for r in told)
        text = f"{share:.0%} of the prompts' tokens came from the prefix cache"
        return [_check("cache", "ok" if share > 0 else "flag", text)]
    share = statistics.fmean(found)
    text = f"later turns found {share:.0%} of the turn before in the prefix cache"
    return [_check("cache", "ok" if share >= REUSED_SHARE else "flag", text)]


def check_warm_up(records: Sequence[RequestRecord], result: ScenarioResult) -> Check:
    """Whether the first measured requests were slower than later ones: compiling, growing clocks, cold caches.

    Requests that start together wait for one another, so the first of a closed loop with n slots are n requests.
    """
    waits = [(r.sent, wait) for r in records if r.turn == 0 and (wait := ttft(r)) is not None]
    ordered = [wait for _, wait in sorted(waits)]
    slots = result.load.concurrency or 1
    if slots > 1:
        ordered = ordered[slots:]
    first = max(1, len(ordered) // 5)
    early, later = ordered[:first], ordered[first:]
    if len(later) < 3:
        level: Level = "ok" if result.load.warm_up else "flag"
        return _check("warm-up", level, f"too few requests for a trend, after {result.load.warm_up} of warm-up")
    now, then = statistics.median(early), statistics.median(later)
    text = f"TTFT of the first {first} was {now * 1000:.1f} ms, of those after them {then * 1000:.1f} ms"
    if now > WARM_SHARE * then and now - then > WARM_SECONDS:
        return _check("warm-up", "flag", f"the server was still warming up: {text}; raise the warm-up")
    return _check("warm-up", "ok", text)
