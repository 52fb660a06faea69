"""The chat page's own Python environment. Chainlit brings a hundred packages with limits of their own; none of them may
come near the server's."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from firsttoken.cache import cache_folder
from firsttoken.errors import FirstTokenError

_AGAIN = "run `firsttoken ui --setup` again"
_NEEDED = 600 << 20  # bytes: 180 MiB of packages, their downloads, and room to unpack
_NO_NETWORK = re.compile(
    r"name resolution|resolve host|NewConnectionError|ConnectTimeout|Max retries|Network is unreachable"
    r"|Connection (refused|reset|aborted)|Read timed out|ProxyError|IncompleteRead|SSLError",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"(?:Collecting|Downloading|Building wheel for|Installing collected packages)\s*:?\s*([\w.-]+)")


class PageSetupFailed(FirstTokenError):
    """The page's environment cannot be made."""


def page_environment(environment: Mapping[str, str] = os.environ) -> PageEnvironment:
    """The one of this user and this Python, under the cache folder; it may not be made yet."""
    requirements = files("firsttoken.chat.page").joinpath("requirements.txt").read_text(encoding="utf-8").split()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return PageEnvironment(cache_folder(environment) / f"page-python{version}", requirements)


class PageEnvironment:
    """A virtual environment that holds `requirements`, and no part of firsttoken: the page's code is lent to it."""

    def __init__(self, folder: Path, requirements: Sequence[str], *, python: str = sys.executable) -> None:
        """`python` is what it is made from."""
        self.folder = folder
        self._requirements = list(requirements)
        self._from = python
        self._stamp = folder / "complete"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Whether it was completed with what is required now; one that was cut short is not."""
        try:
            return self._stamp.read_text().split() == self._requirements and self.python.exists()
        except OSError:
            return False

    def variables(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What a process in it runs under: it sees its own packages and this firsttoken, and nothing else of ours."""
        package = Path(str(files("firsttoken")))
        lent = self.folder / "lent" / hashlib.sha256(bytes(package)).hexdigest()[:12]
        lent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (lent / package.name).symlink_to(package)
        kept = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
        return kept | {"PYTHONPATH": str(lent)}

    def make(self, progress: Callable[[str], None]) -> None:
        """Makes it anew; `progress` hears what is being done. Raises PageSetupFailed with one sentence.

        Of two that begin together, the second waits for the first. pip's own settings are honoured.
        """
        with self._alone(progress):
            if self.is_ready:
                return
            self._check_disk()
            progress("environment")
            self._run([self._from, "-P", "-m", "venv", "--clear", str(self.folder)], progress)
            pip = [str(self.python), "-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
            self._run([*pip, "--progress-bar", "off", "--retries", "2", *self._requirements], progress)
            self._stamp.write_text("\n".join(self._requirements))

    def _run(self, command: list[str], progress: Callable[[str], None]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        last: list[str] = []
        # Its own group: Ctrl-C is for us, and we end it.
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env=environment, process_group=0,
        ) as process:  # fmt: skip
            try:
                assert process.stdout
                for line in process.stdout:
                    last = [*last[-40:], line.strip()]
                    if found := _PACKAGE.match(line.strip()):
                        progress(found[1])
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise PageSetupFailed(_why("\n".join(last)))

    def _check_disk(self) -> None:
        free = shutil.disk_usage(self.folder.parent).free
        if free < _NEEDED:
            raise PageSetupFailed(
                f"The chat page needs {_NEEDED >> 20} MiB of disk at {self.folder.parent} and {free >> 20} MiB are "
                f"free; make room, or set FIRSTTOKEN_CACHE to another folder, and {_AGAIN}."
            )

    @contextmanager
    def _alone(self, progress: Callable[[str], None]) -> Iterator[None]:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock = self.folder.with_name(self.folder.name + ".lock").open("w")
        except OSError as error:
            raise PageSetupFailed(
                f"{self.folder.parent} cannot be written ({error.strerror}); set FIRSTTOKEN_CACHE to a folder that can."
            ) from None
        with lock:  # its end, or our death, gives it back
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("waiting for another set-up")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _why(output: str) -> str:
    """One sentence for what venv or pip said."""
    if "ensurepip" in output:
        return (
            "This Python lacks its venv module; install it (on Debian and Ubuntu: sudo apt install python3-venv) "
            f"and {_AGAIN}."
        )
    if "No space left" in output:
        return f"The disk is full; make room and {_AGAIN}."
    if _NO_NETWORK.search(output):
        return (
            "The package index does not answer, and the chat page needs Chainlit from it; check the network, or name "
            f"a mirror in PIP_INDEX_URL, and {_AGAIN}."
        )
    words = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines()[-1:]
    return f"The chat page's packages could not be installed: {' '.join(words) or 'pip said nothing'}"


def set_up(environment: PageEnvironment) -> None:
    """Makes the environment where it is missing, with one line of progress on the terminal."""
    if environment.is_ready:
        return
    from rich.console import Console

    from firsttoken.cli.supervisor import stop_signals_raise

    console = Console(stderr=True, highlight=False)
    note = "The chat page is set up once: Chainlit and what it needs, about 40 MB to download, 180 MB on disk"
    console.print(note, soft_wrap=True)
    with stop_signals_raise(), console.status("environment") as status:  # which shows nothing outside a terminal
        environment.make(lambda step: status.update(step))
    console.print(f"The chat page is set up in {environment.folder}.", soft_wrap=True)
