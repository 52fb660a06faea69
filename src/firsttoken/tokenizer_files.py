"""What a model folder says of its tokeniser: tokenizer.json and the small files beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from firsttoken.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """Everything that a `Tokenizer` is made of."""

    backend: tokenizers.Tokenizer
    named_tokens: dict[str, str] = field(default_factory=dict)  # bos_token, eos_token, ...: templates read these
    eos_token_ids: tuple[int, ...] = ()
    templates: dict[str, str] = field(default_factory=dict)  # by name; the usual one is "default"


def load_folder(folder: Path) -> TokenizerFiles:
    """Raises ModelError where there is no tokenizer.json or a file cannot be read."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(
            f"{folder} has no tokenizer.json; save the tokeniser in that form "
            "(transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...))."
        )
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{file} cannot be read as a tokeniser: {error}.") from error
    backend.no_truncation()
    backend.no_padding()
    config = _read_json(folder / "tokenizer_config.json")
    named = {
        key: text
        for key, value in (_read_json(folder / "special_tokens_map.json") | config).items()
        if key.endswith("_token") and (text := _token_text(value)) is not None
    }
    _add_tokens(backend, config, named)
    if "add_bos_token" in config or "add_eos_token" in config:
        set_ends(
            backend,
            bos=named.get("bos_token") if config.get("add_bos_token") else None,
            eos=named.get("eos_token") if config.get("add_eos_token") else None,
        )
    ends = [backend.token_to_id(named["eos_token"])] if "eos_token" in named else []
    generation = _read_json(folder / "generation_config.json").get("eos_token_id")
    ends += generation if isinstance(generation, list) else [generation]
    return TokenizerFiles(
        backend=backend,
        named_tokens=named,
        eos_token_ids=tuple(dict.fromkeys(token_id for token_id in ends if isinstance(token_id, int))),
        templates=_templates(folder, config),
    )


def set_ends(backend: tokenizers.Tokenizer, *, bos: str | None, eos: str | None) -> None:
    """What `add_special_tokens` puts before and behind a text."""
    ends = [(token, token_id) for token in (bos, eos) if token and (token_id := backend.token_to_id(token)) is not None]
    known = dict(ends)
    single = " ".join([*([bos] if bos in known else []), "$A", *([eos] if eos in known else [])])
    # Pairs are never encoded here, but the library wants a form for them.
    backend.post_processor = TemplateProcessing(single=single, pair="$A $B:1", special_tokens=ends)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} must hold a JSON object.")
    return content


def _token_text(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def _add_tokens(backend: tokenizers.Tokenizer, config: dict[str, Any], named: dict[str, str]) -> None:
    """Some models list added tokens in tokenizer_config.json alone; they get the next ids, in order."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    listed = config.get("added_tokens_decoder", {})
    for _, entry in sorted(listed.items(), key=lambda item: int(item[0])):
        if entry["content"] not in known:
            flags = {key: bool(entry.get(key)) for key in ("single_word", "lstrip", "rstrip", "normalized", "special")}
            backend.add_tokens([AddedToken(entry["content"], **flags)])
            known.add(entry["content"])
    missing = [text for text in dict.fromkeys(named.values()) if text not in known]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in missing])


def _templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    inline = config.get("chat_template")
    if isinstance(inline, str):
        found["default"] = inline
    elif isinstance(inline, list):  # [{"name": "default", "template": ...}, {"name": "tool_use", ...}]
        found |= {entry["name"]: entry["template"] for entry in inline}
    if isinstance(source := _read_json(folder / "chat_template.json").get("chat_template"), str):
        found["default"] = source
    for file in [*sorted((folder / "additional_chat_templates").glob("*.jinja")), folder / "chat_template.jinja"]:
        if file.is_file():
            name = "default" if file.name == "chat_template.jinja" else file.stem
            found[name] = file.read_text(encoding="utf-8")
    return found
