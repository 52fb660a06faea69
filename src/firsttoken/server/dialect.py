"""How the served model writes what is not plain text: calls of tools, and thoughts before an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from firsttoken.config import ServerConfig
from firsttoken.errors import InvalidRequest
from firsttoken.server import reasoning
from firsttoken.server.answer_grammar import CallRules, Thoughts, answer_grammar
from firsttoken.server.answer_parts import AnswerParser
from firsttoken.server.reasoning import ReasoningParser
from firsttoken.server.schemas.chat import ChatFields, ChatRequest
from firsttoken.server.tools.call_form import FORMS, CallForm, form_of
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import Grammar

ThoughtForm = Literal["none", "tagged", "assumed"]  # assumed: an answer begins with them though no tag opened them


@dataclass(frozen=True, slots=True)
class Dialect:
    """Told from the chat template, unless flags say it."""

    prints_tools: bool  # the template does
    calls: CallForm | None
    thoughts: ThoughtForm
    tokens: frozenset[str]  # of its tags, those that the tokeniser has as a token of their own, ...
    hidden: frozenset[str]  # ... and those that it counts as special, so that they must be shown to be read

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: ServerConfig) -> Dialect:
        template = tokenizer.tools_template
        if config.tool_call_parser == "auto":
            calls = None if template is None else form_of(template)
        else:
            calls = FORMS[config.tool_call_parser]
        thoughts: ThoughtForm
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
        tokens = frozenset(tag for tag in tags if tokenizer.added_id(tag) is not None)
        hidden = frozenset(tag for tag in tokens if tokenizer.added_id(tag) in tokenizer.special_ids)
        return cls(template is not None, calls, thoughts, tokens, hidden)

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

    def thoughts_in(self, body: ChatFields, prompt_end: str) -> Thoughts:
        """Whether an answer to a prompt that ends so begins within the model's thoughts, or may begin with some."""
        if self.thoughts == "none":
            return "none"
        if body.continue_final_message:
            content = body.messages[-1].content
            said = content if isinstance(content, str) else ""
            return "open" if said.rfind(reasoning.OPEN) > said.rfind(reasoning.CLOSE) else "none"
        end = prompt_end.rstrip() if body.opens_a_turn else ""  # what a user wrote opens nothing
        if end.endswith(reasoning.CLOSE):
            return "none"
        return "open" if self.thoughts == "assumed" or end.endswith(reasoning.OPEN) else "possible"

    def parser(self, body: ChatRequest, thoughts: Thoughts) -> AnswerParser | None:
        """What reads one choice's text; None where it is plain."""
        inner: AnswerParser | None = None
        if body.offered_tools:
            assert self.calls is not None
            names = {tool.function.name for tool in body.callable_tools}
            inner = self.calls.parser(names, streams=bool(body.stream), single=body.one_call)
        if self.thoughts == "none":
            return inner
        return ReasoningParser(inner, thinks=thoughts == "open", shown=body.include_reasoning is not False)

    def grammar(self, calls: CallRules | None, thoughts: Thoughts, structured: Grammar | None) -> Grammar | None:
        """What the whole answer keeps to, where its structured part is to keep to `structured`; None: it is free.

        Raises InvalidRequest where the two cannot be told apart.
        """
        if calls is None and (structured is None or thoughts == "none"):
            return structured
        free = structured is not None and not (calls is not None and calls.must)
        if free and calls is not None and calls.form.opening is None:
            raise InvalidRequest(
                "This model's calls of tools look like structured answers, so an answer cannot be either; ask for one.",
                param="tools",
                code="unsupported_parameter",
            )
        text = answer_grammar(thoughts=thoughts, calls=calls, structured=free, is_token=self.tokens.__contains__)
        if structured is not None and free:
            return replace(structured, around=text)
        return Grammar(kind="lark", source=text)

    def call_rules(self, body: ChatRequest, *, structured: bool) -> CallRules | None:
        """None where calls are read but not enforced. `structured`: what is no call has a form of its own."""
        functions = [tool.function for tool in body.callable_tools]
        strict = any(function.strict for function in functions)
        if not functions or not (body.must_call or strict or structured):
            return None
        assert self.calls is not None
        return CallRules(form=self.calls, functions=functions, must=body.must_call, single=body.one_call)
