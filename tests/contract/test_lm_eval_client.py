"""lm-eval, unmodified: local-completions on a tiny local task of choices, scored by log probability."""

import math
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate

QUESTIONS = Path(__file__).parents[1] / "data" / "tiny_choices.jsonl"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_choices_are_scored(served: Any) -> None:
    task = {
        "task": "tiny_choices",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(QUESTIONS)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "doc_to_choice": "{{choices}}",
        "metric_list": [{"metric": "acc"}],
    }
    found = simple_evaluate(
        model="local-completions",
        model_args={
            "model": "base",
            "base_url": f"{served.url}/v1/completions",
            "tokenizer": str(served.config.models[0].folder),
            "max_length": 512,
        },
        tasks=[task],
        log_samples=True,
        bootstrap_iters=0,
    )
    assert 0 <= found["results"]["tiny_choices"]["acc,none"] <= 1
    for sample in found["samples"]["tiny_choices"]:
        scores = [float(answer[0][0]) for answer in sample["resps"]]
        assert len(scores) == 2
        assert all(math.isfinite(score) and score < 0 for score in scores)
