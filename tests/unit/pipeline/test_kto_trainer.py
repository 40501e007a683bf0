"""The collator: an answer that was cut is not followed by an end of turn."""

from typing import Any

import pytest
import torch
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from pipeline.methods.kto_trainer import EndOfTurnCollator

STOP, NEWLINE = 2, 9


@pytest.fixture
def collator() -> EndOfTurnCollator:
    return EndOfTurnCollator(DataCollatorForUnpairedPreference(pad_token_id=0, max_length=16), STOP)


def example(finished: bool, label: bool) -> dict[str, Any]:
    return {
        "prompt_ids": [5, 6],
        "completion_ids": [7, 8, STOP, NEWLINE],
        "KL_completion_ids": [7, STOP],
        "label": label,
        "finished": finished,
    }


def test_a_finished_answer_keeps_its_end_of_turn_and_a_cut_one_loses_it(collator: EndOfTurnCollator) -> None:
    batch = collator([example(True, True), example(False, False)])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, STOP, NEWLINE], [5, 6, 7, 8, 0, 0]]
    assert batch["completion_mask"].tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
    assert batch["label"].tolist() == [True, False]


def test_the_rows_themselves_are_left_alone(collator: EndOfTurnCollator) -> None:
    cut = example(False, False)
    collator([cut, example(True, True)])
    assert cut["completion_ids"] == [7, 8, STOP, NEWLINE]


def test_every_column_is_a_tensor(collator: EndOfTurnCollator) -> None:
    batch = collator([example(True, True), example(False, False)])
    assert all(isinstance(column, torch.Tensor) for column in batch.values())
