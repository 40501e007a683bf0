"""KTO (Ethayarajh et al., arXiv 2402.01306): learns from single answers marked desirable or not.

Rows: {"id", "prompt": [messages], "completion": [one assistant message], "label": bool, "finish_reason"}.
The loss and the loop are TRL's; what TRL leaves to its user is decided here: the order of the rows, the two
weights, which rows are too long, and that an answer that was cut is never followed by an end-of-turn token.
The reference model is the base itself (the adapter switched off), read once before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from pipeline.errors import (
    InvalidOption,
    OneSidedLabels,
    StopTokenMissing,
    TooFewExamples,
    TooManyDropped,
)
from pipeline.job import Job, Limits
from pipeline.methods.base import JsonRow, Prepared
from pipeline.ordering import spread, whole_batches
from pipeline.progress import EventStream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback


PROBES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KtoOptions:
    """`max_length` in tokens; `max_steps` bounds what `epochs` asks for (None: no bound).

    The defaults fit a model of some hundred million weights on a few CPU cores: 16 steps of 8 rows took
    SmolLM2-135M from 8 % to 88 % short answers. Half the learning rate hardly moved it (27 %); 5e-4 moved it
    further (95 %) and cost more of the facts it knew. Larger models want a smaller one.
    """

    learning_rate: float = 4e-4
    epochs: float = 1.0
    max_steps: int | None = 16
    batch_size: int = 8
    beta: float = 0.1
    loss: Literal["kto", "apo_zero_unpaired"] = "kto"
    max_length: int = 512
    warmup: float = 0.1
    dtype: Literal["bfloat16", "float32"] = "bfloat16"

    def steps(self, rows: int) -> int:
        """Optimiser steps over `rows` rows."""
        wanted = max(1, round(math.ceil(rows / self.batch_size) * self.epochs))
        return wanted if self.max_steps is None else min(wanted, self.max_steps)

    def __post_init__(self) -> None:
        if self.batch_size < 2 and self.loss == "kto":
            raise InvalidOption(
                "batch_size",
                self.batch_size,
                '2 or more (the KL term compares the answers of one batch), or loss="apo_zero_unpaired", '
                "which has no KL term",
            )
        positive = ("learning_rate", "epochs", "batch_size", "beta", "max_length")
        for name in positive:
            if not getattr(self, name) > 0:
                raise InvalidOption(name, getattr(self, name), "above 0")
        if self.max_steps is not None and self.max_steps < 1:
            raise InvalidOption("max_steps", self.max_steps, "1 or more, or none")
        if not 0 <= self.warmup < 1:
            raise InvalidOption("warmup", self.warmup, "0 to below 1 (share of all steps)")
        if self.loss not in ("kto", "apo_zero_unpaired"):
            raise InvalidOption("loss", self.loss, "kto, apo_zero_unpaired")
        if self.dtype not in ("bfloat16", "float32"):
            raise InvalidOption("dtype", self.dtype, "bfloat16, float32")


@dataclass(frozen=True, slots=True)
class _Measured:
    """One row with its length in tokens."""

    id: str
    label: bool
    row: JsonRow
    prompt_tokens: int
    ids: tuple[int, ...]

    @property
    def finished(self) -> bool:
        """Whether the model ended the answer itself; an edit ends where its author ended it."""
        return str(self.row["finish_reason"]) == "stop"


def weights(desirable: int, undesirable: int) -> tuple[float, float]:
    """Loss weights (desirable, undesirable) so that weight * count stand at 1 to 4/3.

    The range is equation 8 of the paper; where a weight is needed it aims at the middle, 7/6.
    """
    if desirable == 0 or undesirable == 0 or 1 <= desirable / undesirable <= 4 / 3:
        return 1.0, 1.0
    target = 7 / 6
    if desirable < undesirable:
        return target * undesirable / desirable, 1.0
    return 1.0, desirable / (undesirable * target)


class Kto:
    """The method "kto"."""

    name = "kto"

    def parse(self, given: Mapping[str, Any]) -> KtoOptions:
        known = {field.name for field in fields(KtoOptions)}
        for option in given:
            if option not in known:
                raise InvalidOption(
                    f"kto option {option}", given[option], f"one of {', '.join(sorted(known))}"
                )
        return KtoOptions(**given)

    def check(self, rows: Sequence[JsonRow], options: KtoOptions, limits: Limits) -> None:
        if len(rows) < limits.min_examples:
            raise TooFewExamples(len(rows), limits.min_examples)
        if len(rows) < 2:
            raise TooFewExamples(len(rows), 2)
        desirable = sum(bool(row["label"]) for row in rows)
        if desirable in (0, len(rows)) and not limits.allow_one_sided:
            raise OneSidedLabels(desirable, len(rows) - desirable)

    def prepare(
        self, rows: Sequence[JsonRow], options: KtoOptions, job: Job, tokenizer: PreTrainedTokenizerBase
    ) -> Prepared:
        measured = [_measure(row, tokenizer) for row in rows]
        kept = [row for row in measured if row.prompt_tokens < options.max_length]
        n_dropped = len(measured) - len(kept)
        if n_dropped > job.limits.max_dropped * len(measured):
            raise TooManyDropped(len(measured), n_dropped, job.limits.max_dropped, options.max_length)
        self.check([row.row for row in kept], options, job.limits)
        ordered = whole_batches(spread(kept, job.seed), options.batch_size)
        steps = options.steps(len(ordered))
        ordered = ordered[: steps * options.batch_size]
        probes = _stop_probes(ordered, tokenizer)
        desirable = sum(row.label for row in ordered)
        up, down = weights(desirable, len(ordered) - desirable)
        lengths = [len(row.ids) for row in ordered]
        return Prepared(
            rows=[_columns(row) for row in ordered],
            probes=probes,
            figures={
                "steps": steps,
                "n_in": len(rows),
                "n_dropped": n_dropped,
                "n_trained": len(ordered),
                "n_left_over": len(kept) - len(ordered),
                "n_truncated": sum(length > options.max_length for length in lengths),
                "n_desirable": desirable,
                "n_undesirable": len(ordered) - desirable,
                "desirable_weight": up,
                "undesirable_weight": down,
                "tokens": sum(min(length, options.max_length) for length in lengths),
                "reference": "base",
            },
        )

    def trainer(
        self,
        prepared: Prepared,
        options: KtoOptions,
        job: Job,
        tokenizer: PreTrainedTokenizerBase,
        callbacks: Sequence[TrainerCallback],
        events: EventStream,
    ) -> Trainer:
        from pipeline.methods.kto_trainer import build

        return build(prepared, options, job, tokenizer, callbacks, events)


def _measure(row: JsonRow, tokenizer: PreTrainedTokenizerBase) -> _Measured:
    prompt = tokenizer.apply_chat_template(list(row["prompt"]), add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template([*row["prompt"], *row["completion"]], return_dict=False)
    shared = 0
    while shared < min(len(prompt), len(whole)) and prompt[shared] == whole[shared]:
        shared += 1
    return _Measured(str(row["id"]), bool(row["label"]), row, shared, tuple(whole))


def _stop_probes(rows: Sequence[_Measured], tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, ...]]:
    """Up to PROBES finished, desirable answers, each ending with its stop token."""
    stop_id = tokenizer.eos_token_id
    wanted = [row for row in rows if row.label and row.finished]
    ended = [row for row in wanted if stop_id in row.ids[row.prompt_tokens :]]
    if wanted and not ended:
        raise StopTokenMissing(stop_id)
    return [row.ids[: len(row.ids) - row.ids[::-1].index(stop_id)] for row in ended[:PROBES]]


def _columns(row: _Measured) -> dict[str, Any]:
    return {
        "prompt": list(row.row["prompt"]),
        "completion": list(row.row["completion"]),
        "label": row.label,
        "finished": row.finished,
    }
