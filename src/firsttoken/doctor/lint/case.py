"""One command as the checks see it: which program it starts, with what, inside what."""

from __future__ import annotations

from dataclasses import dataclass, field

from firsttoken.doctor.lint.finding import Edit, Finding, Level
from firsttoken.doctor.lint.launch import Launch
from firsttoken.doctor.lint.shell import join
from firsttoken.doctor.lint.unwrap import Container

_WITH_MODEL = {"serve", "chat", "ui", "pull", "fit"}  # commands of firsttoken whose word is a model


@dataclass(slots=True, kw_only=True)
class Case:
    """A command without its wrappers. `launch` is there where it starts a server whose flags are known."""

    program: str  # vllm, sglang, firsttoken, or the program's own name
    words: list[str]
    variables: dict[str, str] = field(default_factory=dict)  # that this command sets, wrappers' too
    exported: dict[str, str] = field(default_factory=dict)  # of the lines before
    launch: Launch | None = None
    container: Container | None = None
    line: int = 0
    trouble: str = ""  # with the name of a command of this program
    trouble_at: int = 0  # that name's place in the words
    raw: str = ""  # as written, with redirections
    text: str = field(init=False)  # the words as one line

    def __post_init__(self) -> None:
        self.text = join(self.words)

    @property
    def environment(self) -> dict[str, str]:
        return self.exported | self.variables

    @property
    def model(self) -> str | None:
        if self.program == "firsttoken" and not _WITH_MODEL & set(self.words[:4]):
            return None
        return self.launch.model if self.launch else None

    def finding(
        self,
        rule: str,
        level: Level,
        what: str,
        why: str,
        edits: tuple[Edit, ...] = (),
        *,
        source: str,
        outer: tuple[str, ...] = (),
    ) -> Finding:
        """One that its edits, or the container's flags, cure whole; without either it is not cured."""
        return Finding(
            rule=rule, level=level, what=what, why=why, source=source, line=self.line, edits=edits, outer=outer,
            whole=bool(edits or outer),
        )  # fmt: skip
