"""A real S3-protocol server on a free port, and the ways in which one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from boto3.session import Session
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from lora.store import S3Options

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client


class S3Server:
    """Moto's server behind a gate where requests can be made to fail."""

    def __init__(self) -> None:
        self._app = _moto()
        self._server = make_server(
            "127.0.0.1", 0, self._gate, threaded=True, request_handler=_QuietHandler
        )  # fmt: skip
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self._stopping = threading.Event()
        self._fault, self._where, self._method, self._left = "", "", "", 0
        self.sums: list[str] = []
        """SHA-256 sums that requests carried in their headers."""

    def stop(self) -> None:
        """No answer any more: connections are refused."""
        self._stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @property
    def options(self) -> S3Options:
        url = f"http://127.0.0.1:{self._server.server_port}"
        return S3Options(endpoint_url=url, region="us-east-1", timeout_s=5.0, attempts=2)

    def client(self) -> S3Client:
        return Session().client("s3", endpoint_url=self.options.endpoint_url, region_name="us-east-1")

    def fail(self, fault: str, where: str, times: int = 1_000, method: str = "GET") -> None:
        """The next `times` requests of `method` whose path holds `where` meet a fault.

        busy (503), denied (403), cut (half of the body), altered (one wrong byte), silent (no answer).
        """
        self._fault, self._where, self._method, self._left = fault, where, method, times

    def _gate(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.sums += filter(None, [environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")])
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if method != self._method or self._where not in path or self._left < 1:
            return self._app(environ, start_response)
        self._left -= 1
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if self._fault == "silent":
            self._stopping.wait(30)
        if self._fault in ("busy", "silent"):
            return _refusal(start_response, "503 Service Unavailable", "SlowDown")
        if self._fault == "denied":
            return _refusal(start_response, "403 Forbidden", "AccessDenied")
        return self._spoiled(self._app(environ, start_response))

    def _spoiled(self, body: Iterable[bytes]) -> Iterator[bytes]:
        content = b"".join(body)
        yield (
            content[: len(content) // 2] if self._fault == "cut" else content[:-1] + bytes([content[-1] ^ 1])
        )


@cache
def _moto() -> DomainDispatcherApplication:
    """One for all servers of the process, since Moto keeps its buckets by process anyway."""
    return DomainDispatcherApplication(create_backend_app)


class _QuietHandler(MotoRequestHandler):
    def log(self, *args: object) -> None:
        """Nothing."""


def _refusal(start_response: Any, status: str, code: str) -> list[bytes]:
    text = f"<Error><Code>{code}</Code><Message>a-key-id may not</Message></Error>".encode()
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
    return [text]
