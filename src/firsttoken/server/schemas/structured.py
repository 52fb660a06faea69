"""What an answer must look like, in OpenAI's form and in vLLM's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from firsttoken.server.schemas.sampling import Fields, Inside, Name, WrongField
from firsttoken.server.unsupported import RESPONSE_FORMAT, STRUCTURED_OUTPUTS


def _as_schema(value: Any) -> Any:
    """A JSON schema, or the text of one."""
    if not isinstance(value, dict | bool | str):
        raise ValueError("expected a JSON schema: an object, or the text of one")
    return value


def _as_choices(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise ValueError("expected a list of strings, none of them empty")
    return value


Schema = Annotated[
    Any,
    BeforeValidator(_as_schema),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]}),
]
SchemaObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]
Choices = Annotated[
    list[str],
    BeforeValidator(_as_choices),
    WithJsonSchema({"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}),
]
Text = Annotated[str, Field(min_length=1)]


class NamedSchema(Fields):
    """`strict` refuses keywords that cannot be enforced; without it they are ignored, as with OpenAI."""

    name: Name | None = Field(None, description="Accepted.")
    description: str | None = Field(None, description="Accepted.")
    schema_: Annotated[SchemaObject | None, Field(alias="schema")] = Field(None, description="Default: any object.")
    strict: bool | None = Field(None, description="true: a keyword that cannot be enforced is refused.")


class ResponseFormat(Fields):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = Field(None, description="With `type: json_schema`.")

    @model_validator(mode="after")
    def _has_its_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise WrongField("json_schema", "it is missing")
        return self


class StructuredOutputs(Fields):
    """vLLM's: exactly one of the first five."""

    json_: Annotated[Schema | None, Field(alias="json")] = Field(None, description="A JSON schema.")
    json_object: bool | None = Field(None, description="Any JSON object.")
    regex: Text | None = Field(None, description="A regular expression for the whole answer.")
    choice: Choices | None = Field(None, description="The answer is one of these texts.")
    grammar: Text | None = Field(None, description="A grammar in Lark's form or in GBNF (EBNF).")
    whitespace_pattern: Text | None = Field(None, description="What may stand between the parts of JSON.")
    disable_any_whitespace: bool | None = Field(None, description="Nothing may.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the answer must be, and which field says so."""

    field: str
    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    value: Any = None  # a schema or its text, an expression, a list of texts, a grammar
    lenient: bool = False


class GrammarFields(Fields):
    """At most one of them says anything; `guided_*` are vLLM's earlier names."""

    INSIDE: ClassVar[Inside] = (
        ("response_format", ResponseFormat, RESPONSE_FORMAT),
        ("structured_outputs", StructuredOutputs, STRUCTURED_OUTPUTS),
    )

    response_format: ResponseFormat | None = Field(None, description="The form that the answer must have.")
    structured_outputs: StructuredOutputs | None = Field(None, description="The same in vLLM's form.")
    guided_json: Schema | None = Field(None, description="As `structured_outputs.json`.")
    guided_regex: Text | None = Field(None, description="As `structured_outputs.regex`.")
    guided_choice: Choices | None = Field(None, description="As `structured_outputs.choice`.")
    guided_grammar: Text | None = Field(None, description="As `structured_outputs.grammar`.")
    guided_whitespace_pattern: Text | None = Field(None, description="As `structured_outputs.whitespace_pattern`.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> GrammarFields:
        wanted, outputs = self.all_wanted, self.structured_outputs
        if len(wanted) > 1:
            raise WrongField(wanted[1].field, f"it and `{wanted[0].field}` exclude each other")
        if outputs is not None and not any(each.field.startswith("structured_outputs.") for each in wanted):
            raise WrongField("structured_outputs", "it needs one of json, json_object, regex, choice and grammar")
        if self.whitespace is not None and not any(each.kind.startswith("json") for each in wanted):
            field = "guided_whitespace_pattern" if outputs is None else "structured_outputs"
            raise WrongField(field, "only JSON may have a pattern of whitespace")
        return self

    @property
    def all_wanted(self) -> list[Wanted]:
        """One at most, once this is validated."""
        found: list[Wanted] = []
        form, outputs = self.response_format, self.structured_outputs
        if form is not None and form.type == "json_object":
            found.append(Wanted("response_format", "json_object"))
        elif form is not None and form.json_schema is not None and form.type == "json_schema":
            named = form.json_schema
            schema = {"type": "object"} if named.schema_ is None else named.schema_
            found.append(Wanted("response_format.json_schema.schema", "json_schema", schema, named.strict is not True))
        if outputs is not None:
            if outputs.json_object:
                found.append(Wanted("structured_outputs.json_object", "json_object"))
            found += _given("structured_outputs.", outputs.json_, outputs.regex, outputs.choice, outputs.grammar)
        return found + _given("guided_", self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar)

    @property
    def whitespace(self) -> str | None:
        """Of JSON: the pattern of what may stand between its parts; "" nothing, None the default."""
        outputs = self.structured_outputs
        if outputs is None:
            return self.guided_whitespace_pattern
        return "" if outputs.disable_any_whitespace else outputs.whitespace_pattern


def _given(prefix: str, schema: Any, regex: str | None, choice: list[str] | None, grammar: str | None) -> list[Wanted]:
    everything = [
        Wanted(f"{prefix}json", "json_schema", schema),
        Wanted(f"{prefix}regex", "regex", regex),
        Wanted(f"{prefix}choice", "choice", choice),
        Wanted(f"{prefix}grammar", "grammar", grammar),
    ]
    return [each for each in everything if each.value is not None]
