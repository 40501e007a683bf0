"""What a body says of the form of its answer: response_format as OpenAI has it, structured_outputs as vLLM.

Both come down to one grammar. Whether it can be enforced is seen where it is compiled, by the replica, whose
refusal names the parameter that is put down here.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from engine.grammar import Grammar
from serve.protocol.body import Body, Misfit

MAX_SCHEMA_CHARS = 128 << 10
MAX_CHOICES = 4096
_ANY_OBJECT = '{"type":"object"}'

SchemaName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
GrammarText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SCHEMA_CHARS)]
ChoiceText = Annotated[str, StringConstraints(min_length=1, max_length=4096)]

# What older versions of vLLM call the kinds of structured_outputs.
OLDER_NAMES = {
    f"guided_{kind}": f"structured_outputs.{kind}" for kind in ("json", "regex", "choice", "grammar")
}


class NamedSchema(Body):
    """A JSON Schema as response_format carries it. It is enforced whatever `strict` says."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: SchemaName = Field(description="A name for the schema, which changes nothing.")
    description: str | None = Field(default=None, description="What it is for; it is not shown to the model.")
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON Schema that the answer satisfies.")
    strict: bool | None = Field(default=None, description="Changes nothing: every schema is enforced.")


class ResponseFormat(Body):
    """The form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"] = Field(
        description="`text` is free; `json_object` is any JSON object; `json_schema` is what the schema says."
    )
    json_schema: NamedSchema | None = Field(default=None, description="With the type `json_schema` alone.")

    @model_validator(mode="after")
    def _schema_where_it_belongs(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            need = "is needed with" if self.json_schema is None else "does not go with"
            raise Misfit("json_schema", f"json_schema {need} the type {self.type}")
        return self

    @property
    def grammar(self) -> Grammar | None:
        """None for free text."""
        if self.json_schema is not None:
            return schema_grammar(self.json_schema.schema_, "response_format.json_schema.schema")
        return Grammar("json_schema", _ANY_OBJECT, "response_format") if self.type == "json_object" else None


class StructuredOutputs(Body):
    """The form of the answer in one of five kinds, of which exactly one is set."""

    model_config = ConfigDict(serialize_by_alias=True)

    json_: dict[str, Any] | GrammarText | None = Field(
        default=None, alias="json", description="A JSON Schema, as an object or as its text."
    )
    regex: GrammarText | None = Field(
        default=None, description="A regular expression for the whole answer, without look-around."
    )
    choice: list[ChoiceText] | None = Field(
        default=None, min_length=1, max_length=MAX_CHOICES, description="The answer is one of these texts."
    )
    grammar: GrammarText | None = Field(
        default=None,
        description="A context-free grammar in llguidance's Lark-like notation, which begins with the rule "
        "`start`, or in GBNF, which begins with `root`.",
    )
    json_object: Literal[True] | None = Field(default=None, description="true: any JSON object.")

    @field_validator("json_", mode="wrap")
    @classmethod
    def _plain_error(cls, value: Any, check: Any) -> Any:
        """One message where pydantic has one for each kind of value."""
        if value is None or isinstance(value, dict) or (isinstance(value, str) and value):
            return check(value)
        raise ValueError("expected a JSON Schema, as an object or as its text")

    @model_validator(mode="after")
    def _exactly_one(self) -> "StructuredOutputs":
        names = sorted(self.model_fields_set)
        kinds = [name.rstrip("_") for name in names if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise Misfit(
                "",
                f"structured_outputs has {', '.join(kinds) or 'nothing'}; exactly one of "
                "json, regex, choice, grammar and json_object is allowed",
            )
        return self

    @property
    def asked(self) -> Grammar:
        """The grammar that is asked for."""
        if self.json_ is not None:
            if isinstance(self.json_, str):
                return Grammar("json_schema", self.json_, "structured_outputs.json")
            return schema_grammar(self.json_, "structured_outputs.json")
        if self.regex is not None:
            return Grammar("regex", self.regex, "structured_outputs.regex")
        if self.choice is not None:
            return Grammar("choice", json.dumps(self.choice), "structured_outputs.choice")
        if self.grammar is not None:
            return Grammar("lark", self.grammar, "structured_outputs.grammar")
        return Grammar("json_schema", _ANY_OBJECT, "structured_outputs.json_object")


class StructuredBody(Body):
    """Part of the body of a request for text."""

    renamed: ClassVar[Mapping[str, str]] = OLDER_NAMES

    structured_outputs: StructuredOutputs | None = Field(
        default=None,
        description="The form of the answer, from its first token or the end of its thought on: one of json, "
        "regex, choice, grammar, json_object. It ends where nothing may follow, whatever min_tokens says.",
    )

    @property
    def grammar(self) -> Grammar | None:
        """What the answer is a sentence of; None for free text."""
        return None if self.structured_outputs is None else self.structured_outputs.asked


class FormedBody(StructuredBody):
    """Part of a body that may also say by response_format what form its answer has."""

    response_format: ResponseFormat | None = Field(
        default=None, description="The form of the answer: free text, any JSON object, or JSON of a schema."
    )

    @model_validator(mode="after")
    def _one_form(self) -> "FormedBody":
        if self.structured_outputs is not None and self.response_format and self.response_format.grammar:
            raise Misfit("structured_outputs", "structured_outputs does not go with response_format")
        return self

    @property
    def grammar(self) -> Grammar | None:
        """What the answer is a sentence of; None for free text."""
        own = self.response_format.grammar if self.response_format else None
        return own or super().grammar


def schema_grammar(schema: Mapping[str, Any], param: str) -> Grammar:
    """The grammar of a JSON Schema that stands in a body. The order of its properties is the answer's."""
    return Grammar("json_schema", json.dumps(schema), param)
