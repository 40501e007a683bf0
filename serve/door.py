"""The deployment that listens for clients: one process of it is one gateway with an HTTP server of its own.

Ray Serve starts, watches and restarts it; its HTTP proxies stay off (bench/RESULTS.md has the figures).
Several gateways of one machine share the port by SO_REUSEPORT.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn

from serve.config import AppConfig
from serve.directory import GatewayReport, View
from serve.gateway import Gateway
from serve.web.app import make_app

BACKLOG = 2048

logger = logging.getLogger(__name__)


def listening_socket(host: str, port: int) -> socket.socket:
    """Raises OSError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    return listener


class Door:
    """Ray Serve builds one of these in each gateway's process."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits a constructor that is a coroutine
        self, config: AppConfig, token: str, directory: Any, replicas: Sequence[Any]
    ) -> None:
        """`replicas` are not called: naming them here makes Ray Serve deploy them with the gateway."""

        async def exchange(report: GatewayReport) -> View:
            view: View = await directory.exchange.remote(report)
            return view

        self._gateway = Gateway(config, token, exchange)
        await self._gateway.start()
        settings = uvicorn.Config(
            make_app(self._gateway),
            log_config=None,
            access_log=False,
            lifespan="off",
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(config.drain_s),
        )
        self._server = _Server(settings)
        listener = listening_socket(config.host, config.port)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces a gateway that raises here."""
        if self._serving.done():
            raise RuntimeError("the HTTP server of this gateway has ended")

    async def __del__(self) -> None:
        """Called by Ray Serve when the gateway is stopped in order: let streams finish, flush the record."""
        self._server.should_exit = True
        await self._serving
        await self._gateway.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which belong to Ray's worker and to the main thread."""

    def capture_signals(self) -> Any:
        return contextlib.nullcontext()
