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
import tokenizers
import uvicorn
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

import db.registry
from db import migrate
from db.database import Database
from db.embedded import EmbeddedPostgres
from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake_runner import FakeRunner, expected, fake_engine
from engine.tokenizer import Tokenizer
from lora.residency import Residency
from serve.config import AppConfig, ModelConfig
from serve.directory import Directory, ReplicaReport
from serve.door import listening_socket
from serve.gateway import Gateway
from serve.link import LinkServer
from serve.web.app import make_app
from serve.worker import Worker
from tests.unit.lora.fakes import FakeFit, FakeSource

BASE = "base"
BASE_DIGEST = "sha256:" + "ab" * 32
TOKEN = "token"
MODEL_LEN = 512
VOCABULARY = 97
MAX_WAITING = 64
ADMIN = {"authorization": "Bearer root"}
CHATML = (  # tools are named only, and called as Hermes does: the context is short
    "{% for tool in tools or [] %}{{ tool.function.name }}: <tool_call>\n{% endfor %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": MODEL_LEN,
    "eos_token_id": 0,
}


def write_model(folder: Path) -> Path:
    """A folder without weights: one token a byte, ids 1 to 96 readable, id 0 the end of a turn."""
    folder.mkdir(parents=True)
    readable = [*range(0x20, 0x7F), 0x0A]
    order = [*readable, *(byte for byte in range(256) if byte not in readable)]
    vocabulary = {"<|im_end|>": 0} | {_stand_in(byte): number for number, byte in enumerate(order, start=1)}
    encoder = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens(["<|im_end|>", "<|im_start|>"])
    encoder.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **SHAPE}))
    return folder


def _stand_in(byte: int) -> str:
    """The printable character by which a byte-level vocabulary writes a byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [other for other in range(256) if other not in printable]
    return chr(byte) if byte in printable else chr(256 + others.index(byte))


class FakeLoader(FakeSource):
    """`refusal` is raised for every adapter while it is set."""

    refusal: Exception | None = None

    def fit(self, digest: str, *, force: bool) -> FakeFit:
        if self.refusal is not None:
            raise self.refusal
        return super().fit(digest, force=force)


class FakeInspector:
    """The fake engine knows no logprobs."""

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]:
        return ()

    async def check(self, digest: str) -> dict[str, Any]:
        return {"passed": True}


class Replica:
    """A replica without Ray."""

    def __init__(self, settings: EngineConfig, name: str, directory: Directory) -> None:
        self.runner = FakeRunner(num_blocks=256, model_len=MODEL_LEN, vocab_size=SHAPE["vocab_size"])
        self.engine = AsyncEngine(settings, self._events, make_engine=self._make_engine)
        self.loader = FakeLoader()
        self.residency = Residency(self.engine, self.loader, budget=1 << 20)
        self.worker = Worker(self.engine, self.residency, FakeInspector())
        self.server = LinkServer(self.worker, TOKEN)
        self.worker.server = self.server
        self.name = name
        self.port = 0
        self._directory = directory

    async def start(self) -> None:
        await self.engine.start()
        self.port = await self.server.start("127.0.0.1")
        self._task = asyncio.create_task(self._report())

    async def stop(self) -> None:
        self._task.cancel()
        await self.server.close()
        await self.engine.close(0.1)
        await self.worker.close()
        await self.residency.close()

    def _make_engine(self, settings: EngineConfig) -> Engine:
        """Prompts may hold every token; completions are made of readable ones."""
        engine = fake_engine(self.runner, model=settings.model, max_waiting=MAX_WAITING)
        self.runner.vocab_size = VOCABULARY
        return engine

    def _events(self, events: list[Any]) -> None:
        self.worker.sink(events)

    async def _report(self) -> None:
        while True:
            await self._directory.report(
                ReplicaReport(
                    replica=self.name,
                    base_model=BASE,
                    host="127.0.0.1",
                    port=self.port,
                    max_model_len=self.engine.max_model_len,
                    adapter_slots=4,
                    healthy=self.engine.healthy,
                    stats=self.engine.stats(),
                    adapters=self.worker.adapters(),
                )
            )
            await asyncio.sleep(0.05)


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


def write_adapter(folder: Path, seed: int, **config: Any) -> Path:
    """A PEFT folder that fits the model; its weights, and so its digest, come from the seed."""
    folder.mkdir(parents=True)
    rank = config.get("r", 4)
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE,
        "r": rank,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    values = np.random.default_rng(seed)
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{prefix}.lora_A.weight": values.standard_normal((rank, 16)).astype(np.float32),
        f"{prefix}.lora_B.weight": values.standard_normal((16, rank)).astype(np.float32),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


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
