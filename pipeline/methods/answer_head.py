"""A language-model head that scores only the positions of the answer.

Same contract as trl.trainer.utils.add_fused_lm_head (outputs of shape [batch, length - 1], zero where the
label is -100), in plain torch. It knows nothing of KTO, and of the base model only `base_model` and the
output embeddings that every transformers causal model has.
"""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from trl.trainer.utils import FusedCausalLMOutput

CHUNK = 1024
"""Positions scored at once; with more than one chunk, logits are recomputed in the backward pass."""


def add_answer_head(model: Any, outputs: tuple[str, ...] = ("log_probs",)) -> None:
    """Let `model(..., labels=labels, fused_lm_head=True)` return a FusedCausalLMOutput of the answers.

    `outputs` is accepted for the shared contract; log_probs, entropy and mean_logits are always computed.
    Raises: ValueError for models that cap or scale their logits, which this head does not.
    """
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier"):
        if getattr(model.config.get_text_config(), name, None) is not None:
            raise ValueError(f"{name} is set in the base model's config; allowed: not set")
    original = model.forward

    @functools.wraps(type(model).forward)
    def forward(
        self: Any, *args: Any, fused_lm_head: bool = False, labels: Tensor | None = None, **kwargs: Any
    ) -> Any:
        if not fused_lm_head or labels is None:
            return original(*args, **(kwargs if labels is None else {**kwargs, "labels": labels}))
        kwargs["use_cache"] = False
        hidden = self.base_model(*args, **kwargs).last_hidden_state[:, :-1]
        return score(hidden, self.get_output_embeddings().weight, labels[:, 1:])

    model.forward = MethodType(forward, model)


def score(hidden: Tensor, weight: Tensor, labels: Tensor) -> FusedCausalLMOutput:
    """Score `labels` [batch, n] in float32 by `hidden` [batch, n, width] and `weight` [words, width]."""
    mask = labels != -100
    chosen, targets = hidden[mask], labels[mask]
    parts = []
    for rows, ids in zip(torch.split(chosen, CHUNK), torch.split(targets, CHUNK), strict=True):
        if len(chosen) > CHUNK and torch.is_grad_enabled():
            parts.append(checkpoint(_score_rows, rows, weight, ids, use_reentrant=False))
        else:
            parts.append(_score_rows(rows, weight, ids))
    columns = [torch.cat(column) for column in zip(*parts, strict=True)]
    spread = [column.new_zeros(mask.shape).masked_scatter(mask, column) for column in columns]
    return FusedCausalLMOutput(log_probs=spread[0], entropy=spread[1], mean_logits=spread[2])


def _score_rows(rows: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = functional.linear(rows, weight).float()
    log_z = logits.logsumexp(-1)
    log_probs = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - log_z
    with torch.no_grad():
        probabilities = (logits - log_z.unsqueeze(-1)).exp_()
        entropy = log_z - (probabilities * logits).sum(-1)
        mean_logits = logits.mean(-1)
    return log_probs, entropy, mean_logits
