"""One running platform for all end-to-end tests of serving, started as a user starts it: `noria up`.

Float32, so that a greedy text does not depend on what else is in the batch.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import psutil
import pytest
from safetensors.numpy import save_file

from db.database import Database
from db.embedded import EmbeddedPostgres
from engine.modelspec import read_spec

BASE = "smollm2-135m"
ADMIN_KEY = "root"
START_S = 240
SETTINGS = """
data = "{data}"
[server]
port = {port}
admin_key = "{key}"
[store]
adapter_roots = ["{data}/adapters"]
[[models]]
id = "{base}"
source = "{source}"
dtype = "float32"
kv_bytes = "256MiB"
max_model_len = 1024
adapter_slots = 4
threads = 2
[[endpoints]]
name = "assistant"
model = "{base}"
"""


@dataclass
class Platform:
    """The platform as its users and its operator see it."""

    url: str
    data: Path
    model_folder: Path
    database: Database
    process: subprocess.Popen[bytes]
    _adapters: dict[int, str] = field(default_factory=dict)

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=120)

    @contextmanager
    def database_away(self) -> Iterator[None]:
        """The server is killed, and whoever would start it again waits for its lock until the block ends."""
        server = EmbeddedPostgres(self.data / "postgres")
        with (server.data_dir / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pid = int((server.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            process.send_signal(signal.SIGINT)  # its fast shutdown
            psutil.wait_procs([process], timeout=60)
            yield

    def ask(self, model: str, prompt: str, tokens: int = 16, **options: Any) -> Any:
        """A greedy completion."""
        with self.client as client:
            return client.completions.create(
                model=model, prompt=prompt, max_tokens=tokens, temperature=0, **options
            )

    def text(self, model: str, prompt: str, tokens: int = 16) -> str:
        return str(self.ask(model, prompt, tokens).choices[0].text)

    def adapter(self, seed: int) -> str:
        """The path of an adapter whose answers differ clearly from those of others; one a seed."""
        if seed not in self._adapters:
            self._adapters[seed] = f"seed-{seed}"
            write_adapter(self.data / "adapters" / f"seed-{seed}", self.model_folder, seed)
        return self._adapters[seed]

    def admin(self, action: str, **body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        return httpx.post(f"{self.url}/v1/{action}_lora_adapter", json=body, headers=headers, timeout=120)

    def load(self, name: str, seed: int, **options: Any) -> None:
        answer = self.admin("load", lora_name=name, lora_path=self.adapter(seed), **options)
        assert answer.status_code == 200, answer.text

    def adapters(self) -> dict[str, dict[str, Any]]:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        rows = httpx.get(f"{self.url}/v1/adapters?limit=1000", headers=headers, timeout=30).json()["data"]
        return {row["id"]: row for row in rows}

    def health(self) -> dict[str, Any]:
        return dict(httpx.get(f"{self.url}/health", timeout=30).json())

    def pid(self, deployment: str) -> int:
        """The process of a deployment of this instance, not of another one on the machine."""
        for process in psutil.process_iter(["pid", "cmdline", "ppid"]):
            if f"ServeReplica:noria:{deployment}" not in " ".join(process.info["cmdline"] or []):
                continue
            if str(self.data) in " ".join(psutil.Process(process.info["ppid"]).cmdline()):
                return int(process.info["pid"])
        raise LookupError(f"no process of {deployment} belongs to {self.data}")

    def kill(self, deployment: str) -> None:
        """kill -9."""
        psutil.Process(self.pid(deployment)).kill()

    def until(self, check: Callable[[], Any], seconds: float = 90) -> Any:
        """Wait until something holds; an endpoint that cannot be reached does not hold yet."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if found := check():
                    return found
            except (httpx.HTTPError, LookupError, psutil.NoSuchProcess):
                pass
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.1)

    def healthy(self) -> bool:
        return self.health()["status"] == "ok"


def write_adapter(folder: Path, model: Path, seed: int, rank: int = 8) -> None:
    """Random A and B in every layer, large enough to change every answer."""
    folder.mkdir(parents=True)
    values = np.random.default_rng(seed)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE,
        "r": rank,
        "lora_alpha": rank,
        "target_modules": ["q_proj", "v_proj", "o_proj", "down_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {}
    for name, (outputs, inputs) in read_spec(model).linear_modules.items():
        if name.rpartition(".")[2] in config["target_modules"]:
            a = values.standard_normal((rank, inputs)) / np.sqrt(inputs)
            b = values.standard_normal((outputs, rank)) * 0.3
            tensors[f"base_model.model.{name}.lora_A.weight"] = a.astype(np.float32)
            tensors[f"base_model.model.{name}.lora_B.weight"] = b.astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.fixture(scope="session")
def platform(smollm: Path) -> Iterator[Platform]:
    with started(SETTINGS, smollm) as made:
        yield made


@contextmanager
def started(settings: str, model: Path) -> Iterator[Platform]:
    """`noria up` for the length of the block, in a data folder of its own. settings: see SETTINGS."""
    data = Path(tempfile.mkdtemp(prefix="noria-e2e-"))
    port = _free_port()
    config = data / "noria.toml"
    config.write_text(settings.format(data=data, port=port, key=ADMIN_KEY, base=BASE, source=model))
    log = data / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "noria", "up", "--config", str(config)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(process, url, log)
        with Database(EmbeddedPostgres(data / "postgres").url, max_size=4) as database:
            yield Platform(url, data, model, database, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        shutil.rmtree(data, ignore_errors=True)


def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"the platform did not come up:\n{log.read_text()[-4000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made
