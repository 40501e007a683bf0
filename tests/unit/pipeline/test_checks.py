"""What a trained adapter must be before anyone else sees it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.checks import check_losses, check_stops, check_tensors, stamp_base
from pipeline.errors import AdapterUnsound

A = ("layers.0.q_proj.lora_A.default.weight", torch.ones(2, 4))
B = ("layers.0.q_proj.lora_B.default.weight", torch.full((4, 2), 0.5))


def test_losses_that_move_are_fine() -> None:
    check_losses([0.7, 0.0, 0.6])


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([], "made no step"),
        ([0.5, float("nan")], "not finite at step 2"),
        ([float("inf")], "not finite at step 1"),
        ([0.0, 0.0], "0 at every step"),
    ],
)
def test_losses_that_mean_nothing_was_learnt(losses: list[float], message: str) -> None:
    with pytest.raises(AdapterUnsound, match=message):
        check_losses(losses)


def test_sound_tensors_report_the_norms_of_their_b_side() -> None:
    assert check_tensors([A, B, ("norm.weight", torch.zeros(3))]) == {
        "lora_b_min": pytest.approx(2**0.5),
        "lora_b_max": pytest.approx(2**0.5),
    }


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([A, (B[0], torch.zeros(4, 2))], "lora_B.default.weight is still zero"),
        (
            [(A[0], torch.tensor([[float("nan")]])), B],
            "lora_A.default.weight holds values that are not finite",
        ),
        ([A], "holds no lora_B"),
    ],
)
def test_unsound_tensors_are_named(tensors: list[tuple[str, torch.Tensor]], message: str) -> None:
    with pytest.raises(AdapterUnsound, match=message):
        check_tensors(tensors)


class Endings:
    """Stands for a PEFT model: token 2 gets `trained` with the adapter on, `base` with it off."""

    device = "cpu"

    def __init__(self, trained: float, base: float) -> None:
        self.probability, self.base = trained, base

    def eval(self) -> None: ...

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        trained, self.probability = self.probability, self.base
        yield
        self.probability = trained

    def __call__(self, input_ids: torch.Tensor, logits_to_keep: int) -> Any:
        assert input_ids.tolist() == [[5, 6]]
        rest = (1 - self.probability) / 2
        logits = torch.tensor([[[rest, rest, self.probability]]]).log()
        return SimpleNamespace(logits=logits)


def test_a_stop_token_still_likely_is_reported() -> None:
    figures = check_stops(Endings(trained=0.4, base=0.6), [[5, 6, 2]])
    assert figures == {"stop_probability": pytest.approx(0.4), "stop_probability_base": pytest.approx(0.6)}


def test_an_unlearnt_stop_token_is_refused() -> None:
    with pytest.raises(AdapterUnsound, match=r"fell from 0\.6 to 0\.2; allowed: at least 0\.5 times"):
        check_stops(Endings(trained=0.2, base=0.6), [[5, 6, 2]])


def test_the_base_is_written_by_name_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"base_model_name_or_path": "/tmp/somewhere", "revision": None, "r": 8}))
    stamp_base(tmp_path, "smollm2-135m", "sha256:1")
    assert json.loads(path.read_text()) == {
        "base_model_name_or_path": "smollm2-135m",
        "revision": "sha256:1",
        "r": 8,
    }
