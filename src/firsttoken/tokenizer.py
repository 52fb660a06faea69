"""Text, chats and token ids. Imports no torch; everything may be called from threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from firsttoken.chat_messages import messages_for
from firsttoken.chat_template import ChatTemplate
from firsttoken.detokenizer import Detokenizer
from firsttoken.errors import ConfigError, InvalidRequest, ModelError
from firsttoken.gguf_tokenizer import load_gguf
from firsttoken.protected_text import ProtectedText, SpecialPatterns, scrub
from firsttoken.segment_encoder import SegmentEncoder, as_text_only
from firsttoken.token_bytes import Spelling, TokenBytes
from firsttoken.tokenizer_files import TokenizerFiles, load_folder

__all__ = ["Detokenizer", "Tokenizer"]

_COUNT_CHARS = 65_536  # a text that may be far too long is counted in pieces of this size


class Tokenizer:
    """One model's tokeniser and chat template.

    Public: `id_limit` (one more than the highest id), `bos_token_id`, `eos_token_ids`, `special_ids` (ids that never
    stand for text), `has_chat_template`, `template_variables` (names that a template reads).
    """

    def __init__(self, files: TokenizerFiles) -> None:
        backend = self._backend = files.backend
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.eos_token_ids = files.eos_token_ids
        self._named_tokens = files.named_tokens
        bos = files.named_tokens.get("bos_token")
        self.bos_token_id: int | None = None if bos is None else backend.token_to_id(bos)
        self._spelling = Spelling.of(backend)
        added_text = {token_id: token.content for token_id, token in added.items()}
        self.all_bytes = TokenBytes(backend, self._spelling, added_text)
        self.shown_bytes = TokenBytes(backend, self._spelling, added_text, hidden=self.special_ids)
        self._added_ids = {text: token_id for token_id, text in added_text.items()}
        self._text_only = as_text_only(backend)
        self._segments = SegmentEncoder(backend, self._text_only, added)
        self._patterns = SpecialPatterns([token.content for token in added.values() if token.special])
        self._templates = {name: ChatTemplate(source) for name, source in files.templates.items()}

    @classmethod
    def load(cls, path: str | Path, *, chat_template: str | None = None) -> Tokenizer:
        """From a folder with tokenizer.json, or a .gguf file. `chat_template`: a file or the template itself.

        Raises ModelError (nothing there, not readable, of an unknown kind) or ConfigError (no such template file).
        """
        path = Path(path)
        if path.is_dir():
            files = load_folder(path)
        elif path.is_file():
            files = load_gguf(path)
        else:
            raise ModelError(f"{path} does not exist; give a folder with tokenizer.json or a .gguf file.")
        if chat_template is not None:
            files.templates.clear()
            files.templates["default"] = _template_source(chat_template)
        return cls(files)

    @cached_property
    def id_limit(self) -> int:
        size = self._backend.get_vocab_size(with_added_tokens=True)
        if None not in map(self._backend.id_to_token, range(size)):
            return size  # `size` ids, all below `size`
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def has_chat_template(self) -> bool:
        return bool(self._templates)

    @property
    def chat_template(self) -> str | None:
        """Source of the usual template."""
        template = self._templates.get("default")
        return None if template is None else template.source

    @property
    def tools_template(self) -> str | None:
        """Source of the template that prints tools; None where no template does."""
        template = self._templates.get("tool_use") or self._templates.get("default")
        return template.source if template is not None and "tools" in template.variables else None

    def added_id(self, text: str) -> int | None:
        """The id of a token beside the ordinary vocabulary, special or not."""
        return self._added_ids.get(text)

    @property
    def template_variables(self) -> frozenset[str]:
        return frozenset().union(*(template.variables for template in self._templates.values()))

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True, limit: int | None = None
    ) -> list[int]:
        """Ids of a text. Without `parse_special` special tokens' text stays text.

        With `limit` raises InvalidRequest where there are more ids than that, and does so early for a huge text.
        """
        return self.encode_batch(
            [text], add_special_tokens=add_special_tokens, parse_special=parse_special, limit=limit
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        parse_special: bool = True,
        limit: int | None = None,
    ) -> list[list[int]]:
        """`encode` of each text; `limit` holds for each. Lets other threads run meanwhile."""
        texts = [scrub(text) for text in texts]
        for text in texts:
            self._refuse_huge(text, limit, "prompt")
        backend = self._backend if parse_special else self._text_only
        encoded = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]
        for ids in encoded:
            _check_limit(len(ids), limit, "prompt")
        return encoded

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """A whole text from its ids. Bytes that are no UTF-8 become U+FFFD, ids that do not exist nothing."""
        table = self.shown_bytes if skip_special_tokens else self.all_bytes
        text = b"".join([table[token_id] for token_id in ids]).decode(errors="replace")
        return text.removeprefix(" ") if self._spelling.drops_leading_space else text

    def token_bytes(self, token_id: int) -> bytes:
        """What one id adds to a text; special tokens are written out."""
        return self.all_bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """`token_bytes` as text; U+FFFD where a token is no whole character."""
        return self.all_bytes[token_id].decode(errors="replace")

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **template_kwargs: Any,
    ) -> str:
        """The chat template's text for these messages (OpenAI's form).

        With `continue_final_message` it ends exactly where the last message's content does, and no new turn is
        opened. Raises InvalidRequest where the messages or the template do not allow it.
        """
        text, protected = self._render(messages, tools, add_generation_prompt, continue_final_message, template_kwargs)
        return protected.restore(text)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        limit: int | None = None,
        **template_kwargs: Any,
    ) -> list[int]:
        """Ids of `render_chat`'s text, in which special tokens are the template's alone: what users wrote stays text.

        `limit` as in `encode`.
        """
        text, protected = self._render(messages, tools, add_generation_prompt, continue_final_message, template_kwargs)
        self._refuse_huge(text, limit, "messages")
        pieces = self._segments.split(text)
        pieces[::2] = [protected.restore(piece) for piece in pieces[::2]]
        ids = self._segments.encode(pieces)
        _check_limit(len(ids), limit, "messages")
        return ids

    def warm(self) -> None:
        """Pays what first calls cost: counting ids, the encoder's threads, the template's first run."""
        Detokenizer(self).push(self.encode("Hello, 你好!"))
        assert self.id_limit > 0
        if self._templates:
            try:
                self.encode_chat([{"role": "user", "content": "Hello"}])
            except InvalidRequest:
                return  # a template that wants something else; it has run

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        continue_final_message: bool,
        template_kwargs: Mapping[str, Any],
    ) -> tuple[str, ProtectedText]:
        template = self._templates.get("tool_use") if tools else None
        template = template or self._templates.get("default")
        if template is None:
            raise InvalidRequest(
                "This model has no chat template; give the server one with --chat-template, or use /v1/completions.",
                param="messages",
            )
        protected = ProtectedText(self._patterns, messages, tools, template_kwargs, template.source)
        made = protected.protect(messages_for(template, messages))
        variables = {
            **self._named_tokens,
            "tools": protected.protect(tools) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
            **protected.protect(template_kwargs),
        }
        if not continue_final_message:
            return template.render(made, variables), protected
        end = protected.mark("")
        _append(made[-1], end)
        text, found, _ = template.render(made, variables).rpartition(end)
        if not found:
            raise InvalidRequest(
                "continue_final_message: the model's chat template does not print the last message's content.",
                param="continue_final_message",
            )
        return text, protected

    def _refuse_huge(self, text: str, limit: int | None, param: str) -> None:
        """Counts a text in pieces while it may yet be short enough, so that 50 MB are not encoded to be refused.

        Cutting adds a token or two a piece at most in real text; an eighth of slack leaves no doubt.
        """
        if limit is None or len(text) <= max(2 * limit, _COUNT_CHARS):
            return
        count = 0
        for start in range(0, len(text), _COUNT_CHARS):
            piece = text[start : start + _COUNT_CHARS]
            count += len(self._text_only.encode_batch_fast([piece], add_special_tokens=False)[0].ids)
            if count > limit + limit // 8 + 64:
                raise _too_long(f"more than {count - count // 9}", limit, param)


def _append(message: dict[str, Any], end: str) -> None:
    content = message["content"]
    if isinstance(content, list) and content:
        content[-1]["text"] += end
    else:
        message["content"] = (content or "") + end


def _check_limit(count: int, limit: int | None, param: str) -> None:
    if limit is not None and count > limit:
        raise _too_long(str(count), limit, param)


def _too_long(count: str, limit: int, param: str) -> InvalidRequest:
    return InvalidRequest(
        f"This model's maximum context length is {limit} tokens. However, your {param} resulted in {count} tokens. "
        f"Please reduce the length of the {param}.",
        param=param,
        code="context_length_exceeded",
    )


def _template_source(given: str) -> str:
    """A template's text, from a file unless it is one already."""
    if "{" in given or "\n" in given:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The chat template file {given} cannot be read: {error}.") from error
