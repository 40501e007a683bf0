"""A gateway beside a replica that makes vectors: all of it real, the model a tiny random BERT."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import peft
import torch
import transformers
import uvicorn

import db.registry
from db.database import Database
from engine.config import EngineConfig
from engine.tokenizer import Tokenizer
from lora.format import base_digest
from serve.config import AppConfig, ModelConfig
from serve.directory import Directory, ReplicaReport
from serve.door import listening_socket
from serve.gateway import Gateway
from serve.web.app import make_app
from serve.workshop import Parts, furnish
from tests.contract.conftest import ADMIN, _free_port
from tests.contract.model_folder import write_model
from tests.contract.replicas import TOKEN
from tests.unit.lora.peft_models import quiet

NAME, WRITER = "minis", "writer"
DIM, LONGEST = 32, 40
_TEXT = "the dog cat runs sleeps away house a big small and or not red blue green sky sea it is"
WORDS = [*_TEXT.split(), "##s"]
SHAPE: dict[str, Any] = {
    "hidden_size": DIM,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def write_encoder(folder: Path) -> Path:
    """A BERT as sentence-transformers publishes one: WordPiece, mean of the tokens, length 1."""
    vocabulary = {
        word: id_ for id_, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    torch.manual_seed(3)
    config = transformers.BertConfig(vocab_size=len(vocabulary), **SHAPE)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(folder)
    kinds = ("Transformer", "Pooling", "Normalize")
    (folder / "modules.json").write_text(json.dumps([{"type": f"models.{kind}"} for kind in kinds]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return folder


@dataclass
class Platform:
    """What the tests talk to."""

    url: str
    config: AppConfig
    gateway: Gateway
    parts: Parts
    database: Database
    loop: asyncio.AbstractEventLoop
    model: Any

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=30)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json={"model": NAME, **body}, headers=ADMIN, timeout=30)

    def embed(self, *texts: Any, **body: Any) -> torch.Tensor:
        answer = self.post("/v1/embeddings", input=list(texts), **body)
        assert answer.status_code == 200, answer.text
        return torch.tensor([item["embedding"] for item in answer.json()["data"]])

    @property
    def tokenizer(self) -> Tokenizer:
        return self.gateway.models[NAME].tokenizer

    def expected(self, texts: Sequence[str], model: Any = None) -> torch.Tensor:
        """By transformers: means over the tokens, of length 1."""
        rows = []
        for text in texts:
            ids = torch.tensor([self.tokenizer.encode(text)])
            with torch.no_grad():
                rows.append((model or self.model)(input_ids=ids).last_hidden_state[0].mean(0))
        return torch.nn.functional.normalize(torch.stack(rows), dim=-1)

    def adapter(self, name: str, **fields: Any) -> Any:
        """PEFT's model of an adapter, which lies below an allowed root as `name`."""
        root, folder = self.config.adapter_roots[0], self.config.model(NAME).folder
        with quiet(), torch.no_grad():
            base = transformers.AutoModel.from_pretrained(folder)
            base.name_or_path = NAME
            settings = {"r": 4, "target_modules": ["query", "value"], "init_lora_weights": False, **fields}
            made = peft.get_peft_model(base, peft.LoraConfig(**settings)).eval()
            made.save_pretrained(root / name)
        return made

    def load(self, name: str) -> httpx.Response:
        return self.post("/v1/load_lora_adapter", lora_name=name, lora_path=name, base_model=NAME, model=None)


@contextlib.contextmanager
def running(root: Path, database: Database) -> Iterator[Platform]:
    """The platform for the length of the block, on a loop and a thread of its own."""
    folder, writer = write_encoder(root / NAME), write_model(root / WRITER)
    db.registry.register_base_model(database, NAME, base_digest(folder), str(folder))
    db.registry.register_base_model(database, WRITER, "sha256:" + "cd" * 32, str(writer))
    engine = EngineConfig(model=folder, dtype="float32", threads=1, max_model_len=LONGEST, max_waiting=64)
    config = AppConfig(
        models=(
            ModelConfig(name=NAME, folder=folder, engine=engine, task="embed"),
            ModelConfig(name=WRITER, folder=writer, engine=EngineConfig(model=writer)),
        ),
        database_url=database.url,
        store_url=(root / "store").as_uri(),
        cache_root=root / "cache",
        spool_dir=root / "spool",
        adapter_roots=(root / "adapters",),
        admin_key="root",
        port=_free_port(),
    )
    (root / "adapters").mkdir()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="vectors")
    thread.start()
    opened = contextlib.AsyncExitStack()
    try:
        gateway, parts = asyncio.run_coroutine_threadsafe(_open(config, opened), loop).result(60)
        model = transformers.AutoModel.from_pretrained(folder).eval()
        url = f"http://{config.host}:{config.port}"
        yield Platform(url, config, gateway, parts, database, loop, model)
    finally:
        asyncio.run_coroutine_threadsafe(opened.aclose(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(config: AppConfig, opened: contextlib.AsyncExitStack) -> tuple[Gateway, Parts]:
    directory = Directory()
    parts = await furnish(config, config.model(NAME), TOKEN)
    await parts.engine.start()
    opened.push_async_callback(parts.engine.close, 1.0)
    opened.push_async_callback(parts.residency.close)
    opened.push_async_callback(parts.worker.close)
    port = await parts.server.start("127.0.0.1")
    opened.push_async_callback(parts.server.close)
    reporting = asyncio.create_task(_report(parts, port, directory))
    opened.callback(reporting.cancel)
    gateway = Gateway(config, TOKEN, directory.exchange)
    await gateway.start()
    opened.push_async_callback(gateway.close)
    settings = uvicorn.Config(make_app(gateway), log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(settings)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]  # not the main thread
    serving = asyncio.create_task(server.serve(sockets=[listening_socket(config.host, config.port)]))
    opened.push_async_callback(_stop, server, serving)
    async with asyncio.timeout(30):
        while not gateway.fleet.members(NAME):
            await gateway.fleet.refresh()
            await asyncio.sleep(0.02)
    return gateway, parts


async def _stop(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await serving


async def _report(parts: Parts, port: int, directory: Directory) -> None:
    while True:
        report = ReplicaReport(
            replica="vectors-0",
            base_model=NAME,
            host="127.0.0.1",
            port=port,
            max_model_len=parts.engine.max_model_len,
            adapter_slots=0,
            healthy=parts.engine.healthy,
            stats=parts.engine.stats(),
            adapters=parts.worker.adapters(),
        )
        await directory.report(report)
        await asyncio.sleep(0.05)
