"""A model's chat template: Jinja source from the model, rendered in a sandbox as transformers renders it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from firsttoken.errors import InvalidRequest, ModelError


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; here it is a plain block."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which models were not trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One compiled template, and what its source says of the messages that it wants.

    Raises ModelError where the source is no Jinja template.
    """

    def __init__(self, source: str) -> None:
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"The chat template is broken at line {error.lineno} ({error.message}); give another one."
            ) from error
        self.source = source
        self.variables = frozenset(meta.find_undeclared_variables(tree)) - environment.globals.keys()
        self.iterates_content = any(_reads(loop.iter, "content") for loop in tree.find_all(nodes.For))
        self.takes_text_content = not self.iterates_content or _tests(tree, "content", "string")
        self.tests_null_content = _tests(tree, "content", "none")
        self.takes_text_arguments = _tests(tree, "arguments", "string")
        self.knows_developer = any(constant.value == "developer" for constant in tree.find_all(nodes.Const))

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """Raises InvalidRequest where the template refuses the messages or cannot handle them."""
        try:
            return self._template.render(messages=messages, **variables)
        except jinja2.TemplateError as error:
            reason = error.message or type(error).__name__
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            reason = str(error) or type(error).__name__
        raise InvalidRequest(f"The model's chat template refuses these messages: {reason}", param="messages")


def _field(node: nodes.Node) -> str | None:
    """The last name of `content`, `message.content` or `message['content']`."""
    match node:
        case nodes.Name(name=name) | nodes.Getattr(attr=name) | nodes.Getitem(arg=nodes.Const(value=str(name))):
            return str(name)
    return None


def _reads(node: nodes.Node, field: str) -> bool:
    return _field(node) == field


def _tests(tree: nodes.Template, field: str, test: str) -> bool:
    def all_tests() -> Iterator[nodes.Test]:
        yield from tree.find_all(nodes.Test)

    return any(found.name == test and _reads(found.node, field) for found in all_tests())
