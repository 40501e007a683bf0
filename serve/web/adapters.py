"""The admin API for adapters: vLLM's load and unload with plain-text answers, and a listing of our own."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from serve.gateway import Gateway
from serve.protocol.admin import parse_load, parse_unload
from serve.web.body import read_object


def router(gateway: Gateway) -> APIRouter:
    """The admin routes; all need the admin key where one is set."""
    routes = APIRouter()

    @routes.post("/v1/load_lora_adapter")
    async def load(request: Request) -> Response:
        gateway.doorkeeper.admin(request.headers)
        body = parse_load(await read_object(request, gateway.config.max_body_bytes))
        warnings = await gateway.admin.load(body)
        text = f"Success: LoRA adapter '{body.lora_name}' added successfully."
        return PlainTextResponse("\n".join([text, *(f"Warning: {warning}" for warning in warnings)]))

    @routes.post("/v1/unload_lora_adapter")
    async def unload(request: Request) -> Response:
        gateway.doorkeeper.admin(request.headers)
        body = parse_unload(await read_object(request, gateway.config.max_body_bytes))
        await gateway.admin.unload(body.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    @routes.get("/v1/adapters")
    async def adapters(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.admin(request.headers)
        return {"object": "list", "data": await gateway.admin.listing()}

    return routes
