"""An engine on a small model with an adapter, asked as a replica asks its own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine.base_tensors import BaseTensors
from engine.config import EngineConfig
from engine.engine import Engine
from engine.modelspec import read_spec
from engine.records import Request, TokenLogprob
from lora.format import check_against, read_adapter
from lora.probe import probe_prompts
from lora.touched_tokens import touched_tokens
from lora.weights import load_weights

FORCED = {"base_digest": "", "base_names": (), "max_rank": 64, "force": True}


class AskedEngine:
    """The reference backend in float32. factor: what the scales of the adapter are wrong by."""

    def __init__(self, model: Path, folder: Path, factor: float = 1.0) -> None:
        targets, base = read_spec(model).adapter_targets, BaseTensors(model)
        self._adapter = read_adapter(folder)
        self._report = check_against(self._adapter, targets, **FORCED)
        self._targets, self._base = targets, base
        weights = load_weights(self._adapter, self._report, targets, base, torch.float32)
        pairs = {name: replace(pair, scale=pair.scale * factor) for name, pair in weights.modules.items()}
        self.engine = Engine(
            EngineConfig(model=model, dtype="float32", backend="reference", num_blocks=16, max_lora_rank=64)
        )
        self.engine.add_adapter(self.engine.prepare_adapter(replace(weights, modules=pairs)))
        self.digest = self._adapter.digest
        self.asked = 0

    def prompts(self, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        touched = touched_tokens(self._adapter, self._report, self._targets, self._base)
        invocation = self._adapter.config.invocation
        return probe_prompts(self._targets.vocab, lengths, invocation=invocation, touched=touched)

    async def ask(self, request: Request) -> list[TokenLogprob]:
        self.asked += 1
        self.engine.add(request)
        found: list[TokenLogprob] = []
        while self.engine.has_work:
            for event in self.engine.step():
                assert event.error is None
                found += event.logprobs or ()
        return found
