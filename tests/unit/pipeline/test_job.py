"""The job file: written by the parent, read by the trainer process, the same on both sides."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import InvalidOption
from pipeline.job import Job, Limits, LoraOptions


def test_a_job_survives_the_file(tmp_path: Path) -> None:
    job = Job(
        run_id="r",
        method="kto",
        options={"learning_rate": 1e-4},
        base_name="tiny",
        base_digest="sha256:1",
        base_folder="/models/tiny",
        rows_file="/run/rows.jsonl",
        output_folder="/work",
        seed=3,
        threads=2,
        nice=5,
        lora=LoraOptions(rank=4, target_modules=("q_proj",)),
        limits=Limits(max_dropped=0.2),
    )
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "lora.rank is 0"),
        ({"alpha": 0}, "lora.alpha is 0"),
        ({"target_modules": ()}, "lora.target_modules"),
        ({"target_modules": ("q_proj", "lm_head")}, "never lm_head"),
    ],
)
def test_adapter_shapes_that_cannot_be_trained_or_served(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        LoraOptions(**options)


@pytest.mark.parametrize("options", [{"min_examples": 1}, {"max_dropped": 1.5}])
def test_limits_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=r"limits\."):
        Limits(**options)
