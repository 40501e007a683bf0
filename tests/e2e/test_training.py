"""Two real steps on the real model: the adapter they leave is one that lora accepts for that base."""

import json
from pathlib import Path

import pytest

from engine.modelspec import read_spec
from lora.format import base_digest, check_against, read_adapter
from pipeline.job import Job, Limits, LoraOptions
from pipeline.process import trainer_process
from pipeline.progress import Event

QUESTIONS = ("What is tea?", "Why is the sky blue?", "How do I boil an egg?", "Who wrote Hamlet?")


@pytest.fixture
def job(smollm: Path, tmp_path: Path) -> Job:
    rows = [
        {
            "id": f"{number}-{label}",
            "prompt": [{"role": "user", "content": question}],
            "completion": [{"role": "assistant", "content": answer}],
            "label": label,
            "finish_reason": "stop" if label else "length",
        }
        for number, question in enumerate(QUESTIONS)
        for label, answer in ((True, "In one short sentence."), (False, "It is a long story, and " * 4))
    ]
    rows_file = tmp_path / "rows.jsonl"
    rows_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Job(
        run_id="run",
        method="kto",
        options={"max_steps": 2, "batch_size": 4, "max_length": 64},
        base_name="smollm2-135m",
        base_digest=base_digest(smollm),
        base_folder=str(smollm),
        rows_file=str(rows_file),
        output_folder=str(tmp_path),
        seed=1,
        threads=2,
        nice=5,
        lora=LoraOptions(rank=4, alpha=8),
        limits=Limits(min_examples=8),
    )


def run(job: Job, folder: Path) -> list[Event]:
    job.write(folder / "job.json")
    with trainer_process(folder / "job.json", folder / "trainer.log", job.threads) as events:
        return list(events)


def test_two_steps_leave_an_adapter_that_fits_the_base(job: Job, smollm: Path, tmp_path: Path) -> None:
    events = run(job, tmp_path)
    steps = [event.figures for event in events if event.name == "step"]
    assert [step["step"] for step in steps] == [1, 2]
    assert all(0 < step["loss"] < 10 and step["grad_norm"] > 0 for step in steps)
    done = events[-1].figures
    assert done["lora_b_min"] > 0

    adapter = read_adapter(tmp_path / "adapter")
    spec = read_spec(smollm)
    report = check_against(
        adapter,
        spec.adapter_targets,
        base_digest=job.base_digest,
        base_names=("smollm2-135m",),
        max_rank=64,
    )
    assert report.base_match == "digest"
    assert len(report.modules) == 7 * spec.num_layers
    assert (adapter.rank, adapter.config.base_model_name_or_path) == (4, "smollm2-135m")
