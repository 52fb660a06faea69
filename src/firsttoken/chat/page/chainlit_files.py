"""The folder that Chainlit reads its configuration and its words from, written anew at each start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from firsttoken.chat.attachments import LARGEST, MOST
from firsttoken.chat.page.options import Options

NAME = "firsttoken"
_WORDS: dict[str, dict[str, str]] = {
    "en-US": {
        "common.actions.reset": "Undo changes",
        "auth.login.title": "Chat with your model",
        "auth.login.form.email.label": "Name",
        "auth.login.form.email.placeholder": "any name",
        "auth.login.errors.default": "That is not the password; it was set where the page was started.",
        "chat.input.placeholder": "Ask something…",
        "chat.input.actions.stop": "Stop",
        "chat.settings.title": "Settings",
        "chat.settings.customize": "Model, system prompt and sampling of this chat",
        "chat.watermark": "A model can be wrong. Check what matters.",
        "threadHistory.sidebar.empty": "No chats yet",
    },
    "zh-CN": {
        "common.actions.reset": "撤销更改",
        "auth.login.title": "与你的模型对话",
        "auth.login.form.email.label": "名称",
        "auth.login.form.email.placeholder": "任意名称",
        "auth.login.errors.default": "密码不正确；密码在启动页面时设置。",
        "chat.input.placeholder": "输入你的问题……",
        "chat.input.actions.stop": "停止",
        "chat.settings.title": "设置",
        "chat.settings.customize": "此对话的模型、系统提示词与采样参数",
        "chat.watermark": "模型可能出错，重要内容请核实。",
        "threadHistory.sidebar.empty": "还没有对话",
    },
}


def write_config(root: Path, options: Options) -> None:
    """Chainlit takes its own defaults for what is left out."""
    folder = root / ".chainlit"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier version of it, or of ours
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(_config(options), encoding="utf-8")


def write_words(root: Path, shipped: Path) -> None:
    """Chainlit's translations (`shipped` is their folder), with our own words where these are better."""
    folder = root / ".chainlit" / "translations"
    folder.mkdir(parents=True, exist_ok=True)
    for path in shipped.glob("*.json"):
        words = json.loads(path.read_text(encoding="utf-8"))
        for key, text in _WORDS.get(path.stem, {}).items():
            _put(words, key.split("."), text)
        (folder / path.name).write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")


def _put(words: dict[str, Any], keys: list[str], text: str) -> None:
    for key in keys[:-1]:
        words = words.setdefault(key, {})
    words[keys[-1]] = text


def _config(options: Options) -> str:
    origins = [f"http://{options.host}:{options.port}", *options.origins]
    return f"""
[project]
allow_origins = {json.dumps(origins)}
session_timeout = 600
user_session_timeout = 2592000
persist_user_env = false

[features]
unsafe_allow_html = false
latex = true
user_message_markdown = true
edit_message = true
auto_tag_thread = false
allow_thread_sharing = false
favorites = false

[features.spontaneous_file_upload]
enabled = true
accept = ["*/*"]  # what is no text is refused by its content, in words
max_files = {MOST}
max_size_mb = {max(1, LARGEST // 1_000_000)}

[features.audio]
enabled = false

[features.mcp]
enabled = false

[UI]
name = {json.dumps(NAME)}
description = "Chat with the model on your own machine"
cot = "hidden"
default_sidebar_state = "open"
confirm_new_chat = false
custom_css = "/firsttoken/assets/page.css"
custom_js = "/firsttoken/assets/page.js"
alert_style = "modern"

[meta]
generated_by = "firsttoken"
"""
