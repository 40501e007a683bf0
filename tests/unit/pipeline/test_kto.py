"""KTO's guards: what is refused before a model loads, and what the rows become."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from pipeline.errors import (
    InvalidOption,
    OneSidedLabels,
    StopTokenMissing,
    TooFewExamples,
    TooManyDropped,
    UnknownMethod,
)
from pipeline.job import Job, Limits
from pipeline.methods import get_method
from pipeline.methods.kto import Kto, KtoOptions, weights

KTO = Kto()


@pytest.fixture(scope="module")
def tokenizer(smollm: Path) -> PreTrainedTokenizerBase:
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(smollm, local_files_only=True)
    return loaded


def row(number: int, label: bool, prompt: str = "What is tea?", answer: str = "A drink.") -> dict[str, Any]:
    return {
        "id": f"row{number}",
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": answer}],
        "label": label,
        "finish_reason": "stop",
    }


def rows(desirable: int, undesirable: int) -> list[dict[str, Any]]:
    return [row(number, number < desirable) for number in range(desirable + undesirable)]


def job(limits: Limits | None = None, seed: int = 0) -> Job:
    return Job(
        run_id="run",
        method="kto",
        options={},
        base_name="tiny",
        base_digest="sha256:0",
        base_folder="",
        rows_file="",
        output_folder="",
        seed=seed,
        threads=1,
        nice=0,
        limits=limits or Limits(min_examples=2),
    )


def test_a_batch_of_one_is_refused_with_both_remedies() -> None:
    with pytest.raises(InvalidOption, match=r'batch_size is 1; allowed: 2 or more.*loss="apo_zero_unpaired"'):
        KTO.parse({"batch_size": 1})


def test_a_batch_of_one_is_fine_without_a_kl_term() -> None:
    assert KTO.parse({"batch_size": 1, "loss": "apo_zero_unpaired"}).batch_size == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0; allowed: above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"max_steps": 0}, "max_steps is 0; allowed: 1 or more"),
        ({"loss": "dpo"}, "loss is 'dpo'; allowed: kto, apo_zero_unpaired"),
        ({"dtype": "float16"}, "dtype is 'float16'; allowed: bfloat16, float32"),
        ({"warmup": 1.0}, "warmup is 1.0"),
        ({"lr": 1e-4}, "kto option lr is 0.0001; allowed: one of batch_size, beta"),
    ],
)
def test_options_out_of_range_are_refused_with_the_value_met(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        KTO.parse(options)


def test_too_few_examples_say_how_many_there_are_and_how_many_are_needed() -> None:
    with pytest.raises(TooFewExamples, match="have 20, need 32"):
        KTO.check(rows(10, 10), KtoOptions(), Limits())


@pytest.mark.parametrize(("desirable", "undesirable"), [(40, 0), (0, 40)])
def test_one_sided_labels_are_refused_unless_allowed(desirable: int, undesirable: int) -> None:
    examples = rows(desirable, undesirable)
    with pytest.raises(OneSidedLabels, match=f"{desirable} desirable and {undesirable} undesirable"):
        KTO.check(examples, KtoOptions(), Limits())
    KTO.check(examples, KtoOptions(), Limits(allow_one_sided=True))


@pytest.mark.parametrize(
    ("desirable", "undesirable"), [(1, 1), (40, 40), (9900, 100), (100, 9900), (50, 40), (40, 50), (7, 5)]
)
def test_weights_bring_the_two_sides_into_the_documented_range(desirable: int, undesirable: int) -> None:
    up, down = weights(desirable, undesirable)
    assert 1 <= up * desirable / (down * undesirable) <= 4 / 3
    assert 1.0 in (up, down)


def test_half_of_the_prompts_too_long_stops_the_run_with_the_counts(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    long = "tea " * 80
    examples = [row(number, number % 2 == 0, long if number % 4 < 2 else "Tea?") for number in range(40)]
    with pytest.raises(TooManyDropped, match="20 of 40 examples have a prompt of 64 tokens or more"):
        KTO.prepare(examples, KtoOptions(max_length=64), job(), tokenizer)


def test_rows_dropped_within_the_limit_are_reported(tokenizer: PreTrainedTokenizerBase) -> None:
    long = "tea " * 80
    examples = [row(number, number % 2 == 0, long if number % 4 < 2 else "Tea?") for number in range(40)]
    limits = Limits(min_examples=2, max_dropped=0.5)
    prepared = KTO.prepare(examples, KtoOptions(max_length=64), job(limits), tokenizer)
    figures = prepared.figures
    assert (figures["n_in"], figures["n_dropped"], figures["n_trained"]) == (40, 20, 20)
    assert (figures["n_desirable"], figures["n_undesirable"]) == (10, 10)
    assert len(prepared.rows) == 20
    assert len(prepared.probes) == 8
    assert {probe[-1] for probe in prepared.probes} == {tokenizer.eos_token_id}


def test_rows_sorted_by_label_are_trained_in_the_order_of_the_seed(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    examples = [row(number, number < 32, answer=f"Answer {number}.") for number in range(64)]
    one = KTO.prepare(examples, KtoOptions(), job(seed=5), tokenizer).rows
    again = KTO.prepare(examples[::-1], KtoOptions(), job(seed=5), tokenizer).rows
    other = KTO.prepare(examples, KtoOptions(), job(seed=6), tokenizer).rows
    assert one == again
    assert one != other
    labels = [entry["label"] for entry in one]
    assert all(set(labels[start : start + 16]) == {True, False} for start in range(len(labels) - 15))


def test_fewer_steps_than_an_epoch_leave_rows_over(tokenizer: PreTrainedTokenizerBase) -> None:
    prepared = KTO.prepare(rows(32, 32), KtoOptions(max_steps=3), job(Limits(min_examples=64)), tokenizer)
    figures = prepared.figures
    assert (figures["steps"], figures["n_trained"], figures["n_left_over"]) == (3, 24, 40)


@pytest.mark.parametrize(
    ("epochs", "max_steps", "steps", "trained"),
    [(1.0, None, 8, 64), (0.5, None, 4, 32), (2.0, None, 16, 64), (2.0, 12, 12, 64), (1.0, 16, 8, 64)],
)
def test_steps_come_from_epochs_and_their_bound(
    tokenizer: PreTrainedTokenizerBase, epochs: float, max_steps: int | None, steps: int, trained: int
) -> None:
    options = KtoOptions(epochs=epochs, max_steps=max_steps)
    figures = KTO.prepare(rows(32, 32), options, job(), tokenizer).figures
    assert (figures["steps"], figures["n_trained"]) == (steps, trained)


def test_a_cut_answer_is_marked_as_unfinished(tokenizer: PreTrainedTokenizerBase) -> None:
    examples = rows(4, 4)
    examples[7]["finish_reason"] = "length"
    prepared = KTO.prepare(examples, KtoOptions(), job(), tokenizer)
    assert [entry["finished"] for entry in prepared.rows].count(False) == 1


def test_a_template_without_a_stop_token_is_refused(smollm: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm, local_files_only=True)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    with pytest.raises(StopTokenMissing, match="would not learn to stop"):
        KTO.prepare(rows(4, 4), KtoOptions(), job(), tokenizer)


def test_an_unknown_method_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownMethod, match="'ppo'; known: kto"):
        get_method("ppo")
