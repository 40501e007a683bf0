"""The JSON schemas of the OpenAPI document: of answers as they are, of bodies as clients may send them.

null counts as not sent for every parameter of a body, and parameters that are not served appear with the
values that change nothing: the schema of a body says what is really taken.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from serve.protocol.body import Body

Schema = dict[str, Any]

NOT_SERVED = "Not served: only a value that changes nothing is taken."
_PREFIX = "#/components/schemas/"


class Schemas:
    """The schemas of some types; `all` has those with a name, by name."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        kinds = list(dict.fromkeys(kinds))
        adapters: list[Any] = [(index, "validation", TypeAdapter(kind)) for index, kind in enumerate(kinds)]
        made, rest = TypeAdapter.json_schemas(adapters, ref_template=_PREFIX + "{model}")
        self.all: dict[str, Schema] = _with_short_names(rest.get("$defs", {}))
        self._of: dict[Any, Schema] = {
            kinds[int(index)]: _with_short_names(schema) for (index, _), schema in made.items()
        }
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Body):
                _as_sent(self.whole(kind), kind)

    def of(self, kind: Any) -> Schema:
        """The schema of a type, or a reference to it. Raises KeyError for one that was not named."""
        return self._of[kind]

    def whole(self, kind: Any) -> Schema:
        """The schema of a type itself."""
        schema = self.of(kind)
        return self.all[schema["$ref"].removeprefix(_PREFIX)] if "$ref" in schema else schema


def _with_short_names(schema: Schema) -> Schema:
    """Where two classes have one name pydantic puts their modules before it; the last part of them does."""
    text = re.sub(r"\bserve__\w+?__([a-z]+)__(?=[A-Z])", lambda met: met[1].title(), json.dumps(schema))
    renamed: Schema = json.loads(text)
    return renamed


def _as_sent(schema: Schema, kind: type[Body]) -> None:
    properties: dict[str, Schema] = schema.setdefault("properties", {})
    for name, part in properties.items():
        part.pop("title", None)
        if name not in schema.get("required", ()):
            properties[name] = _or_null(part)
    for name, values in kind.neutral.items():
        allowed = [value for index, value in enumerate(values) if value not in values[:index]]
        properties[name] = {"enum": [*allowed, None], "description": NOT_SERVED}


def _or_null(schema: Schema) -> Schema:
    """A schema that takes null as well."""
    kept = {key: schema[key] for key in ("description", "default") if schema.get(key) is not None}
    bare = {key: value for key, value in schema.items() if key not in ("description", "default")}
    if isinstance(bare.get("type"), str) and "enum" not in bare:
        return bare | {"type": [bare["type"], "null"]} | kept
    options = bare["anyOf"] if list(bare) == ["anyOf"] else [bare]
    null = {"type": "null"}
    return {"anyOf": [*options, *([] if null in options else [null])]} | kept
