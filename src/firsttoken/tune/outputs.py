"""The files that a session leaves: result, config for `serve --config`, and the page."""

from __future__ import annotations

from pathlib import Path

from firsttoken.tune.records import Tuned, save

RESULT = "result.json"


def write_outputs(folder: Path, tuned: Tuned) -> list[Path]:
    """Writes them and says which. The journal and the runs are there already."""
    from firsttoken.tune.report import write_report

    result, config, page = folder / RESULT, folder / tuned.config_name, folder / "report.html"
    save(result, tuned)
    config.write_text(tuned.config, encoding="utf-8")
    write_report(page, tuned)
    return [config, page, result]
