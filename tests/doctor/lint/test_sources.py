"""Files that commands stand in."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.cli.lint import own_table
from firsttoken.doctor.lint.linter import Checked, Linter
from firsttoken.doctor.lint.sources import check_source, kind_of
from firsttoken.errors import ConfigError

LINTER = Linter(firsttoken=own_table)
ROOT = Path(__file__).resolve().parents[3]

COMPOSE = """\
services:
  llm:
    image: vllm/vllm-openai:v0.10.2
    ports: ["8000:9000"]
    environment:
      - CUDA_LAUNCH_BLOCKING=1
    command: >
      --model Qwen/Qwen3-4B-Instruct-2507
      --enable-cuda-graph
  other:
    image: lmsysorg/sglang:latest
    entrypoint: ["python3", "-m", "sglang.launch_server"]
    command: ["--model-path", "Qwen/Qwen3-8B", "--host", "0.0.0.0", "--max-model-len", "8192"]
  page:
    image: nginx
    command: nginx -g 'daemon off;'
"""
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:latest
          command: ["vllm", "serve", "Qwen/Qwen3-4B-Instruct-2507"]
          args: ["--enforce-eager", "--port", "8000"]
          env:
            - name: VLLM_USE_V1
              value: "1"
"""


def rules(found: list[Checked]) -> list[tuple[int, str]]:
    return [(one.line, finding.rule) for one in found for finding in one.findings if finding.level != "note"]


def test_services_of_a_compose_file_are_checked_with_their_image_and_settings() -> None:
    found = check_source(LINTER, COMPOSE, "compose.yaml")
    assert set(rules(found)) == {
        (7, "flag-unknown"),
        (7, "launch-blocking"),
        (7, "port-not-published"),
        (12, "flag-unknown"),
    }
    first, second = (one.corrected for one in found if one.corrected)
    assert first is not None
    assert first.startswith("--model Qwen/Qwen3-4B-Instruct-2507 --port 9000")
    assert "without environment CUDA_LAUNCH_BLOCKING" in first
    assert second is not None
    assert "--context-length 8192" in second


def test_containers_of_a_manifest_are_checked() -> None:
    found = check_source(LINTER, MANIFEST, "-")
    assert rules(found) == [(9, "enforce-eager"), (9, "variable-removed")]


def test_broken_yaml_is_told_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"x\.yml is not YAML.*line 2"):
        check_source(LINTER, "a: b\n  c: [", "x.yml")


def test_fenced_parts_of_a_page_are_checked_with_the_page_s_lines() -> None:
    page = "# Title\n\n```bash\nvllm serve m/m --enforce-eager\n```\n\nvllm serve m/m --bad\n\n```json\n{}\n```\n"
    assert rules(check_source(LINTER, page, "page.md")) == [(4, "enforce-eager")]


def test_a_dockerfile_s_commands_are_checked_in_both_forms() -> None:
    lines = [
        "FROM x",
        "ENV TRANSFORMERS_CACHE=/x",
        "RUN pip install \\",
        "  vllm flash-attn",
        'ENTRYPOINT ["vllm", "serve"]',
        'CMD ["m/m", "--enforce-eager"]',
    ]
    text = "\n".join(lines) + "\n"
    found = check_source(LINTER, text, "Dockerfile")
    assert rules(found) == [(2, "transformers-cache"), (3, "flash-attn-package"), (6, "enforce-eager")]


def test_python_calls_of_an_engine_are_checked_as_its_flags() -> None:
    text = (
        "from vllm import LLM\n\nllm = LLM('Qwen/Qwen3-4B-Instruct-2507', enforce_eager=True, kv_cache_dtype='fp16')\n"
    )
    assert rules(check_source(LINTER, text, "a.py")) == [(3, "kv-cache-dtype-fp16"), (3, "enforce-eager")]
    with pytest.raises(ConfigError, match="no Python"):
        check_source(LINTER, "from vllm import", "a.py")


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("vllm serve m", "-", "sh"),
        ("services:\n  a: {}\n", "-", "yaml"),
        ("import torch\n", "-", "py"),
        ("text\n```bash\nx\n```\n", "-", "md"),
        ("FROM x\nCMD y\n", "-", "docker"),
        ("services:", "run.sh", "sh"),
    ],
)
def test_a_text_s_kind_is_told_by_its_name_or_its_content(text: str, name: str, kind: str) -> None:
    assert kind_of(text, name) == kind


@pytest.mark.parametrize("page", sorted({*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")}), ids=lambda path: path.name)
def test_our_own_pages_hold_no_command_that_lint_warns_of(page: Path) -> None:
    if page.name.startswith(("lint.", "claims.")):
        return  # these show what is wrong
    assert rules(check_source(LINTER, page.read_text(encoding="utf-8"), str(page))) == []
