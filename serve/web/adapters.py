"""The admin API for adapters: vLLM's load and unload with plain-text answers, and resources of our own.

An adapter's id may hold slashes, so it is the rest of a path, up to the action.
"""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from serve.admin import Loaded
from serve.gateway import Gateway
from serve.protocol.admin import check_id, parse_load, parse_query, parse_unload
from serve.web.body import read_object


def router(gateway: Gateway) -> APIRouter:
    """The admin routes; all need the admin key where one is set."""
    routes = APIRouter()
    _add_vllms(routes, gateway)
    _add_ours(routes, gateway)
    return routes


def _add_vllms(routes: APIRouter, gateway: Gateway) -> None:
    @routes.post("/v1/load_lora_adapter")
    async def load(request: Request) -> Response:
        gateway.doorkeeper.admin(request.headers)
        body = parse_load(await read_object(request, gateway.config.max_body_bytes))
        loaded = await gateway.admin.load(body)
        text = f"Success: LoRA adapter '{loaded.name}' added successfully."
        if _wants_json(request):
            return JSONResponse({"message": text, **_told(loaded)})
        warnings = (f"Warning: {warning}" for warning in loaded.warnings)
        return PlainTextResponse("\n".join([text, *warnings]))

    @routes.post("/v1/unload_lora_adapter")
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
    @routes.get("/v1/adapters")
    async def adapters(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        return await gateway.listing.page(parse_query(request.query_params))

    @routes.get("/v1/adapters/{adapter_id:path}")
    async def adapter(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        return await gateway.listing.one(check_id(adapter_id))

    @routes.post("/v1/adapters/{adapter_id:path}/pin")
    async def pin(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        await gateway.admin.pin(check_id(adapter_id), True)
        return await gateway.listing.one(adapter_id)

    @routes.post("/v1/adapters/{adapter_id:path}/unpin")
    async def unpin(adapter_id: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        await gateway.admin.pin(check_id(adapter_id), False)
        return await gateway.listing.one(adapter_id)

    @routes.post("/v1/adapters/{adapter_id:path}/check")
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
