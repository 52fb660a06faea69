"""Model repositories: Hugging Face and ModelScope behind one small interface. Only what is needed is ever fetched."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

from firsttoken.errors import DownloadError, ModelError
from firsttoken.model.downloads import Progress, RemoteFile, check_space, shown

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
) -> Path:
    """A repository's model as a local folder, or one named GGUF file of it. A whole earlier download needs no network.

    `refresh` looks for a newer version all the same. Raises DownloadError or ModelError.
    """
    if not refresh:
        file = repository.cached(repo, revision, gguf or "config.json", cache)
        if file is not None and gguf:
            return file
        if file is not None and is_complete(file.parent):
            return file.parent
    available = repository.files(repo, revision)
    chosen = [file for file in available if file.name == gguf] if gguf else wanted(available)
    _refuse_unusable(repository.name, repo, gguf, available, chosen)
    folder = repository.fetch(repo, revision, chosen, cache, progress)
    return folder / gguf if gguf else folder


def wanted(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """The files of a safetensors model: weights, configs, tokeniser, template."""
    return [
        file
        for file in files
        if any(fnmatch(file.name, good) for good in _WANTED) and not any(fnmatch(file.name, bad) for bad in _UNWANTED)
    ]


def is_complete(folder: Path) -> bool:
    """Whether a folder has a config, a tokeniser and every weight file that its index names."""
    if not (folder / "config.json").is_file() or not (folder / "tokenizer.json").is_file():
        return False
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


class HuggingFace:
    """huggingface.co, or the mirror that HF_ENDPOINT names; HF_TOKEN opens gated models."""

    name = "Hugging Face"

    def cached(self, repo: str, revision: str | None, file: str, cache: Path | None) -> Path | None:
        import huggingface_hub

        with _one_sentence(repo, revision):
            found = huggingface_hub.try_to_load_from_cache(repo, file, cache_dir=cache, revision=revision)
        return Path(found) if isinstance(found, str) else None

    def files(self, repo: str, revision: str | None) -> list[RemoteFile]:
        import huggingface_hub

        with _one_sentence(repo, revision):
            info = huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
        return [RemoteFile(file.rfilename, file.size or 0) for file in info.siblings or []]

    def fetch(
        self, repo: str, revision: str | None, files: Sequence[RemoteFile], cache: Path | None, show: Progress
    ) -> Path:
        import huggingface_hub
        from huggingface_hub import constants
        from huggingface_hub.utils.tqdm import disable_progress_bars

        store = Path(cache or constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "blobs"
        total = sum(file.size for file in files)
        present = sum(path.stat().st_size for path in store.glob("*")) if store.is_dir() else 0
        check_space(store, max(0, total - present), repo)
        disable_progress_bars()  # ours shows the whole
        with _one_sentence(repo, revision), shown(show, f"{repo} from {self.name}", total, store):
            folder = huggingface_hub.snapshot_download(
                repo, revision=revision, cache_dir=cache, allow_patterns=[file.name for file in files]
            )
        return Path(folder)


@contextmanager
def _one_sentence(repo: str, revision: str | None) -> Iterator[None]:
    """Turns what huggingface_hub raises into one sentence each."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise DownloadError(f"{repo} is gated: accept its terms on Hugging Face and set HF_TOKEN.") from error
    except errors.RepositoryNotFoundError as error:
        raise DownloadError(
            f"There is no model {repo} on Hugging Face that you may read; check its name, or set HF_TOKEN."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DownloadError(f"{repo} has no revision {revision!r} on Hugging Face.") from error
    except errors.HFValidationError as error:
        raise DownloadError(f"{repo!r} is not a repository name of the form owner/name.") from error
    except Exception as error:  # its HTTP client has changed more than once, and with it what a lost network raises
        raise DownloadError(
            f"{repo} could not be fetched from Hugging Face ({type(error).__name__}); check the network, set "
            "HF_ENDPOINT to a mirror, or use --hub modelscope."
        ) from error


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
            check_space(cache, total, repo)
        show.start(f"{repo} from {self.name}", total)  # the package then draws a bar a file
        try:
            return Path(self._snapshot(repo, revision, cache, allow_patterns=[file.name for file in files]))
        except DownloadError:
            raise
        except Exception as error:
            raise self._failed(repo, error) from error
        finally:
            show.finish()

    def _snapshot(self, repo: str, revision: str | None, cache: Path | None, **options: Any) -> str:
        download = self._module("modelscope.hub.snapshot_download").snapshot_download
        return str(download(repo, revision=revision, cache_dir=None if cache is None else str(cache), **options))

    def _module(self, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise DownloadError('ModelScope needs its package: run `pip install "firsttoken[modelscope]"`.') from error

    def _failed(self, repo: str, error: Exception) -> DownloadError:
        return DownloadError(
            f"{repo} could not be fetched from ModelScope ({type(error).__name__}); check its name and the network."
        )
