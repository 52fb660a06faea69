"""How the served model writes what is not plain text: calls of tools, and thoughts before an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from firsttoken.config import ServerConfig
from firsttoken.errors import InvalidRequest
from firsttoken.server import reasoning
from firsttoken.server.answer_parts import AnswerParser
from firsttoken.server.reasoning import ReasoningParser
from firsttoken.server.schemas.chat import ChatFields, ChatRequest
from firsttoken.server.tools.call_form import FORMS, CallForm, form_of
from firsttoken.tokenizer import Tokenizer

Thoughts = Literal["none", "tagged", "assumed"]  # assumed: an answer begins with them though no tag opened them


@dataclass(frozen=True, slots=True)
class Dialect:
    """Told from the chat template, unless flags say it."""

    prints_tools: bool  # the template does
    calls: CallForm | None
    thoughts: Thoughts
    hidden: frozenset[str]  # tags that the tokeniser counts as special, so that they must be shown to be read

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: ServerConfig) -> Dialect:
        template = tokenizer.tools_template
        if config.tool_call_parser == "auto":
            calls = None if template is None else form_of(template)
        else:
            calls = FORMS[config.tool_call_parser]
        thoughts: Thoughts
        match config.reasoning_parser:
            case "auto":
                thoughts = "tagged" if reasoning.OPEN in (tokenizer.chat_template or "") else "none"
            case "qwen3":
                thoughts = "tagged"
            case "deepseek_r1":
                thoughts = "assumed"
            case "none":
                thoughts = "none"
        tags = {reasoning.OPEN, reasoning.CLOSE} if thoughts != "none" else set()
        if calls is not None:
            tags |= {tag for tag in (calls.opening, calls.closing) if tag is not None}
        hidden = frozenset(tag for tag in tags if tokenizer.added_id(tag) in tokenizer.special_ids)
        return cls(template is not None, calls, thoughts, hidden)

    def check_tools(self, body: ChatFields) -> None:
        """Raises InvalidRequest for tools that the model could not be told of, or not be understood in calling."""
        if not body.offered_tools:
            return
        if not self.prints_tools:
            raise InvalidRequest(
                "This model's chat template knows no tools; leave 'tools' out, or start the server with a "
                "--chat-template that prints them.",
                param="tools",
                code="unsupported_parameter",
            )
        if self.calls is None:
            raise InvalidRequest(
                "How this model writes calls of tools is not known; leave 'tools' out, or start the server with "
                "--tool-call-parser.",
                param="tools",
                code="unsupported_parameter",
            )

        if body.must_call:
            raise InvalidRequest(
                '\'tool_choice\' is not supported by this server with the value given; use "auto" or "none".',
                param="tool_choice",
                code="unsupported_parameter",
            )

    def parser(self, body: ChatRequest, *, thinks: bool) -> AnswerParser | None:
        """What reads one choice's text; None where it is plain. `thinks`: the prompt ends within thoughts."""
        inner: AnswerParser | None = None
        if body.offered_tools:
            assert self.calls is not None
            names = {tool.function.name for tool in body.callable_tools}
            inner = self.calls.parser(names, streams=bool(body.stream), single=body.parallel_tool_calls is False)
        if self.thoughts == "none":
            return inner
        return ReasoningParser(inner, thinks=thinks, shown=body.include_reasoning is not False)

    def thinks(self, body: ChatFields, prompt_end: str) -> bool:
        """Whether an answer to a prompt that ends so begins within the model's thoughts."""
        if body.continue_final_message:
            content = body.messages[-1].content
            return isinstance(content, str) and content.rfind(reasoning.OPEN) > content.rfind(reasoning.CLOSE)
        if self.thoughts == "assumed":
            return not prompt_end.rstrip().endswith(reasoning.CLOSE)
        return reasoning.opens_thoughts(prompt_end)
