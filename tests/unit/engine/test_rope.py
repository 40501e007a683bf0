"""Every kind of rotary embedding turns as in transformers: frequencies, and logits on both backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.config import EngineConfig
from engine.errors import UnsupportedModel
from engine.models.rope import Rope
from engine.modelspec import read_spec
from engine.runner import build_runner
from tests.unit.engine.conftest import Row
from tests.unit.engine.gguf_files import save_model

LENGTH = 64
ORIGINAL = {"original_max_position_embeddings": 16}
FACTORS = {"short_factor": [1.0, 1.1, 1.3, 1.6], "long_factor": [1.2, 2.0, 4.0, 7.0]}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL}
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": {"rope_type": "llama3", **LLAMA3},
    "yarn": {"rope_type": "yarn", "factor": 4.0, **ORIGINAL},
    "yarn-options": {
        "rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
        "attention_factor": 1.3, **ORIGINAL,
    },
    "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.1, **ORIGINAL},
    "longrope": {"rope_type": "longrope", **FACTORS, **ORIGINAL},
    "longrope-scaled": {
        "rope_type": "longrope", **FACTORS, "factor": 3.0, "attention_factor": 1.2, **ORIGINAL,
    },
}  # fmt: skip


def rope_of(kind: str, theta: float) -> dict[str, Any]:
    return {"rope_theta": theta, **KINDS[kind]}


@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_those_of_transformers(tmp_path: Path, kind: str, theta: float) -> None:
    model = save_model("Llama", tmp_path, rope_parameters=rope_of(kind, theta))
    ours = Rope(read_spec(tmp_path).rope, 8)
    if kind == "default":
        rotary = model.model.rotary_emb
        want, scale = rotary.inv_freq, rotary.attention_scaling
    else:
        make = ROPE_INIT_FUNCTIONS[KINDS[kind]["rope_type"]]
        want, scale = make(model.config, torch.device("cpu"), seq_len=LENGTH)
    torch.testing.assert_close(ours.inverse, want, rtol=1e-6, atol=0)
    assert ours.scale == pytest.approx(scale, rel=1e-6)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str, family: str, backend: Any) -> None:
    model = save_model(family, tmp_path, rope_parameters=rope_of(kind, 1e4), head_dim=8)
    ids = torch.randint(3, 300, (LENGTH,), generator=torch.Generator().manual_seed(0)).tolist()
    config = EngineConfig(model=tmp_path, dtype="float32", num_blocks=8, backend=backend, threads=1)
    runner, row = build_runner(config), Row(0, ids, [5, 2, 7, 1])
    got = [runner.logits((row.span(0, 40),)).clone(), runner.logits((row.span(40, 24),)).clone()]
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(torch.cat(got), want[[39, -1]], rtol=2e-4, atol=2e-4)


def test_longrope_of_short_texts_on_both_backends(tmp_path: Path) -> None:
    """What is served at most decides between the factors, so that one text's keys fit all others."""
    model = save_model("Llama", tmp_path, rope_parameters=rope_of("longrope", 1e4))
    ids = list(range(3, 19))
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0, -1:]
    for backend in ("native", "reference"):
        config = EngineConfig(
            model=tmp_path, dtype="float32", num_blocks=8, backend=backend, max_model_len=16, threads=1
        )
        got = build_runner(config).logits((Row(0, ids, [5]).span(0, 16),))
        torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-4)


def test_a_kind_that_is_not_served_is_named(tmp_path: Path) -> None:
    save_model("Llama", tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path).to_dict()
    config["rope_parameters"] = {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="rope_type proportional is not supported; supported: default"):
        read_spec(tmp_path)
