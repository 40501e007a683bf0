"""docs/api.md, made of the OpenAPI document: `python -m serve.apidoc > docs/api.md`.

Nothing in it is written by hand but the few paragraphs about what no schema says.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from serve.apiwords import Schema, default_of, type_of
from serve.error_table import TABLE
from serve.gateway import Gateway
from serve.web.app import routers
from serve.web.document import document
from serve.web.schemas import NOT_SERVED

_INTRO = """# The HTTP API

Made by `python -m serve.apidoc` of the same description as `GET /openapi.json`; a test compares them.

Every parameter does what it says here or is refused with a 400 that names it: nothing is ignored. `null`
counts as not sent. A body is JSON in UTF-8, `Content-Type: application/json`, not compressed, nested at
most 128 levels deep, and has at most 4 MiB; files have a bound of their own. An unknown `model` is a 404,
also one that differs in case alone, and never an answer by another.
"""
_STREAMS = """## Streams

`stream: true` is answered with `text/event-stream`: events of one `data:` line each, and `data: [DONE]` at
the end of chat and text completions. A chat begins, for each choice, with a chunk that has the role; then
come its chunks with text, reasoning or calls; its last chunk has `finish_reason`. With
`stream_options.include_usage` one more chunk without choices has the usage, and all others have `usage:
null`. The parts of a stream joined are the answer that the same request gets without `stream`.

A failure before the first token has its own status. One in the middle is an event `{"error": {...}}`, after
which the stream ends in order. After 15 seconds of silence (`[server] keep_alive_s`) a comment `:
keep-alive` is sent between two events, which clients skip. When the client leaves, its request ends within
a step, wherever it is.
"""


def page(made: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    operations = list(_operations(made))
    tags = list(dict.fromkeys(each["tags"][0] for _, _, each in operations))
    parts = [_INTRO, _headers(made, operations)]
    for tag in tags:
        mine = [operation for operation in operations if operation[2]["tags"][0] == tag]
        parts.append(_section(tag, mine, made))
    return "\n".join([*parts, _STREAMS, _errors()])


def _operations(made: dict[str, Any]) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in made["paths"].items():
        for method, each in methods.items():
            yield path, method.upper(), each


def _section(tag: str, operations: list[tuple[str, str, Schema]], made: dict[str, Any]) -> str:
    lines = [f"## {tag[0].upper()}{tag[1:]}", ""]
    shown: set[str] = set()
    for path, method, each in operations:
        key = " Needs the admin key where one is set." if _needs_admin(each) else ""
        codes = ", ".join(_codes(each))
        lines += [f"**`{method} {path}`** {each['summary']}{key} Refused with {codes}.", ""]
        lines += _query(each, made)
        for media, content in each.get("requestBody", {}).get("content", {}).items():
            name = content["schema"].get("$ref", "").rpartition("/")[2]
            if name and name not in shown:
                shown.add(name)
                lines += _body(media, name, made)
            elif name:
                lines += [f"Takes the same body: {name}.", ""]
    return "\n".join(lines)


def _needs_admin(each: Schema) -> bool:
    return any("admin_key" in option for option in each["security"])


def _codes(each: Schema) -> list[str]:
    found = [answer["description"] for status, answer in each["responses"].items() if status >= "400"]
    codes = {code for text in found for code in text.split(", ") if code.startswith("`")}
    return sorted(codes - {"`internal_error`", "`headers_too_large`"}) or ["nothing of its own"]


def _query(each: Schema, made: dict[str, Any]) -> list[str]:
    found = [item for item in each["parameters"] if item["in"] in ("query", "path")]
    if not found:
        return []
    rows = [
        (item["name"], item["in"], type_of(item["schema"]), default_of(item["schema"]), item["description"])
        for item in found
    ]
    return [*_table(("name", "in", "type", "default", "what it does"), rows), ""]


def _body(media: str, name: str, made: dict[str, Any]) -> list[str]:
    schema = made["components"]["schemas"][name]
    required = schema.get("required", ())
    served, refused = [], []
    for parameter, part in sorted(
        schema["properties"].items(), key=lambda item: (item[0] not in required, item[0])
    ):
        if part.get("description") == NOT_SERVED:
            refused.append((parameter, _neutral(part["enum"])))
        else:
            default = "required" if parameter in required else default_of(part)
            served.append((parameter, type_of(part), default, part.get("description", "")))
    lines = [f"Body, `{media}`:", "", *_table(("parameter", "type", "default", "what it does"), served), ""]
    for inner in _inner(name, made):
        lines += _part(inner, made)
    if refused:
        lines += [
            "Not served: values that change nothing are taken, others refused (`unsupported_parameter`).",
            "",
        ]
        lines += [*_table(("parameter", "values taken"), refused), ""]
    return lines


def _inner(name: str, made: dict[str, Any]) -> list[str]:
    """Named parts of a body, in the order in which they are met."""
    found: list[str] = []
    waiting = [made["components"]["schemas"][name]["properties"]]
    while waiting:
        for reference in _references(waiting.pop(0)):
            if reference not in found:
                found.append(reference)
                waiting.append(made["components"]["schemas"][reference])
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _part(name: str, made: dict[str, Any]) -> list[str]:
    schema = made["components"]["schemas"][name]
    if "properties" not in schema:
        return []
    required = schema.get("required", ())
    rows = [
        (
            field,
            type_of(part),
            "required" if field in required else default_of(part),
            part.get("description", ""),
        )
        for field, part in schema["properties"].items()
    ]
    says = " ".join(schema.get("description", "").split("\n\n")[0].split())
    return [f"`{name}`: {says}", "", *_table(("field", "type", "default", "what it does"), rows), ""]


def _neutral(values: list[Any]) -> str:
    shown = [f"`{json.dumps(value)}`" for value in values if value is not None]
    return ", ".join(shown) or "none"


def _headers(made: dict[str, Any], operations: Iterable[tuple[str, str, Schema]]) -> str:
    sent = {
        item["name"]: item["description"]
        for _, _, each in operations
        for item in each["parameters"]
        if item["in"] == "header"
    }
    told = {name: part["description"] for name, part in made["components"]["headers"].items()}
    keys = made["components"]["securitySchemes"]
    rows = [
        ("authorization", "Bearer, a key. " + " ".join(f"{part['description']}" for part in keys.values()))
    ]
    lines = [
        "## Headers",
        "",
        "Of a request:",
        "",
        *_table(("header", "what it does"), [*rows, *sent.items()]),
    ]
    lines += ["", "Of an answer:", "", *_table(("header", "what it says"), told.items()), ""]
    return "\n".join(lines)


def _errors() -> str:
    rows = {(row.status, row.code, row.type, str(row.retry_after_s or "")) for row in TABLE.values()}
    lines = [
        "## Errors",
        "",
        'Every failure has the shape `{"error": {"message", "type", "param", "code"}}`; `param` names the',
        "parameter to change. Where `retry-after` is given the same request may succeed later.",
        "",
        *_table(
            ("status", "code", "type", "retry-after"),
            [(str(status), f"`{code}`", kind, wait) for status, code, kind, wait in sorted(rows)],
        ),
        "",
    ]
    return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    body = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page(document(routers(Gateway.__new__(Gateway)))))  # a gateway that is only described
