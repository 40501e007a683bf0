"""POST /tokenize and /detokenize, as vLLM answers them: what a text is to a model. No replica is needed."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from engine.errors import NoChatTemplate
from serve.answers.schema_tokens import Detokenized, Tokens
from serve.errors import InvalidField, UnknownModel
from serve.gateway import Gateway
from serve.prompts import beside, of_text
from serve.protocol.tokens import DetokenizeBody, TokenizeBody, parse_detokenize, parse_tokenize
from serve.routing import Route
from serve.visible import VisibleText, all_special
from serve.web.body import read_object
from serve.web.described import JSON, Description

_TOKENIZE = Description(
    summary="The token ids that a model reads for a text or a conversation.",
    tag="tokenize",
    body=TokenizeBody,
    answer={JSON: Tokens},
    errors=(UnknownModel, NoChatTemplate),
)
_DETOKENIZE = Description(
    summary="The text of token ids.",
    tag="tokenize",
    body=DetokenizeBody,
    answer={JSON: Detokenized},
    errors=(UnknownModel,),
)


def router(gateway: Gateway) -> APIRouter:
    """Both routes, each with /v1 before it and without."""
    routes = APIRouter()

    @routes.post("/tokenize", openapi_extra=_TOKENIZE.extra)
    @routes.post("/v1/tokenize", openapi_extra=_TOKENIZE.extra)
    async def tokenize(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.tenant(request.headers)
        body = parse_tokenize(await read_object(request, gateway.config.max_body_bytes))
        route = gateway.router.route(body.model, "", task=None)
        ids = await _ids(gateway, route, body)
        spelling = route.model.tokenizer.spelling
        return {
            "count": len(ids),
            "max_model_len": gateway.max_model_len(route.model.name),
            "tokens": ids,
            "token_strs": await beside(len(ids), lambda: list(map(spelling, ids)))
            if body.return_token_strs
            else None,
        }

    @routes.post("/detokenize", openapi_extra=_DETOKENIZE.extra)
    @routes.post("/v1/detokenize", openapi_extra=_DETOKENIZE.extra)
    async def detokenize(request: Request) -> dict[str, Any]:
        gateway.doorkeeper.tenant(request.headers)
        body = parse_detokenize(await read_object(request, gateway.config.max_body_bytes))
        route = gateway.router.route(body.model, "", task=None)
        return {"prompt": await beside(len(body.tokens), lambda: _text(route, body))}

    return routes


async def _ids(gateway: Gateway, route: Route, body: TokenizeBody) -> tuple[int, ...]:
    if body.prompt is not None:
        marks = body.add_special_tokens is not False
        return await of_text(route.model.tokenizer, body.prompt, add_special_tokens=marks)
    written = await gateway.prompts.of_chat(route, body.talk)
    return written.ids


def _text(route: Route, body: DetokenizeBody) -> str:
    """Raises InvalidField for an id that the model does not have."""
    vocabulary = route.model.spec.vocab_size
    for place, id_ in enumerate(body.tokens):
        if id_ >= vocabulary:
            raise InvalidField(
                f"tokens[{place}] is {id_}; allowed: 0 to {vocabulary - 1}", f"tokens[{place}]"
            )
    tokenizer = route.model.tokenizer
    return VisibleText(tokenizer, special=all_special(tokenizer)).prompt_text(body.tokens)
