"""A wheel from pip's own package index, going on where an earlier download stopped: pip itself begins again."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

_JSON = "application/vnd.pypi.simple.v1+json"
# pip has no public word for the index it asks when nobody configured one; should this one change, pip downloads itself
_PIPS_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_FOR_PIP_ALONE = ("no-index", "find-links", "cert", "client-cert", "proxy", "trusted-host")  # settings of its transport


@dataclass(frozen=True, slots=True)
class Wheel:
    name: str
    url: str
    sha256: str | None


def fetch_from_index(requirement: str, folder: Path, kept: Path, settings: Callable[[], Mapping[str, str]]) -> bool:
    """Puts the wheel of "name==version" into `folder`; what an interruption leaves waits in `kept`.

    False where the index is not one that can be asked like this, or does not answer: then it is pip's turn. Raises
    DownloadError where the content is wrong, OSError.
    """
    import httpx

    from firsttoken.model.resumable import fetch_resumable

    index = index_url(settings())
    if index is None:
        return False
    try:
        wheel = find_wheel(index, requirement)
        if wheel is None:
            return False
        fetch_resumable(wheel.url, kept / wheel.name, size=None, sha256=wheel.sha256)
    except httpx.HTTPError:
        return False
    (kept / wheel.name).replace(folder / wheel.name)
    return True


def pip_settings() -> dict[str, str]:
    """pip's settings for `download` from its files and the environment, and its own index where they name none."""
    listed = _said("-m", "pip", "config", "list", "--disable-pip-version-check")
    if listed is None:
        return {"no-index": "1"}
    settings = read_settings(listed)
    if "index-url" not in settings and (default := _said("-c", _PIPS_DEFAULT)):
        settings["index-url"] = default.strip()
    return settings


def _said(*arguments: str) -> str | None:
    """What this Python prints; None where it fails."""
    done = subprocess.run([sys.executable, "-P", *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def read_settings(listed: str) -> dict[str, str]:
    """From the lines of `pip config list`; the environment wins over the command's section, that one over "global"."""
    settings: dict[str, str] = {}
    for section in ("global", "download", ":env:"):
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}.") and value:
                settings[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return settings


def index_url(settings: Mapping[str, str]) -> str | None:
    """The index that pip would ask, where it is a plain one."""
    if any(name in settings for name in _FOR_PIP_ALONE):
        return None
    url = settings.get("index-url", "")
    return url.rstrip("/") if url.startswith(("https://", "http://")) else None


def find_wheel(index: str, requirement: str) -> Wheel | None:
    """The wheel for any machine of "name==version", as the index lists it. Raises httpx.HTTPError."""
    import httpx

    name, _, version = requirement.partition("==")
    page = f"{index}/{re.sub(r'[-_.]+', '-', name).lower()}/"
    response = httpx.get(
        page,
        headers={"Accept": f"{_JSON}, text/html;q=0.1"},
        follow_redirects=True,
        timeout=httpx.Timeout(30, connect=10),
    )
    response.raise_for_status()
    wanted = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}-"
    is_json = response.headers.get("content-type", "").startswith(_JSON)
    listed = _json_files(response.text) if is_json else _html_files(response.text)
    for file, link, sha256 in listed:
        if file.lower().startswith(wanted) and file.endswith("-none-any.whl"):
            return Wheel(file, urljoin(str(response.url), link), sha256)
    return None


def _json_files(text: str) -> Iterator[tuple[str, str, str | None]]:
    for file in json.loads(text)["files"]:
        yield file["filename"], file["url"], file["hashes"].get("sha256")


def _html_files(text: str) -> Iterator[tuple[str, str, str | None]]:
    links = _Links()
    links.feed(text)
    for link in links.found:
        address, fragment = urldefrag(link)
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        yield address.rpartition("/")[2], address, digest


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]
