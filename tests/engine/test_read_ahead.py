"""Which files are read ahead, and that a wrong path is left to the load to complain about."""

from __future__ import annotations

from pathlib import Path

from firsttoken.engine.read_ahead import read_ahead


def test_a_folder_s_weights_are_asked_for_and_nothing_else(tmp_path: Path) -> None:
    for name in ("model-00002.safetensors", "model-00001.safetensors", "config.json", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    assert [file.name for file in read_ahead(str(tmp_path))] == ["model-00001.safetensors", "model-00002.safetensors"]


def test_a_gguf_file_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert read_ahead(str(file)) == [file]


def test_what_cannot_be_opened_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    assert read_ahead(str(tmp_path)) == []
    assert read_ahead(str(tmp_path / "missing")) == []
