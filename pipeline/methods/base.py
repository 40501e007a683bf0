"""What a training method is: one file, three members beside its name, one line in methods/__init__.py.

The parent process calls `parse` and `check` before anything heavy is loaded; the trainer process calls
`prepare` (tokenizer only) and `trainer` (loads the model). Only bodies that run in the trainer process
import torch, transformers, trl or peft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pipeline.job import Job, Limits
from pipeline.progress import EventStream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback

Options = TypeVar("Options")
JsonRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows in training order, in the columns the method's trainer wants, and the figures to report.

    `probes` are token ids of some wanted, finished answers, prompt included, up to and with the stop token.
    """

    rows: Sequence[JsonRow]
    figures: Mapping[str, Any]
    probes: Sequence[Sequence[int]] = ()


class Method(Protocol, Generic[Options]):
    """One way of training, for example KTO."""

    name: str

    def parse(self, given: Mapping[str, Any]) -> Options:
        """Options with defaults filled in. Raises: InvalidOption."""
        ...

    def check(self, rows: Sequence[JsonRow], options: Options, limits: Limits) -> None:
        """Refuse what can be refused without a model. Raises: InvalidOption, BadDataset."""
        ...

    def prepare(
        self, rows: Sequence[JsonRow], options: Options, job: Job, tokenizer: PreTrainedTokenizerBase
    ) -> Prepared:
        """Measure, drop and order the rows. Raises: BadDataset."""
        ...

    def trainer(
        self,
        prepared: Prepared,
        options: Options,
        job: Job,
        tokenizer: PreTrainedTokenizerBase,
        callbacks: Sequence[TrainerCallback],
        events: EventStream,
    ) -> Trainer:
        """A trainer ready to `train()`, its model wrapped by a fresh LoRA adapter called "default"."""
        ...
