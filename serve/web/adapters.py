"""The admin API for adapters: vLLM's load and unload with plain-text answers, and resources of our own.

An adapter's id may hold slashes, so it is the rest of a path, up to the action.
"""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

import engine.errors
import lora.errors
from db.errors import IllegalTransition
from serve.admin import Loaded
from serve.answers.schema_admin import Adapter, AdapterCheck, AdapterList, AdapterLoaded, AdapterUnloaded
from serve.error_table import TABLE
from serve.errors import (
    AdapterAlreadyLoaded,
    AdapterNameTaken,
    AdapterNotServed,
    BrokenTemplate,
    NoReplica,
    RegistryUnavailable,
    ReplicaLost,
    UnknownAdapterName,
)
from serve.gateway import Gateway
from serve.protocol.admin import (
    AdapterQuery,
    LoadAdapterBody,
    UnloadAdapterBody,
    check_id,
    parse_load,
    parse_query,
    parse_unload,
)
from serve.web.body import read_object
from serve.web.described import JSON, TEXT, Description, Errors

_REFUSALS = (
    lora.errors.LoraError,
    engine.errors.AdapterTooLarge,
    engine.errors.AdapterMismatch,
    engine.errors.NoAdapterSlots,
    engine.errors.AdapterInUse,
    engine.errors.EngineClosed,
    MemoryError,
)
_LOADING: Errors = (
    BrokenTemplate,
    NoReplica,
    ReplicaLost,
    RegistryUnavailable,
    *(kind for kind in TABLE if issubclass(kind, _REFUSALS)),
)
_ID = {"adapter_id": "Id of an adapter; it may hold slashes."}

_LOAD = Description(
    summary="Load an adapter from a folder, on every replica of its base model.",
    tag="adapters",
    key="admin",
    body=LoadAdapterBody,
    answer={TEXT: str, JSON: AdapterLoaded},
    errors=(AdapterNameTaken, AdapterAlreadyLoaded, *_LOADING),
)
_UNLOAD = Description(
    summary="Stop naming an adapter, and free it once its last request has ended.",
    tag="adapters",
    key="admin",
    body=UnloadAdapterBody,
    answer={TEXT: str, JSON: AdapterUnloaded},
    errors=(UnknownAdapterName, RegistryUnavailable, ReplicaLost),
)
_LIST = Description(
    summary="The adapters of the registry, and where each is at this moment.",
    tag="adapters",
    key="admin",
    query=AdapterQuery,
    answer={JSON: AdapterList},
    errors=(RegistryUnavailable,),
)
_ONE = Description(
    summary="One adapter, whatever its status.",
    tag="adapters",
    key="admin",
    path=_ID,
    answer={JSON: Adapter},
    errors=(UnknownAdapterName, RegistryUnavailable),
)
_PIN = Description(
    summary="Keep an adapter on every replica from now on, also after a restart.",
    tag="adapters",
    key="admin",
    path=_ID,
    answer={JSON: Adapter},
    errors=(UnknownAdapterName, AdapterNotServed, IllegalTransition, *_LOADING),
)
_UNPIN = replace(_PIN, summary="Keep an adapter no longer than it is used.")
_CHECK = Description(
    summary="Compare what an adapter computes with weights into which it was merged.",
    tag="adapters",
    key="admin",
    path=_ID,
    answer={JSON: AdapterCheck},
    errors=(UnknownAdapterName, AdapterNotServed, *_LOADING),
)


def router(gateway: Gateway) -> APIRouter:
    """The admin routes; all need the admin key where one is set."""
    routes = APIRouter()
    _add_vllms(routes, gateway)
    _add_ours(routes, gateway)
    return routes


def _add_vllms(routes: APIRouter, gateway: Gateway) -> None:
    @routes.post("/v1/load_lora_adapter", openapi_extra=_LOAD.extra)
    async def load(request: Request) -> Response:
        gateway.doorkeeper.admin(request.headers)
        body = parse_load(await read_object(request, gateway.config.max_body_bytes))
        loaded = await gateway.admin.load(body)
        text = f"Success: LoRA adapter '{loaded.name}' added successfully."
        if _wants_json(request):
            return JSONResponse({"message": text, **_told(loaded)})
        warnings = (f"Warning: {warning}" for warning in loaded.warnings)
        return PlainTextResponse("\n".join([text, *warnings]))

    @routes.post("/v1/unload_lora_adapter", openapi_extra=_UNLOAD.extra)
    async def unload(request: Request) -> Response:
        gateway.doorkeeper.admin(request.headers)
        body = parse_unload(await read_object(request, gateway.config.max_body_bytes))
        unloaded = await gateway.admin.unload(body.lora_name)
        text = f"Success: LoRA adapter '{unloaded.name}' removed successfully."
        if _wants_json(request):
            facts = {"id": unloaded.name, "digest": unloaded.digest, "replicas": unloaded.replicas}
            return JSONResponse({"message": text, **facts})
        return PlainTextResponse(text)


def _add_ours(routes: APIRouter, gateway: Gateway) -> None:
    @routes.get("/v1/adapters", openapi_extra=_LIST.extra)
    async def adapters(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        return await gateway.listing.page(parse_query(request.query_params))

    @routes.get("/v1/adapters/{adapter_id:path}", openapi_extra=_ONE.extra)
    async def adapter(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        return await gateway.listing.one(check_id(adapter_id))

    @routes.post("/v1/adapters/{adapter_id:path}/pin", openapi_extra=_PIN.extra)
    async def pin(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        await gateway.admin.pin(check_id(adapter_id), True)
        return await gateway.listing.one(adapter_id)

    @routes.post("/v1/adapters/{adapter_id:path}/unpin", openapi_extra=_UNPIN.extra)
    async def unpin(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        await gateway.admin.pin(check_id(adapter_id), False)
        return await gateway.listing.one(adapter_id)

    @routes.post("/v1/adapters/{adapter_id:path}/check", openapi_extra=_CHECK.extra)
    async def check(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        return {"object": "adapter.check", **await gateway.admin.check(check_id(adapter_id))}


def _wants_json(request: Request) -> bool:
    """vLLM answers in plain text, so JSON is for those who ask for it and not for plain text as well."""
    kinds = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")}
    return "application/json" in kinds and "text/plain" not in kinds


def _told(loaded: Loaded) -> dict[str, Any]:
    adapter, report = loaded.candidate.adapter, loaded.candidate.report
    return {
        "object": "adapter",
        "id": loaded.name,
        "digest": adapter.digest,
        "base_model": loaded.candidate.model.name,
        "pinned": loaded.pinned,
        "rank": adapter.rank,
        **report.summary(),
        "warnings": loaded.warnings,
        "replicas": loaded.replicas,
    }
