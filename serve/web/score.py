"""POST /v1/score: how alike pairs of texts are, by the cosine of their vectors, as vLLM answers it."""

import asyncio
import math
import time
from array import array
from operator import mul
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.answers.schema_embeddings import ScoreList
from serve.gateway import Gateway
from serve.protocol.score import ScoreBody, parse_score
from serve.vectors import Vectors, Wish
from serve.web.body import read_asked, while_connected
from serve.web.described import JSON, VECTORS, WHO, Description

_SCORE = Description(
    summary="The cosine similarity of pairs of texts.",
    tag="embeddings",
    body=ScoreBody,
    answer={JSON: ScoreList},
    errors=VECTORS,
    caller=True,
    headers=WHO,
)


def router(gateway: Gateway) -> APIRouter:
    """The one route, with /v1 before it and without."""
    routes = APIRouter()

    @routes.post("/score", openapi_extra=_SCORE.extra)
    @routes.post("/v1/score", openapi_extra=_SCORE.extra)
    async def score(request: Request) -> Response:
        caller, body = await read_asked(gateway, request, parse_score)
        wish = Wish("score", body, body.sides)
        vectors = await while_connected(request, gateway.vectors.make(wish, caller))
        answer: dict[str, Any] = {
            "id": f"score-{caller.id}",
            "object": "list",
            "created": int(time.time()),
            "model": body.model,
            "data": await asyncio.to_thread(_scores, vectors, len(body.left)),
            "usage": vectors.usage(),
        }
        return JSONResponse(answer, headers=vectors.headers)

    return routes


def _scores(vectors: Vectors, left: int) -> list[dict[str, Any]]:
    """The first `left` vectors are one side: one for all of the others, or one for each."""
    firsts = [vectors.row(place) for place in range(left)]
    return [
        {"index": place, "object": "score", "score": _cosine(firsts[place % left], vectors.row(left + place))}
        for place in range(len(vectors) - left)
    ]


def _cosine(one: "array[float]", other: "array[float]") -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0
