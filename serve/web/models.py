"""GET /v1/models: base models, endpoints and loaded adapters, each a card of the OpenAI API."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from serve.answers.schema_admin import Model, ModelList
from serve.config import ModelConfig
from serve.errors import UnknownModel
from serve.gateway import Gateway
from serve.web.described import JSON, Description

_LIST = Description(summary="Every name that `model` may be.", tag="models", answer={JSON: ModelList})
_ONE = Description(
    summary="One name that `model` may be.",
    tag="models",
    path={"name": "A base model, an endpoint or an adapter."},
    answer={JSON: Model},
    errors=(UnknownModel,),
)


def router(gateway: Gateway) -> APIRouter:
    """The routes that list what `model` may be."""
    routes = APIRouter()

    @routes.get("/v1/models", openapi_extra=_LIST.extra)
    async def models(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.tenant(request.headers)
        return {"object": "list", "data": _cards(gateway)}

    @routes.get("/v1/models/{name:path}", openapi_extra=_ONE.extra)
    async def model(name: str, request: Request) -> dict[str, Any]:
        gateway.doorkeeper.tenant(request.headers)
        for card in _cards(gateway):
            if card["id"] == name:
                return card
        raise UnknownModel(name)

    return routes


def _cards(gateway: Gateway) -> list[dict[str, Any]]:
    return [
        {
            "id": item.name,
            "object": "model",
            "created": int(item.created_at.timestamp()),
            "owned_by": "noria",
            "root": item.root,
            "parent": item.parent,
            "max_model_len": gateway.max_model_len(item.base_model),
            "kind": item.kind,
            "task": gateway.config.model(item.base_model).task,
            "form": _form(gateway.config.model(item.base_model)),
        }
        for item in gateway.router.names()
    ]


def _form(model: ModelConfig) -> dict[str, str | None]:
    """What the weights and the cached keys and values really are; the digest names the model's folder."""
    engine = model.engine
    weights = engine.dtype if engine.weights == "model" else engine.weights
    return {"weights": weights, "kv_cache": engine.kv_dtype if model.task == "generate" else None}
