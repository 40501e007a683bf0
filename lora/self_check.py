"""An adapter's answers by an engine beside the same adapter merged into the weights, as numbers.

The engine answers fixed prompts, with the adapter and without; another process computes what the answers
ought to be, in float32 with the adapter merged (lora.merged_logprobs). Without the adapter the two differ by
what the engine's number format costs; with it they may differ by a little more, and by a small part of what
the adapter itself changes. Beyond that the engine applies another adapter than the one in the file.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.records import TokenLogprob
from lora.errors import SelfCheckFailed
from lora.probe import Ask, probe_request

CHECK_LENGTHS = (5, 8, 12, 17, 23)
"""Tokens of the prompts, apart from what switches an adapter on."""
COMPLETION_TOKENS = 4
TIMEOUT_S = 600.0
_LEAST = {"float32": 1e-3, "bfloat16": 2e-2}
_NOISE_FACTOR, _EFFECT_SHARE = 2.0, 0.02
_TAIL = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """Differences are of logprobs, absolute, over the likeliest tokens of `positions` places.

    top1_agreement: share of places where both find the same token likeliest. noise: mean difference without
    the adapter. effect: mean change that the adapter makes. tolerance: of the mean difference. merged: False
    where the adapter cannot be merged and was computed beside the weights.
    """

    passed: bool
    positions: int
    max_difference: float
    mean_difference: float
    top1_agreement: float
    noise: float
    effect: float
    tolerance: float
    merged: bool

    def summary(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


Answers = Sequence[Sequence[TokenLogprob]]
"""For each prompt, what the engine said of each token of the completion."""


async def self_check(
    ask: Ask,
    digest: str,
    prompts: Sequence[Sequence[int]],
    *,
    model_folder: Path,
    adapter_folder: Path,
    dtype: str,
    timeout_s: float = TIMEOUT_S,
) -> SelfCheck:
    """Ask an engine and compute the same. The adapter must stay loaded and its folder in place meanwhile.

    dtype: in which the engine computes. Raises SelfCheckFailed where the process ends badly or takes more
    than `timeout_s` seconds, and what `ask` raises.
    """
    base = [await ask(probe_request(prompt, None, COMPLETION_TOKENS)) for prompt in prompts]
    adapted = [await ask(probe_request(prompt, digest, COMPLETION_TOKENS)) for prompt in prompts]
    questions = {"base": questions_of(prompts, base), "adapter": questions_of(prompts, adapted)}
    answers = await _compute(model_folder, adapter_folder, questions, timeout_s)
    return judge(base, adapted, answers, dtype)


def judge(base: Answers, adapted: Answers, answers: dict[str, Any], dtype: str) -> SelfCheck:
    """The verdict on an engine's answers. answers: as lora.merged_logprobs writes them."""
    differences, agreements = _differences(adapted, answers["adapter"])
    noise = _mean(_differences(base, answers["base"])[0])
    effect = _mean(_between(answers["adapter"], answers["unchanged"]))
    tolerance = max(_LEAST[dtype], _NOISE_FACTOR * noise + _EFFECT_SHARE * effect)
    mean = _mean(differences)
    return SelfCheck(
        passed=mean <= tolerance,
        positions=len(agreements),
        max_difference=max(differences),
        mean_difference=mean,
        top1_agreement=_mean([float(agreed) for agreed in agreements]),
        noise=noise,
        effect=effect,
        tolerance=tolerance,
        merged=answers["merged"],
    )


def questions_of(prompts: Sequence[Sequence[int]], answers: Answers) -> list[dict[str, Any]]:
    """What to compute, to compare with what an engine answered."""
    return [
        {
            "prompt": list(prompt),
            "completion": [place.token_id for place in told],
            "asked": [[token for token, _ in place.top] for place in told],
        }
        for prompt, told in zip(prompts, answers, strict=True)
    ]


def _differences(ours: Answers, theirs: list[list[dict[str, Any]]]) -> tuple[list[float], list[bool]]:
    differences, agreements = [], []
    for told, computed in zip(ours, theirs, strict=True):
        for place, right in zip(told, computed, strict=True):
            pairs = zip(place.top, right["logprobs"], strict=True)
            differences += [abs(logprob - wanted) for (_, logprob), wanted in pairs]
            agreements.append(place.token_id == right["best"])
    return differences, agreements


def _between(one: list[list[dict[str, Any]]], other: list[list[dict[str, Any]]]) -> list[float]:
    return [
        abs(first - second)
        for texts in zip(one, other, strict=True)
        for places in zip(*texts, strict=True)
        for first, second in zip(*(place["logprobs"] for place in places), strict=True)
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


async def _compute(model: Path, folder: Path, questions: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "lora.merged_logprobs", str(model), str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, said = await process.communicate(json.dumps(questions).encode())
    except TimeoutError as error:
        raise SelfCheckFailed(f"it took more than {timeout_s:g} s") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        tail = said.decode(errors="replace").strip()[-_TAIL:]
        raise SelfCheckFailed(f"its process ended with status {process.returncode}: {tail}")
    answers: dict[str, Any] = json.loads(out)
    return answers
