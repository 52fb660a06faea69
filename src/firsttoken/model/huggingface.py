"""Hugging Face's hub, through its own package and its own cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from firsttoken.errors import DownloadError
from firsttoken.model.download_process import download_apart
from firsttoken.model.downloads import Progress, RemoteFile, check_space, is_disk_full, shown

_LARGE = 16_000_000  # bytes from which a file is worth going on with
_AT_ONCE = 4
_HOME = "https://huggingface.co"


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
        store = _store(repo, cache)
        total = sum(file.size for file in files)
        present = sum(path.stat().st_size for path in store.glob("*")) if store.is_dir() else 0
        check_space(store, max(0, total - present), repo, "--download-dir or HF_HOME")
        with shown(show, f"{repo} from {self.name}", total, store):
            return Path(download_apart("huggingface", repo, revision, [file.name for file in files], cache))

    def download(self, repo: str, revision: str | None, names: Sequence[str], cache: Path | None) -> Path:
        """What `fetch` runs in a process of its own."""
        import huggingface_hub
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()  # ours shows the whole
        with _one_sentence(repo, revision):
            _fill_store(repo, revision, names, _store(repo, cache))
            folder = huggingface_hub.snapshot_download(
                repo, revision=revision, cache_dir=cache, allow_patterns=list(names)
            )
        return Path(folder)


def _store(repo: str, cache: Path | None) -> Path:
    """Where the hub's cache keeps a repository's contents, each under the name of its ETag."""
    from huggingface_hub import constants

    return Path(cache or constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "blobs"


def _fill_store(repo: str, revision: str | None, names: Sequence[str], store: Path) -> None:
    """Brings the large files into the hub's cache, where its own download finds them.

    That one starts each file from nothing again in a new process. What it can do better is left to it: small files, and
    files of which the server does not say enough.
    """
    import huggingface_hub

    from firsttoken.model.resumable import fetch_resumable

    token = huggingface_hub.get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def fill(name: str) -> None:
        url = huggingface_hub.hf_hub_url(repo, name, revision=revision)
        file = huggingface_hub.get_hf_file_metadata(url)
        if file.etag is None or file.size is None or file.size < _LARGE:
            return
        sha256 = file.etag if len(file.etag) == 64 else None
        fetch_resumable(url, store / file.etag, size=file.size, sha256=sha256, headers=headers)

    weights = [name for name in names if name.endswith((".safetensors", ".gguf"))]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fill, weights))


@contextmanager
def _one_sentence(repo: str, revision: str | None) -> Iterator[None]:
    """Turns what huggingface_hub raises into one sentence each."""
    from huggingface_hub import constants, errors

    try:
        yield
    except DownloadError:
        raise
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
        if is_disk_full(error):
            raise DownloadError(f"The disk became full while {repo} was fetched; make room and try again.") from error
        raise DownloadError(unreachable(repo, type(error).__name__, constants.ENDPOINT)) from error


def unreachable(repo: str, reason: str, endpoint: str) -> str:
    """What to do where nothing, or nothing of use, comes from an endpoint."""
    if endpoint == _HOME:
        return (
            f"{repo} could not be fetched from Hugging Face ({reason}); check the network, set HF_ENDPOINT "
            "to a mirror, or use --hub modelscope."
        )
    return (
        f"{repo} could not be fetched from {endpoint} ({reason}); check that address, which HF_ENDPOINT names, "
        "and the network, or use --hub modelscope."
    )
