"""GET /v1/models: base models, endpoints and loaded adapters, each a card of the OpenAI API."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from serve.errors import UnknownModel
from serve.gateway import Gateway


def router(gateway: Gateway) -> APIRouter:
    """The routes that list what `model` may be."""
    routes = APIRouter()

    @routes.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.tenant(request.headers)
        return {"object": "list", "data": _cards(gateway)}

    @routes.get("/v1/models/{name:path}")
    async def model(name: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.tenant(request.headers)
        for card in _cards(gateway):
            if card["id"] == name:
                return card
        raise UnknownModel(name)

    return routes


def _cards(gateway: Gateway) -> list[dict[str, Any]]:
    lengths = {member.report.base_model: member.report.max_model_len for member in gateway.fleet.members()}
    return [
        {
            "id": item.name,
            "object": "model",
            "created": int(item.created_at.timestamp()),
            "owned_by": "noria",
            "root": item.root,
            "parent": item.parent,
            "max_model_len": lengths.get(item.base_model),
            "kind": item.kind,
        }
        for item in gateway.router.names()
    ]
