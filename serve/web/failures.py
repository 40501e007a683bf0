"""Every failure leaves the gateway in one shape: {"error": {"message", "type", "param", "code"}}."""

import logging

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.error_table import ErrorAnswer, answer_for
from serve.errors import InvalidBody, MethodNotAllowed, ServeError, UnknownPath
from serve.metrics import Metrics

logger = logging.getLogger(__name__)


class Failures:
    """Turns an exception of what is inside it into its answer, unless an answer has begun."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return  # nobody is left to be answered
        except Exception as error:  # the boundary to HTTP: whatever happened, the client gets an answer
            answer = noted(error, self._metrics)
            if begun:
                raise
            await respond(answer)(scope, receive, send)


def noted(error: Exception, metrics: Metrics) -> ErrorAnswer:
    """The answer to a failure, once it is counted, and logged where it is the server's."""
    answer = answer_for(error)
    code = answer.body["error"]["code"]
    metrics.errors.labels(code).inc()
    if code == "internal_error":
        logger.error("request failed", exc_info=error, extra={"action": "request_failed"})
    elif answer.status >= 500:
        logger.warning("request failed: %s", error, extra={"action": "request_failed", "code": code})
    return answer


def respond(answer: ErrorAnswer) -> Response:
    """An error as a response."""
    return JSONResponse(answer.body, answer.status, answer.headers)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """What the routing and the parser of forms refuse, in our shape."""
    assert isinstance(error, HTTPException)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    answer = answer_for(_ours(request, error, headers.get("allow", "")))
    return JSONResponse(answer.body, answer.status, answer.headers | headers)


def _ours(request: Request, error: HTTPException, allowed: str) -> ServeError:
    method, path = request.method, request.url.path
    match error.status_code:
        case 404:
            return UnknownPath(method, path)
        case 405:
            return MethodNotAllowed(method, path, allowed)
        case _:
            return InvalidBody(error.detail)
