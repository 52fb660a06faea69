"""From a name to a local path, with the hubs replaced by fakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from firsttoken.errors import ConfigError, ModelError
from firsttoken.model.downloads import Progress, RemoteFile
from firsttoken.model.hub import DEFAULT_MODEL, default_model, resolve
from firsttoken.model.huggingface import unreachable
from firsttoken.model.repositories import is_complete, wanted
from tests.builders import tiny_model_folder
from tests.model.silent_progress import Silent

CONTENT = b"GGUF" + bytes(range(256)) * 40


class FakeRepository:
    """A hub with one repository, whose files have their names as content."""

    name = "Fake Hub"

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, names
        self.listed = 0
        self.fetched: list[str] = []

    def cached(self, repo: str, revision: str | None, file: str, cache: Path | None) -> Path | None:
        path = self.folder / file
        return path if path.is_file() else None

    def files(self, repo: str, revision: str | None) -> list[RemoteFile]:
        self.listed += 1
        return [RemoteFile(name, 1000) for name in self.names]

    def fetch(
        self, repo: str, revision: str | None, files: Sequence[RemoteFile], cache: Path | None, show: Progress
    ) -> Path:
        show.start(repo, sum(file.size for file in files))
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            self.fetched.append(file.name)
            (self.folder / file.name).write_text(file.name)
        show.finish()
        return self.folder


def hub_of(folder: Path, *names: str) -> dict[str, FakeRepository]:
    return {"huggingface": FakeRepository(folder, names)}


def said(model: str, hubs: dict[str, FakeRepository] | None = None, hub: str = "huggingface") -> str:
    with pytest.raises((ModelError, ConfigError)) as caught:
        resolve(model, hub=hub, repositories=hubs or {}, progress=Silent())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_or_a_gguf_file_is_itself(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    assert resolve(str(folder)) == folder
    file = tmp_path / "x.gguf"
    file.write_bytes(CONTENT)
    assert resolve(str(file)) == file


def test_wrong_paths_are_named(tmp_path: Path) -> None:
    assert "no config.json, so it is not a model folder" in said(str(tmp_path))
    (tmp_path / "x.gguf").write_bytes(CONTENT)
    assert f"name the one to run, as {tmp_path / 'x.gguf'}" in said(str(tmp_path))
    (tmp_path / "x.bin").write_bytes(CONTENT)
    assert "neither a model folder nor a .gguf file" in said(str(tmp_path / "x.bin"))
    for missing in ("./absent", "/absent/model", "~/absent", "absent.gguf", "a/b.gguf"):
        assert "There is no file or folder" in said(missing)
    assert "of the form owner/name" in said("qwen3")


def test_a_path_that_the_system_refuses_is_one_sentence() -> None:
    with pytest.raises(ModelError, match=r"cannot be read \(File name too long\)"):
        resolve("./" + "m" * 300)


def test_only_safetensors_json_and_templates_are_fetched(tmp_path: Path) -> None:
    good = ["config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "chat_template.jinja"]
    bad = [
        "pytorch_model.bin",
        "modeling.py",
        "README.md",
        "original/params.json",
        "consolidated.safetensors",
        "a.gguf",
    ]
    hubs, progress = hub_of(tmp_path / "hub", *good, *bad), Silent()
    folder = resolve("owner/name", repositories=hubs, progress=progress)
    assert folder == tmp_path / "hub"
    assert hubs["huggingface"].fetched == good
    assert progress.started == [("owner/name", 4000)]


def test_a_whole_copy_needs_no_network_unless_a_refresh_is_asked_for(tmp_path: Path) -> None:
    hubs = hub_of(tiny_model_folder(tmp_path), "config.json", "model.safetensors")
    assert resolve("owner/name", repositories=hubs, progress=Silent()) == tmp_path
    assert hubs["huggingface"].listed == 0
    resolve("owner/name", repositories=hubs, progress=Silent(), refresh=True)
    assert hubs["huggingface"].fetched == ["config.json", "model.safetensors"]


def test_made_up_weights_are_not_fetched(tmp_path: Path) -> None:
    hubs = hub_of(tmp_path, "config.json", "model.safetensors", "tokenizer.json")
    for _ in range(2):
        assert resolve("owner/name", repositories=hubs, progress=Silent(), weights=False) == tmp_path
    assert hubs["huggingface"].fetched == ["config.json", "tokenizer.json"]
    resolve("owner/name", repositories=hubs, progress=Silent())
    assert "model.safetensors" in hubs["huggingface"].fetched


def test_half_a_copy_is_fetched_again(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path)
    assert is_complete(folder)
    (folder / "model.safetensors").unlink()
    assert not is_complete(folder)
    hubs = hub_of(folder, "config.json", "model.safetensors", "tokenizer.json")
    resolve("owner/name", repositories=hubs, progress=Silent())
    assert "model.safetensors" in hubs["huggingface"].fetched


def test_a_gguf_file_of_a_repository_is_fetched_alone(tmp_path: Path) -> None:
    hubs = hub_of(tmp_path / "hub", "config.json", "m-Q4.gguf", "m-Q8.gguf")
    path = resolve("owner/name/m-Q8.gguf", repositories=hubs, progress=Silent())
    assert path == tmp_path / "hub" / "m-Q8.gguf"
    assert hubs["huggingface"].fetched == ["m-Q8.gguf"]
    resolve("owner/name/m-Q8.gguf", repositories=hubs, progress=Silent())
    assert hubs["huggingface"].listed == 1


def test_repositories_without_usable_weights_are_named(tmp_path: Path) -> None:
    assert "has GGUF files only; name the one to run, as o/n/a.gguf" in said("o/n", hub_of(tmp_path, "a.gguf"))
    assert "only pickled weights" in said("o/n", hub_of(tmp_path, "config.json", "pytorch_model.bin"))
    assert "has no safetensors weights" in said("o/n", hub_of(tmp_path, "config.json"))
    assert "has no file b.gguf; it has a.gguf" in said("o/n/b.gguf", hub_of(tmp_path, "a.gguf"))
    assert "--hub must be one of huggingface, not 'other'" in said("o/n", hub_of(tmp_path), hub="other")


@pytest.mark.parametrize(
    ("endpoint", "sentence"),
    [
        ("https://huggingface.co", "from Hugging Face (Why); check the network, set HF_ENDPOINT to a mirror"),
        ("nonsense", "from nonsense (Why); check that address, which HF_ENDPOINT names"),
    ],
)
def test_a_hub_that_does_not_answer_is_told_with_what_to_change(endpoint: str, sentence: str) -> None:
    assert sentence in unreachable("owner/name", "Why", endpoint)


def test_files_in_folders_of_a_repository_are_left_alone() -> None:
    files = [RemoteFile(name, 1) for name in ("model.safetensors", "onnx/model.safetensors")]
    assert wanted(files) == files[:1]


def test_the_default_model_is_the_largest_that_fits_and_says_why() -> None:
    name, reason = default_model(24 * 2**30)
    assert name == DEFAULT_MODEL
    assert "8.04 GB" in reason
    name, reason = default_model(8 * 2**30)
    assert name == "demo"
    assert "this GPU has 8.6 GB" in reason
    name, reason = default_model(None)
    assert name == "demo"
    assert "there is no GPU here" in reason
    assert "barely speaks Chinese" in reason
