"""What an adapter ought to answer: logprobs by the base with the adapter merged into it, in float32.

    python -m lora.merged_logprobs MODEL_FOLDER ADAPTER_FOLDER <QUESTIONS >ANSWERS

Run in a process of its own, for it takes four bytes for each weight of the model; it gives way to everybody
else on the machine. Both files are JSON, see lora.self_check. An adapter that cannot be merged is computed
beside the weights instead, in float32 all the same.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.activation import activation
from engine.adapter_weights import AdapterWeights
from engine.base_tensors import BaseTensors
from engine.config import BLOCK_SIZE
from engine.modelspec import ModelSpec, read_spec
from engine.records import SamplingParams, ScheduledSeq
from engine.reference import ReferenceModel
from lora.format import check_against, read_adapter
from lora.merged import MergedModel
from lora.weights import load_weights

Logits = Callable[[Sequence[int], int], Tensor]
"""(text, first) -> float32 [positions, vocab] of the positions from `first` on."""

_THREADS = 2


def main(arguments: Sequence[str]) -> None:
    """Answer the questions on standard input. Raises what reading model and adapter raises."""
    model, folder = (Path(argument) for argument in arguments)
    os.nice(19)
    torch.set_num_threads(min(_THREADS, len(os.sched_getaffinity(0))))
    json.dump(answer(model, folder, json.load(sys.stdin)), sys.stdout)


def answer(model: Path, folder: Path, questions: dict[str, Any]) -> dict[str, Any]:
    """Questions and answers as in lora.self_check, "unchanged" being the adapter's put to the base model.

    One model at a time is in memory.
    """
    spec, weights = read_spec(model), _weights(model, folder)
    merged = not weights.invocation
    base = MergedModel(model, spec, AdapterWeights("", {})).logits
    answers = {
        "base": [_answer(base, question) for question in questions["base"]],
        "unchanged": [_answer(base, question) for question in questions["adapter"]],
    }
    del base
    adapted = MergedModel(model, spec, weights).logits if merged else _beside(model, spec, weights, questions)
    answers["adapter"] = [_answer(adapted, question) for question in questions["adapter"]]
    return {"merged": merged, **answers}


def _weights(model: Path, folder: Path) -> AdapterWeights:
    """The base was checked when the adapter was loaded, or forced."""
    adapter, targets = read_adapter(folder), read_spec(model).adapter_targets
    report = check_against(adapter, targets, base_digest="", base_names=(), max_rank=adapter.rank, force=True)
    return load_weights(adapter, report, targets, BaseTensors(model), torch.float32)


def _answer(logits: Logits, question: dict[str, Any]) -> list[dict[str, Any]]:
    """For each token of the completion: the likeliest token in its place, and the logprobs asked for."""
    prompt, completion = question["prompt"], question["completion"]
    logprobs = logits([*prompt, *completion[:-1]], len(prompt) - 1).log_softmax(dim=-1)
    return [
        {"best": int(row.argmax()), "logprobs": row[torch.tensor(asked)].tolist()}
        for row, asked in zip(logprobs, question["asked"], strict=True)
    ]


def _beside(model: Path, spec: ModelSpec, weights: AdapterWeights, questions: dict[str, Any]) -> Logits:
    """The adapter beside the weights: for one that holds from some token on only."""
    longest = max(len(question["prompt"]) + len(question["completion"]) for question in questions["adapter"])
    blocks = -(-longest // BLOCK_SIZE) * len(spec.kv_groups.windows)
    ranks = [1, *(pair.a.shape[0] for pair in weights.modules.values())]
    reference = ReferenceModel(model, spec, torch.float32, blocks, max(ranks))
    reference.bind_adapter(1, reference.prepare_adapter(weights))

    def logits(text: Sequence[int], first: int) -> Tensor:
        holds_from = activation(text[: first + 1], weights.invocation)
        ends = sorted({min(holds_from, len(text)), *range(first + 1, len(text) + 1)} - {0})
        rows, start = [], 0
        for end in ends:
            piece = _piece(text, start, end, 1 if start >= holds_from else 0, range(blocks))
            rows.append(reference.scores([piece]).logits[0])
            start = end
        return torch.stack(rows[-(len(text) - first) :])

    return logits


def _piece(text: Sequence[int], start: int, end: int, slot: int, blocks: Sequence[int]) -> ScheduledSeq:
    return ScheduledSeq(
        seq_id=1,
        token_ids=text,
        prompt_len=len(text),
        start=start,
        count=end - start,
        block_table=blocks,
        adapter_slot=slot,
        samples=True,
        sampling=SamplingParams(max_tokens=1, temperature=0.0),
        seed=0,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
