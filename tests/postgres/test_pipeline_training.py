"""From rated traffic to a candidate: a real run of two steps on a tiny random model, and runs that fail."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

from db import consent, feedback, registry, requests, runs
from db.database import Database
from db.errors import NotFound
from db.rows import FreezeParams
from lora.store import FileStore
from pipeline.dataset import freeze
from pipeline.errors import AdapterIdTaken, BadDataset, InvalidOption, TooFewExamples, TrainingFailed
from pipeline.job import Limits, LoraOptions
from pipeline.training import BaseModel, TrainParams, TrainProgress, train

DIGEST = "sha256:" + "b" * 64


@pytest.fixture(scope="module")
def tiny(smollm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of some hundred thousand weights with the real tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(smollm / file, folder)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def snapshot(
    db: Database, endpoint: str, make_request: Callable[..., Any], make_feedback: Callable[..., Any]
) -> str:
    """Sixteen rated answers, half of them liked, frozen."""
    consent.grant(db, "default")
    served = [
        make_request(
            completion=f"Answer number {number}.", finish_reason="stop" if number % 2 == 0 else "length"
        )
        for number in range(16)
    ]
    requests.insert_batch(db, served)
    votes = [
        make_feedback(record.id, value=1 if number % 2 == 0 else -1) for number, record in enumerate(served)
    ]
    feedback.insert_batch(db, votes)
    return freeze(db, FreezeParams(endpoint=endpoint, seed=3)).id


@pytest.fixture
def params(snapshot: str, endpoint: str, tiny: Path, tmp_path: Path) -> Callable[..., TrainParams]:
    """Parameters of a short run; any field may be given."""

    def make(**given: Any) -> TrainParams:
        values: dict[str, Any] = {
            "endpoint": endpoint,
            "snapshot_id": snapshot,
            "adapter_id": "assistant-v1",
            "base": BaseModel(name="tiny", folder=tiny, digest=DIGEST),
            "work_dir": tmp_path / "runs",
            "options": {"max_steps": 2, "batch_size": 4, "learning_rate": 1e-2, "dtype": "float32"},
            "lora": LoraOptions(rank=2, alpha=4),
            "limits": Limits(min_examples=8),
            "threads": 1,
        }
        return TrainParams(**{**values, **given})

    return make


def test_two_steps_make_a_candidate_with_a_curve_and_a_way_back(
    db: Database, params: Callable[..., TrainParams], tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "store")
    seen: list[TrainProgress] = []
    result = train(db, store, params(), seen.append)

    assert (result.steps, result.n_in, result.n_dropped, result.n_trained) == (2, 16, 0, 8)
    assert (result.n_desirable, result.n_undesirable) == (4, 4)
    assert [step for step, _ in runs.curve(db, result.run_id)] == [1, 2]
    run = runs.get(db, result.run_id)
    assert (run.status, run.adapter_digest, run.total_steps) == ("finished", result.digest, 2)
    assert run.figures["lora_b_min"] > 0
    assert run.params["seed"] == 0
    assert run.versions["trl"] == "1.16.0"

    adapter = registry.adapter(db, "assistant-v1")
    assert (adapter.status, adapter.digest, adapter.run_id) == ("candidate", result.digest, result.run_id)
    assert store.exists(result.digest)
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["loading", "reference", "training", "checking"]
    assert [progress.step for progress in seen if progress.loss is not None] == [1, 2]

    folder = tmp_path / "runs" / result.run_id / "adapter"
    rows = [json.loads(line) for line in (folder.parent / "rows.jsonl").read_text().splitlines()]
    assert {(row["label"], row["finish_reason"]) for row in rows} == {(True, "stop"), (False, "length")}
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("tiny", DIGEST)
    assert (config["r"], config["lora_alpha"]) == (2, 4)
    assert not [path for path in folder.iterdir() if path.is_dir()], "no second adapter beside it"
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as tensors:
        assert len(tensors.keys()) == 2 * 7 * 2


def test_a_refused_run_leaves_a_failed_row_and_no_adapter(
    db: Database, params: Callable[..., TrainParams], tmp_path: Path
) -> None:
    options = {"max_steps": 2, "batch_size": 4, "max_length": 8}
    with pytest.raises(TrainingFailed, match="TooManyDropped: 16 of 16 examples"):
        train(db, FileStore(tmp_path / "store"), params(options=options))
    (folder,) = (tmp_path / "runs").iterdir()
    run = runs.get(db, folder.name)
    assert run.status == "failed"
    assert "TooManyDropped" in (run.error or "")
    with pytest.raises(NotFound):
        registry.adapter(db, "assistant-v1")


def test_an_interrupt_fails_the_row_and_goes_on_up(
    db: Database, params: Callable[..., TrainParams], tmp_path: Path
) -> None:
    def interrupt(progress: TrainProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(db, FileStore(tmp_path / "store"), params(), interrupt)
    (folder,) = (tmp_path / "runs").iterdir()
    assert runs.get(db, folder.name).status == "failed"


def test_a_run_closed_by_someone_else_cannot_publish(
    db: Database, params: Callable[..., TrainParams], tmp_path: Path
) -> None:
    def give_up(progress: TrainProgress) -> None:
        if progress.stage == "checking":
            (folder,) = (tmp_path / "runs").iterdir()
            runs.fail_run(db, folder.name, "given up")

    with pytest.raises(Exception, match="is not running"):
        train(db, FileStore(tmp_path / "store"), params(), give_up)
    with pytest.raises(NotFound):
        registry.adapter(db, "assistant-v1")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"options": {"batch_size": 1}}, InvalidOption, "batch_size is 1"),
        ({"limits": Limits(min_examples=100)}, TooFewExamples, "have 16, need 100"),
        ({"endpoint": "other"}, BadDataset, "asked for kto on 'other'"),
    ],
)
def test_what_can_be_refused_is_refused_before_a_run_exists(
    db: Database,
    params: Callable[..., TrainParams],
    tmp_path: Path,
    given: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        train(db, FileStore(tmp_path / "store"), params(**given))
    assert not (tmp_path / "runs").exists()


def test_a_taken_adapter_id_is_refused_before_anything_is_trained(
    db: Database,
    params: Callable[..., TrainParams],
    add_adapter: Callable[..., Any],
    tmp_path: Path,
) -> None:
    add_adapter("assistant-v1")
    with pytest.raises(AdapterIdTaken, match="'assistant-v1' exists"):
        train(db, FileStore(tmp_path / "store"), params())
