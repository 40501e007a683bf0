"""Builds TRL's KTO trainer for a job. Imported in the trainer process only: torch, trl and peft load here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PreTrainedTokenizerBase, TrainerCallback
from trl import KTOConfig, KTOTrainer
from trl.trainer import kto_trainer
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from pipeline.errors import TrainingFailed
from pipeline.job import Job
from pipeline.methods.answer_head import add_answer_head
from pipeline.methods.base import Prepared
from pipeline.methods.kto import KtoOptions
from pipeline.progress import EventStream


class EndOfTurnCollator:
    """Batches rows like TRL's collator, but ends an answer that was cut where it was cut.

    TRL renders each completion through the chat template, which closes it with the end-of-turn token. After
    an answer that ran into its token limit the model never wrote that token, and an undesirable row would
    teach it not to. The template's tail is recognised by its last stop token.
    """

    def __init__(self, inner: DataCollatorForUnpairedPreference, stop_id: int) -> None:
        self._inner = inner
        self._stop_id = stop_id

    def __call__(self, rows: list[dict[str, Any]]) -> Mapping[str, torch.Tensor]:
        return dict(self._inner([row if row["finished"] else self._cut(row) for row in rows]))

    def _cut(self, row: dict[str, Any]) -> dict[str, Any]:
        ids = list(row["completion_ids"])
        if self._stop_id in ids:
            ids = ids[: len(ids) - 1 - ids[::-1].index(self._stop_id)]
        return {**row, "completion_ids": ids}


class _ReportingKtoTrainer(KTOTrainer):  # type: ignore[misc]  # trl is untyped
    """Says how far the pass over the reference is, which TRL does before it calls any callback."""

    def __init__(self, events: EventStream, batches: int, **arguments: Any) -> None:
        self._events, self._batches, self._seen = events, batches, 0
        super().__init__(**arguments)

    def compute_ref_log_probs(self, model: Any, inputs: Any) -> Any:
        result = super().compute_ref_log_probs(model, inputs)
        self._seen += 1
        self._events.send("stage", stage="reference", step=self._seen, steps=self._batches)
        return result


def build(
    prepared: Prepared,
    options: KtoOptions,
    job: Job,
    tokenizer: PreTrainedTokenizerBase,
    callbacks: Sequence[TrainerCallback],
    events: EventStream,
) -> KTOTrainer:
    """The trainer, its reference log-probabilities computed. Raises: TrainingFailed when TRL lost rows."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    collator = DataCollatorForUnpairedPreference(
        pad_token_id=tokenizer.pad_token_id, max_length=options.max_length
    )
    with _head_for_this_machine():
        trainer = _ReportingKtoTrainer(
            events,
            math.ceil(len(prepared.rows) / options.batch_size),
            model=job.base_folder,
            args=_arguments(prepared, options, job),
            train_dataset=Dataset.from_list([dict(row) for row in prepared.rows]),
            data_collator=EndOfTurnCollator(collator, tokenizer.eos_token_id),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=job.lora.rank,
                lora_alpha=job.lora.alpha,
                lora_dropout=0.0,
                target_modules=list(job.lora.target_modules),
                task_type="CAUSAL_LM",
            ),
            callbacks=list(callbacks),
        )
    if len(trainer.train_dataset) != len(prepared.rows):
        raise TrainingFailed(
            f"the trainer kept {len(trainer.train_dataset)} of {len(prepared.rows)} prepared rows"
        )
    return trainer


def _head_for_this_machine() -> AbstractContextManager[Any]:
    """Without Triton, TRL's head scores every position, prompts and padding too.

    With a large vocabulary that is most of a step of a small model. Ours scores the answers only; the version
    of trl is pinned for this seam.
    """
    if torch.cuda.is_available():
        return nullcontext()
    return patch.object(kto_trainer, "add_fused_lm_head", add_answer_head)


def _arguments(prepared: Prepared, options: KtoOptions, job: Job) -> KTOConfig:
    steps = int(prepared.figures["steps"])
    return KTOConfig(
        output_dir=f"{job.output_folder}/checkpoints",
        use_cpu=not torch.cuda.is_available(),
        bf16=options.dtype == "bfloat16",
        seed=job.seed,
        data_seed=job.seed,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        gradient_checkpointing=False,
        precompute_ref_log_probs=True,
        model_init_kwargs={"dtype": options.dtype},
        max_length=options.max_length,
        max_steps=steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=round(steps * options.warmup),
        beta=options.beta,
        loss_type=options.loss,
        desirable_weight=prepared.figures["desirable_weight"],
        undesirable_weight=prepared.figures["undesirable_weight"],
    )
