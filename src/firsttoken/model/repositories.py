"""What a hub of models must do, and which files of a repository are ever fetched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

from firsttoken.errors import ModelError
from firsttoken.model.downloads import Progress, RemoteFile

_WANTED = ("*.safetensors", "*.json", "*.jinja")  # never *.bin, *.pt or *.py: no pickle, no remote code
_UNWANTED = ("*/*", "consolidated*")  # other forms of the same weights


class Repository(Protocol):
    """A place that has models by name. Every method raises DownloadError in one sentence."""

    name: str

    def cached(self, repo: str, revision: str | None, file: str, cache: Path | None) -> Path | None:
        """This file of an earlier, perhaps partial, download; asks no network."""

    def files(self, repo: str, revision: str | None) -> list[RemoteFile]:
        """Everything in the repository."""

    def fetch(
        self, repo: str, revision: str | None, files: Sequence[RemoteFile], cache: Path | None, show: Progress
    ) -> Path:
        """Fetches these files, going on where an earlier try stopped, and returns their folder."""


def fetch_model(
    repository: Repository,
    repo: str,
    *,
    revision: str | None,
    gguf: str | None,
    cache: Path | None,
    progress: Progress,
    refresh: bool = False,
    weights: bool = True,
) -> Path:
    """A repository's model as a local folder, or one named GGUF file of it. A whole earlier download needs no network.

    `refresh` looks for a newer version all the same. Without `weights` no weight file is fetched, for a model whose
    weights are made up; a GGUF file, which holds the config too, is. Raises DownloadError or ModelError.
    """
    if not refresh:
        file = repository.cached(repo, revision, gguf or "config.json", cache)
        if file is not None and gguf:
            return file
        if file is not None and is_complete(file.parent, weights=weights):
            return file.parent
    available = repository.files(repo, revision)
    chosen = [file for file in available if file.name == gguf] if gguf else wanted(available)
    _refuse_unusable(repository.name, repo, gguf, available, chosen)
    if not weights:
        chosen = [file for file in chosen if not file.name.endswith(".safetensors")]
    folder = repository.fetch(repo, revision, chosen, cache, progress)
    return folder / gguf if gguf else folder


def wanted(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """The files of a safetensors model: weights, configs, tokeniser, template."""
    return [
        file
        for file in files
        if any(fnmatch(file.name, good) for good in _WANTED) and not any(fnmatch(file.name, bad) for bad in _UNWANTED)
    ]


def is_complete(folder: Path, *, weights: bool = True) -> bool:
    """Whether a folder has a config, a tokeniser and, where they are wanted, every weight file that its index names."""
    if not (folder / "config.json").is_file() or not (folder / "tokenizer.json").is_file():
        return False
    if not weights:
        return True
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return (folder / "model.safetensors").is_file()
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, AttributeError):
        return False
    return all((folder / shard).is_file() for shard in shards)


def _refuse_unusable(
    hub: str, repo: str, gguf: str | None, available: Sequence[RemoteFile], chosen: Sequence[RemoteFile]
) -> None:
    names = [file.name for file in available]
    ggufs = [name for name in names if name.endswith(".gguf")]
    if gguf and not chosen:
        has = f"it has {', '.join(ggufs[:4])}" if ggufs else "it has no GGUF files"
        raise ModelError(f"{repo} on {hub} has no file {gguf}; {has}.")
    if gguf or any(file.name.endswith(".safetensors") for file in chosen):
        return
    if ggufs:
        raise ModelError(f"{repo} on {hub} has GGUF files only; name the one to run, as {repo}/{ggufs[0]}.")
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        raise ModelError(f"{repo} on {hub} has only pickled weights, which are never read; use a safetensors version.")
    raise ModelError(f"{repo} on {hub} has no safetensors weights.")
