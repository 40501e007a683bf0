"""The choice between the backends, and a whole engine on the native one."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidConfig, NativeUnavailable
from engine.modelspec import read_spec
from engine.native import build as building
from engine.native.model import NativeModel
from engine.reference import ReferenceModel
from engine.runner import build_runner
from engine.sampling import SamplingParams
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_models import adapter, torch_threads_kept

Tiny = Callable[[str], TinyModel]
ALL = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]


@pytest.fixture(autouse=True)
def torch_threads() -> Any:
    with torch_threads_kept():
        yield


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "COMPILERS", ("no-such-compiler",))


def config(model: TinyModel, **changes: Any) -> EngineConfig:
    return EngineConfig(model=model.folder, dtype="float32", num_blocks=64, **changes)


@pytest.mark.parametrize(
    ("backend", "kind"), [("auto", NativeModel), ("native", NativeModel), ("reference", ReferenceModel)]
)
def test_backend_asked_for_is_the_one_that_runs(tiny: Tiny, backend: str, kind: type) -> None:
    assert isinstance(build_runner(config(tiny("llama"), backend=backend))._model, kind)


def test_auto_falls_back_with_one_line(
    tiny: Tiny, no_compiler: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "engine"):
        runner = build_runner(config(tiny("llama")))
    assert isinstance(runner._model, ReferenceModel)
    (record,) = caplog.records
    assert "the reference backend serves" in record.message
    assert "no C++ compiler is installed" in record.message


def test_native_that_cannot_be_had_is_refused(tiny: Tiny, no_compiler: None) -> None:
    with pytest.raises(NativeUnavailable, match=r"no C\+\+ compiler is installed"):
        build_runner(config(tiny("llama"), backend="native"))


@pytest.mark.parametrize("what", ["weights", "kv_cache"])
def test_int8_is_refused_where_the_reference_would_serve(tiny: Tiny, what: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{what} is 'int8'; the reference backend allows 'model'"):
        build_runner(config(tiny("llama"), backend="reference", **{what: "int8"}))


def test_int8_does_not_fall_back(tiny: Tiny, no_compiler: None) -> None:
    with pytest.raises(InvalidConfig, match=r"allows 'model', and no C\+\+ compiler is installed"):
        build_runner(config(tiny("llama"), weights="int8"))


def test_building_ahead_is_silent_where_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("engine.native", run_name="__main__")
    assert capsys.readouterr() == ("", "")


def test_building_ahead_says_why_it_cannot(no_compiler: None, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("engine.native", run_name="__main__")
    assert "steps will run on torch, more slowly: no C++ compiler is installed" in capsys.readouterr().err


def test_engine_with_chunks_prefixes_and_preemption_equals_generate(tiny: Tiny) -> None:
    """A small pool and a small token budget, so that requests wait for, evict and interrupt one another."""
    model = tiny("qwen3")
    settings: dict[str, Any] = {"max_num_seqs": 4, "max_batched_tokens": 24, "check_integrity": True}
    engine = Engine(EngineConfig(model=model.folder, dtype="float32", num_blocks=14, **settings))
    shared = list(range(3, 36))
    prompts = [[*shared, 40 + i, 50 + i] for i in range(6)] + [[7 + i] * (5 + i) for i in range(6)]
    got = engine.generate(prompts, SamplingParams(max_tokens=25, temperature=0.0, ignore_eos=True))
    for prompt, tokens in zip(prompts, got, strict=True):
        want = model.reference.generate(
            torch.tensor([prompt]), max_new_tokens=25, min_new_tokens=25, do_sample=False, eos_token_id=-1
        )
        assert prompt + tokens == want[0].tolist()
    assert engine.stats().prefix_hits > 0


def test_engine_with_adapters_equals_the_reference_backend(tiny: Tiny) -> None:
    model, answers = tiny("llama"), []
    sampling = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    for backend in ("native", "reference"):
        engine = Engine(config(model, backend=backend))
        weights = adapter(read_spec(model.folder), 8, 3, ALL)
        engine.add_adapter(engine.prepare_adapter(weights))
        base = engine.generate([[5, 6, 7]], sampling)
        adapted = engine.generate([[5, 6, 7]], sampling, adapter=weights.digest)
        assert engine.remove_adapter(weights.digest) > 0
        answers.append((base, adapted))
        assert base != adapted
    assert answers[0] == answers[1]
