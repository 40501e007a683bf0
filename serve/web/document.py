"""The OpenAPI document of a gateway, made of what its routes say of themselves."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from serve.answers.schema import Error, ErrorDetail
from serve.caller import MAX_HEADER_CHARS
from serve.error_table import INTERNAL, TABLE, Row, row_for
from serve.errors import HeadersTooLarge
from serve.web.described import EVENTS, JSON, Description, Errors, Key, description_of
from serve.web.schemas import Schema, Schemas

_SECURITY: dict[Key, list[dict[str, list[str]]]] = {
    "none": [],
    "api": [{"api_key": []}, {}],
    "admin": [{"admin_key": []}, {}],
}
_KEYS = {
    "api_key": "A client's key, or the admin key; asked for where [server] require_api_key is set.",
    "admin_key": "The key of [server] admin_key, where one is set.",
}
_CALLER: tuple[tuple[str, Schema, str], ...] = (
    ("x-request-id", {}, "An id of the client's own, which is sent back."),
    ("x-noria-user", {}, "Whom the request is for, where the body does not say; fixes its arm of a canary."),
    ("x-noria-conversation", {}, "The conversation it belongs to, kept in the record."),
    ("x-noria-parent", {"format": "uuid"}, "Id of the request whose answer this one makes anew."),
    ("x-noria-source", {"enum": ["traffic", "eval"]}, "eval keeps it out of what the loop learns from."),
)
_HEADERS = {
    "x-request-id": "The id that the client sent, or one made for this request.",
    "x-noria-request-id": "Id of the record of this request; feedback names it.",
    "x-noria-adapter": "Id of the adapter that answers, or base.",
    "x-noria-variant": "prod, canary, adapter or base: by which way it was chosen.",
    "x-noria-choice-ids": "Where there are several choices, the id of the record of each.",
    "retry-after": "Seconds to wait before trying again.",
}


def document(routers: Iterable[APIRouter]) -> dict[str, Any]:
    """OpenAPI 3.1. Raises KeyError for a route without a description."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    described = [(route, description_of(route)) for route in routes]
    schemas = Schemas(_kinds(each for _, each in described))
    schemas.whole(ErrorDetail)["properties"]["code"]["enum"] = sorted({row.code for row in TABLE.values()})
    paths: dict[str, Any] = {}
    for route, each in described:
        path = re.sub(r"{(\w+):path}", r"{\1}", route.path)
        for method in route.methods or ():
            paths.setdefault(path, {})[method.lower()] = _operation(f"{method.lower()} {path}", each, schemas)
    keys = {name: {"type": "http", "scheme": "bearer", "description": says} for name, says in _KEYS.items()}
    text = {"type": "string"}
    headers = {name: {"description": says, "schema": text} for name, says in _HEADERS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "noria", "version": version("noria")},
        "paths": paths,
        "components": {"schemas": schemas.all, "securitySchemes": keys, "headers": headers},
    }


def _kinds(described: Iterable[Description]) -> Iterable[Any]:
    yield from (Error, ErrorDetail)
    for each in described:
        yield from (kind for kind in (each.body, each.query) if kind is not None)
        yield from each.answer.values()
        yield from each.also.values()


def _operation(name: str, each: Description, schemas: Schemas) -> Schema:
    made: Schema = {
        "operationId": re.sub(r"\W+", "_", name).strip("_"),
        "summary": each.summary,
        "tags": [each.tag],
        "security": _SECURITY[each.key],
        "parameters": _parameters(each, schemas),
        "responses": _responses(each, schemas),
    }
    if each.body is not None:
        content = {each.body_media: {"schema": schemas.of(each.body)}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _parameters(each: Description, schemas: Schemas) -> list[Schema]:
    found = [_parameter("path", name, {"type": "string"}, says) for name, says in each.path.items()]
    if each.query is not None:
        for name, part in schemas.whole(each.query)["properties"].items():
            schema = {key: value for key, value in part.items() if key != "description"}
            found.append(_parameter("query", name, schema, part.get("description", "")))
    if each.caller:
        text = {"type": "string", "maxLength": MAX_HEADER_CHARS}
        found += [_parameter("header", name, text | more, says) for name, more, says in _CALLER]
    return found


def _parameter(place: str, name: str, schema: Schema, says: str) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": says}


def _responses(each: Description, schemas: Schemas) -> Schema:
    also = {
        str(status): {
            "description": each.summary,
            "headers": _headers(()),
            "content": {JSON: {"schema": schemas.of(kind)}},
        }
        for status, kind in each.also.items()
    }
    return {str(each.status): _success(each, schemas), **_failures(each, schemas), **also}


def _success(each: Description, schemas: Schemas) -> Schema:
    content = {
        media: {"schema": _events(schemas.of(kind)) if media == EVENTS else schemas.of(kind)}
        for media, kind in each.answer.items()
    }
    return {"description": each.summary, "headers": _headers(each.headers), "content": content}


def _events(data: Schema) -> Schema:
    """JSON Schema describes no sequence of events: a text, and what the data of each event is."""
    says = "Events `data: {...}`, the last one `data: [DONE]`; comments may come between them."
    return {"type": "string", "description": says, "contentMediaType": JSON, "contentSchema": data}


def _failures(each: Description, schemas: Schemas) -> Schema:
    met: dict[int, dict[str, Row]] = {}
    refusals: Errors = (HeadersTooLarge, *each.refusals)
    rows = [row_for(kind) or INTERNAL for kind in refusals]
    for row in (*rows, INTERNAL):
        met.setdefault(row.status, {})[row.code] = row
    return {
        str(status): {
            "description": ", ".join(f"`{code}`" for code in sorted(rows)),
            "headers": _headers(["retry-after" for row in rows.values() if row.retry_after_s]),
            "content": {JSON: {"schema": schemas.of(Error)}},
        }
        for status, rows in sorted(met.items())
    }


def _headers(names: Iterable[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *names)}
