"""ModelScope's hub, through its own package, an extra."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firsttoken.errors import DownloadError
from firsttoken.model.download_process import download_apart
from firsttoken.model.downloads import Progress, RemoteFile, check_space, is_disk_full


class ModelScope:
    """modelscope.cn, through its own package, an extra."""

    name = "ModelScope"

    def cached(self, repo: str, revision: str | None, file: str, cache: Path | None) -> Path | None:
        try:
            found = Path(self._snapshot(repo, revision, cache, local_files_only=True)) / file
        except DownloadError:
            raise
        except Exception:  # the package has no error of its own for "not here"
            return None
        return found if found.is_file() else None

    def files(self, repo: str, revision: str | None) -> list[RemoteFile]:
        api = self._module("modelscope.hub.api").HubApi()
        try:
            listed = api.get_model_files(repo, revision=revision, recursive=True)
        except Exception as error:
            raise self._failed(repo, error) from error
        return [RemoteFile(str(file["Path"]), int(file.get("Size") or 0)) for file in listed]

    def fetch(
        self, repo: str, revision: str | None, files: Sequence[RemoteFile], cache: Path | None, show: Progress
    ) -> Path:
        total = sum(file.size for file in files)
        if cache is not None:
            check_space(cache, total, repo, "--download-dir")
        show.start(f"{repo} from {self.name}", total)  # the package then draws a bar a file
        try:
            return Path(download_apart("modelscope", repo, revision, [file.name for file in files], cache))
        finally:
            show.finish()

    def download(self, repo: str, revision: str | None, names: Sequence[str], cache: Path | None) -> Path:
        """What `fetch` runs in a process of its own."""
        try:
            return Path(self._snapshot(repo, revision, cache, allow_patterns=list(names)))
        except DownloadError:
            raise
        except Exception as error:
            raise self._failed(repo, error) from error

    def _snapshot(self, repo: str, revision: str | None, cache: Path | None, **options: Any) -> str:
        download = self._module("modelscope.hub.snapshot_download").snapshot_download
        return str(download(repo, revision=revision, cache_dir=None if cache is None else str(cache), **options))

    def _module(self, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise DownloadError('ModelScope needs its package: run `pip install "firsttoken[modelscope]"`.') from error

    def _failed(self, repo: str, error: Exception) -> DownloadError:
        if is_disk_full(error):
            return DownloadError(f"The disk became full while {repo} was fetched; make room and try again.")
        return DownloadError(
            f"{repo} could not be fetched from ModelScope ({type(error).__name__}); check its name and the network."
        )
