"""Whether a late arrival met what it was meant to meet: streams that were all decoding."""

from __future__ import annotations

from firsttoken.bench.records import Check, RunResult, ScenarioResult


def judge_arrivals(scenario: ScenarioResult, run: RunResult) -> list[Check]:
    """A check of scenarios whose requests are of the groups "background" and "arrival"; nothing for others."""
    records = [record for record in scenario.records if record.phase == "measured" and record.error is None]
    streams = [record for record in records if record.group == "background"]
    arrivals = [record for record in records if record.group == "arrival"]
    if not streams or not arrivals:
        return []
    at = min(record.sent for record in arrivals)
    met = sum(record.chunks[0].at <= at <= record.chunks[-1].at for record in streams if record.chunks)
    if met == len(streams):
        return [Check(name="arrival", level="ok", text=f"All {met} streams were decoding when the long prompt came.")]
    text = (
        f"Only {met} of {len(streams)} streams were decoding when the long prompt came: the server did not run all of "
        "them at once (lower --concurrency), or their answers are too short (raise --output-len)."
    )
    return [Check(name="arrival", level="fail" if met == 0 else "flag", text=text)]
