"""Adapters made by PEFT on a tiny random Llama, and a residency on an engine without a model."""

import asyncio
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from engine.adapter_targets import AdapterTargets
from engine.adapter_weights import AdapterWeights, LoraPair
from engine.base_tensors import BaseTensors
from engine.errors import AdapterInUse, UnknownAdapter
from engine.fake_runner import FakeWeights
from engine.modelspec import read_spec
from engine.ports import PreparedAdapter
from lora.errors import NotInStore
from lora.residency import Residency

BASE_NAME = "tiny"
SIZE = 64  # bytes of each fake adapter
FOREVER_S = 60.0


@dataclass(frozen=True)
class PeftPair:
    """A LoRA layer as PEFT holds it."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


@dataclass(frozen=True)
class MadeAdapter:
    folder: Path
    pairs: dict[str, PeftPair]


ChangeTensors = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
MakeAdapter = Callable[..., MadeAdapter]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama with three layers."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def targets(tiny_model: Path) -> AdapterTargets:
    return read_spec(tiny_model).adapter_targets


@pytest.fixture(scope="session")
def base(tiny_model: Path) -> BaseTensors:
    return BaseTensors(tiny_model)


@pytest.fixture(scope="session")
def make_adapter(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeAdapter:
    """make_adapter(seed=0, **LoraConfig fields): a saved adapter with random A and B, made once a set."""
    made: dict[str, MadeAdapter] = {}

    def make(seed: int = 0, **fields: Any) -> MadeAdapter:
        key = repr((seed, sorted(fields.items(), key=lambda item: item[0])))
        if key not in made:
            made[key] = _build(tiny_model, tmp_path_factory.mktemp("adapter"), seed, fields)
        return made[key]

    return make


def _build(model: Path, folder: Path, seed: int, fields: dict[str, Any]) -> MadeAdapter:
    base = LlamaForCausalLM.from_pretrained(model)
    base.name_or_path = BASE_NAME
    defaults = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    config = LoraConfig(**{**defaults, "init_lora_weights": False, **fields})
    torch.manual_seed(seed)
    with warnings.catch_warnings():  # PEFT reads names that transformers has deprecated
        warnings.simplefilter("ignore", FutureWarning)
        peft_model = get_peft_model(base, config)
        peft_model.save_pretrained(folder, save_embedding_layers=False)
    return MadeAdapter(folder, dict(_lora_layers(peft_model)))


def _lora_layers(peft_model: torch.nn.Module) -> Iterator[tuple[str, PeftPair]]:
    for name, module in peft_model.named_modules():
        if hasattr(module, "lora_A") and "default" in module.lora_A:
            a, b = (side["default"].weight.detach().clone() for side in (module.lora_A, module.lora_B))
            yield name.removeprefix("base_model.model."), PeftPair(a, b, module.scaling["default"])


@pytest.fixture
def adapter_folder(make_adapter: MakeAdapter, tmp_path: Path) -> Path:
    """A private copy of a plain adapter, to be spoiled by a test."""
    folder = tmp_path / "plain"
    shutil.copytree(make_adapter().folder, folder)
    return folder


@pytest.fixture(scope="session")
def edit_config() -> Callable[..., None]:
    """edit_config(folder, **fields): overwrite fields of adapter_config.json."""

    def edit(folder: Path, **fields: Any) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return edit


@pytest.fixture(scope="session")
def edit_tensors() -> Callable[[Path, ChangeTensors], None]:
    """edit_tensors(folder, change): rewrite adapter_model.safetensors with change(tensors)."""

    def edit(folder: Path, change: ChangeTensors) -> None:
        path = folder / "adapter_model.safetensors"
        save_file({name: value.contiguous() for name, value in change(load_file(path)).items()}, path)

    return edit


def _weights(digest: str) -> AdapterWeights:
    return AdapterWeights(digest, {"m": LoraPair(torch.zeros(1, 8), torch.zeros(8, 1), 1.0)})


@dataclass
class FakeEngine:
    """Slots without a model. `busy`: digests it will not unload yet. `fail`: error of the next load."""

    num_slots: int
    loaded: set[str] = field(default_factory=set)
    loads: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    fail: Exception | None = None
    refusals: int = 0

    def prepare_adapter(self, weights: AdapterWeights) -> FakeWeights:
        return FakeWeights(weights.digest)

    async def add_adapter(self, prepared: PreparedAdapter) -> None:
        await asyncio.sleep(0)
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        assert len(self.loaded) < self.num_slots
        self.loads.append(prepared.digest)
        self.loaded.add(prepared.digest)

    async def remove_adapter(self, digest: str) -> int:
        await asyncio.sleep(0)
        if digest in self.busy:
            self.refusals += 1
            raise AdapterInUse(digest, 1)
        if digest not in self.loaded:
            raise UnknownAdapter(digest, self.loaded)
        self.loaded.remove(digest)
        return SIZE


@dataclass
class FakeLoader:
    """Counts loads; knows every digest but those in `absent`."""

    absent: set[str] = field(default_factory=set)
    loads: list[tuple[str, bool]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def load(self, digest: str, *, force: bool) -> AdapterWeights:
        self.loads.append((digest, force))
        if digest in self.absent:
            raise NotInStore(digest)
        return _weights(digest)

    def forget(self, digest: str) -> None:
        self.forgotten.append(digest)


@dataclass
class Rig:
    engine: FakeEngine
    loader: FakeLoader
    residency: Residency

    async def soon(self, digest: str) -> "asyncio.Task[Any]":
        """A task that acquires, started and run as far as it gets at once."""
        task = asyncio.create_task(self.residency.acquire(digest))
        await self.settle()
        return task

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        for _ in range(20):
            await asyncio.sleep(0.001)
        self.residency.check_integrity()

    def states(self) -> dict[str, str]:
        return {row.digest: row.state for row in self.residency.snapshot()}


@pytest.fixture
def rig() -> Callable[..., Rig]:
    def make(num_slots: int = 2, host: int = 4, patience_s: float = FOREVER_S) -> Rig:
        engine, loader = FakeEngine(num_slots), FakeLoader()
        residency = Residency(
            engine, loader, num_slots=num_slots, host_bytes=host * SIZE, patience_s=patience_s
        )
        return Rig(engine, loader, residency)

    return make
