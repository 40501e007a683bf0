"""A gateway with everything real but the model: HTTP server, data plane, residency, registry and database.

The engine runs on the published fake runner, whose completion for a prompt, a seed and an adapter is known
without any server: `Served.expected`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import uvicorn
from safetensors.numpy import save_file

import db.registry
from db import migrate
from db.database import Database
from db.embedded import EmbeddedPostgres
from engine.config import EngineConfig
from engine.fake_runner import expected
from engine.tokenizer import Tokenizer
from serve.config import AppConfig, ModelConfig
from serve.directory import Directory
from serve.door import listening_socket
from serve.gateway import Gateway
from serve.web.app import make_app
from tests.contract.model_folder import BASE, VOCABULARY, write_adapter, write_model
from tests.contract.replicas import TOKEN, Replica
from tests.contract.s3_server import S3Server
from tests.contract.shelves import FileShelf, S3Shelf, Shelf

BASE_DIGEST = "sha256:" + "ab" * 32
ADMIN = {"authorization": "Bearer root"}


@dataclass
class Served:
    """What the tests talk to."""

    url: str
    config: AppConfig
    database: Database
    gateway: Gateway
    replicas: list[Replica]
    loop: asyncio.AbstractEventLoop
    tokenizer: Tokenizer
    make_adapter: Callable[..., str]
    directory: Directory

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=30)

    @property
    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something on the gateway's loop."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(30)

    def expected(self, prompt: str, max_tokens: int, *, seed: int, adapter: str | None = None) -> str:
        """The text that answers a plain prompt."""
        ids = self.tokenizer.encode(prompt)
        made = expected(ids, max_tokens, seed=seed, adapter=adapter, vocab_size=VOCABULARY)
        return self.tokenizer.decode(made)

    def load(self, name: str, path: str, **options: Any) -> httpx.Response:
        with self.http as http:
            body = {"lora_name": name, "lora_path": path, **options}
            return http.post("/v1/load_lora_adapter", json=body, headers=ADMIN)

    def unload(self, name: str) -> httpx.Response:
        with self.http as http:
            return http.post("/v1/unload_lora_adapter", json={"lora_name": name}, headers=ADMIN)

    def until(self, check: Callable[[], Any]) -> Any:
        """Wait until something holds."""
        deadline = time.monotonic() + 15
        while not (found := check()):
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.01)
        return found

    @contextlib.contextmanager
    def another(self, **changes: Any) -> Iterator[Served]:
        """A second gateway beside the first, on a port of its own."""
        config = replace(self.config, port=_free_port(), **changes)
        running = self.run(_open(config, self.directory))
        yield replace(self, url=f"http://{config.host}:{config.port}", config=config, gateway=running.gateway)
        self.run(running.close())

    def idle(self) -> bool:
        """No replica has a request, a used block or a pin left."""
        stats = [replica.engine.stats() for replica in self.replicas]
        pins = [item.pins for replica in self.replicas for item in replica.residency.snapshot()]
        return not any(pins) and all(
            item.running == item.waiting == 0 and item.blocks_free == item.blocks_total for item in stats
        )


@pytest.fixture
def make_adapter_folder(tmp_path: Path) -> Callable[..., Path]:
    """make_adapter_folder(number=1, size=32): a new adapter folder; equal arguments give equal content."""
    made = iter(range(1000))

    def build(number: int = 1, size: int = 32) -> Path:
        folder = tmp_path / f"made-{next(made)}"
        folder.mkdir()
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": number, "target_modules": ["q_proj"]}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        random, key = np.random.default_rng(number), "base_model.model.model.layers.0.self_attn.q_proj"
        tensors = {
            f"{key}.lora_A.weight": random.normal(size=(2, size)).astype(np.float32),
            f"{key}.lora_B.weight": random.normal(size=(size, 2)).astype(np.float32),
        }
        save_file(tensors, folder / "adapter_model.safetensors")
        return folder

    return build


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of nobody, and none of this machine's."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


@pytest.fixture(params=["file", "s3"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path, s3_credentials: None) -> Iterator[Shelf]:
    """Where a store keeps its bytes: a folder, and a bucket of an S3-protocol server."""
    if request.param == "file":
        yield FileShelf(tmp_path / "store")
        return
    server = S3Server()
    try:
        yield S3Shelf(server)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="noria-contract-"))
    server = EmbeddedPostgres(folder / "postgres", settings={"fsync": "off"})
    url = server.start()
    migrate.upgrade(url)
    yield url
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def database(database_url: str) -> Iterator[Database]:
    with Database(database_url, max_size=4) as made:
        yield made


@pytest.fixture(scope="session")
def served(
    database: Database, database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The platform, once for all tests: one base model on two replicas, one endpoint."""
    root = tmp_path_factory.mktemp("platform")
    folder = write_model(root / "model")
    db.registry.register_base_model(database, BASE, BASE_DIGEST, str(folder))
    db.registry.create_endpoint(database, "assistant", BASE)
    settings = EngineConfig(model=folder, adapter_slots=4)
    config = AppConfig(
        models=(ModelConfig(name=BASE, folder=folder, engine=settings, replicas=2),),
        database_url=database_url,
        store_url=(root / "store").as_uri(),
        cache_root=root / "cache",
        spool_dir=root / "spool",
        adapter_roots=(root / "adapters",),
        admin_key="root",
        port=_free_port(),
        max_body_bytes=1 << 20,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="platform")
    thread.start()
    made = asyncio.run_coroutine_threadsafe(_start(config, database, root), loop).result(60)
    platform, running = made
    yield platform
    asyncio.run_coroutine_threadsafe(_stop(platform, running), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@dataclass
class Running:
    """A gateway and its HTTP server."""

    gateway: Gateway
    server: uvicorn.Server
    serving: asyncio.Task[None]

    async def close(self) -> None:
        self.server.should_exit = True
        await self.serving
        await self.gateway.close()


async def _open(config: AppConfig, directory: Directory) -> Running:
    gateway = Gateway(config, TOKEN, directory.exchange)
    await gateway.start()
    settings = uvicorn.Config(make_app(gateway), log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(settings)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]  # not the main thread
    serving = asyncio.create_task(server.serve(sockets=[listening_socket(config.host, config.port)]))
    async with asyncio.timeout(30):
        while len(gateway.fleet.members()) < 2:
            await gateway.fleet.refresh()
            await asyncio.sleep(0.02)
    return Running(gateway, server, serving)


async def _start(config: AppConfig, database: Database, root: Path) -> Any:
    directory = Directory()
    replicas = [Replica(config.models[0].engine, f"replica-{number}", directory) for number in range(2)]
    for replica in replicas:
        await replica.start()
    running = await _open(config, directory)

    def make_adapter(name: str, seed: int, **config_fields: Any) -> str:
        write_adapter(root / "adapters" / name, seed, **config_fields)
        return name

    platform = Served(
        url=f"http://{config.host}:{config.port}",
        config=config,
        database=database,
        gateway=running.gateway,
        replicas=replicas,
        loop=asyncio.get_running_loop(),
        tokenizer=Tokenizer(config.models[0].folder),
        make_adapter=make_adapter,
        directory=directory,
    )
    return platform, running


async def _stop(platform: Served, running: Running) -> None:
    await running.close()
    for replica in platform.replicas:
        await replica.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
