"""Adapters against a base model: what fits, what is mapped, what is refused."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.adapter_targets import AdapterTargets
from engine.base_tensors import BaseTensors
from lora.errors import (
    AdapterMismatch,
    MissingTensors,
    NotFinite,
    RankTooLarge,
    UnmatchedTensors,
    WrongBase,
    WrongShape,
)
from lora.format import check_against, read_adapter
from lora.weights import load_weights

BASE_DIGEST = "sha256:" + "b" * 64
CHECK: dict[str, Any] = {"base_digest": BASE_DIGEST, "base_names": ["tiny"], "max_rank": 64}
PINNED = {"base_names": ["tiny", "org/m", "org/m@v1", "org/m@0123"]}
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def test_rank_over_the_limit_tells_both_numbers(adapter_folder: Path, targets: AdapterTargets) -> None:
    with pytest.raises(RankTooLarge, match="adapter rank is 4, allowed: at most 2"):
        check_against(read_adapter(adapter_folder), targets, **{**CHECK, "max_rank": 2})


def test_keys_that_match_no_module_are_named(
    adapter_folder: Path, targets: AdapterTargets, edit_tensors: Callable[..., None]
) -> None:
    edit_tensors(
        adapter_folder,
        lambda t: {name.replace("model.layers", "foo.layers", 1): value for name, value in t.items()},
    )
    with pytest.raises(UnmatchedTensors, match=r"0 tensors match, 12 do not.*foo\.layers\.0") as caught:
        check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert len(caught.value.keys) == 12


def test_a_partial_match_is_refused_and_names_the_rest(
    adapter_folder: Path, targets: AdapterTargets, edit_tensors: Callable[..., None]
) -> None:
    edit_tensors(
        adapter_folder, lambda t: {name.replace("layers.2", "layers.7"): value for name, value in t.items()}
    )
    with pytest.raises(UnmatchedTensors, match=r"8 tensors match, 4 do not.*layers\.7"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


def test_tensors_that_the_config_does_not_target_are_refused(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, target_modules=["q_proj"])
    with pytest.raises(UnmatchedTensors, match=r"does not target these modules.*v_proj"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


def test_targets_without_tensors_are_refused(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, target_modules=["q_proj", "v_proj", "up_proj"])
    with pytest.raises(MissingTensors, match=r"asks for 6 tensors that are absent: .*mlp\.up_proj\.lora_A"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


def test_a_wrong_shape_tells_tensor_expected_and_actual(
    adapter_folder: Path, targets: AdapterTargets
) -> None:
    wider = replace(targets, linear={name: (out, 40) for name, (out, _) in targets.linear.items()})
    message = re.escape(f"tensor {Q}.lora_A.weight has shape [4, 32], expected [4, 40]")
    with pytest.raises(WrongShape, match=message):
        check_against(read_adapter(adapter_folder), wider, **CHECK)


def test_a_rank_other_than_the_config_says_is_a_wrong_shape(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, rank_pattern={"v_proj": 2})
    with pytest.raises(WrongShape, match=r"v_proj\.lora_A\.weight has shape \[4, 32\], expected \[2, 32\]"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_model_name_or_path": "other/model"}, "was trained on 'other/model', allowed: tiny"),
        ({"base_model_name_or_path": None}, "names no base model, allowed: tiny"),
        ({"base_model_name_or_path": "tiny/"}, "was trained on 'tiny/'"),
        ({"revision": "sha256:" + "c" * 64}, f"was trained on 'sha256:c+', allowed: {BASE_DIGEST}"),
    ],
)
def test_another_base_is_refused_unless_forced(
    adapter_folder: Path,
    targets: AdapterTargets,
    edit_config: Callable[..., None],
    fields: dict[str, Any],
    message: str,
) -> None:
    edit_config(adapter_folder, **fields)
    adapter = read_adapter(adapter_folder)
    with pytest.raises(WrongBase, match=message):
        check_against(adapter, targets, **CHECK)
    report = check_against(adapter, targets, **CHECK, force=True)
    assert report.base_match == "forced"
    assert re.search(message, report.warnings[0])


def test_force_does_not_excuse_anything_else(adapter_folder: Path, targets: AdapterTargets) -> None:
    adapter = read_adapter(adapter_folder)
    with pytest.raises(AdapterMismatch):
        check_against(
            adapter, replace(targets, linear=dict.fromkeys(targets.linear, (8, 8))), **CHECK, force=True
        )


def test_a_digest_in_the_revision_decides_whatever_the_name(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, base_model_name_or_path="/somewhere/else", revision=BASE_DIGEST)
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert (report.base_match, report.warnings) == ("digest", ())


def test_a_named_revision_is_said_to_be_unchecked(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, revision="main")
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert report.warnings == ("revision 'main' is not a digest and was not compared",)


@pytest.mark.parametrize("revision", [None, "v1", "0123"])
def test_one_of_the_revisions_that_are_known_is_fine(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None], revision: str | None
) -> None:
    edit_config(adapter_folder, base_model_name_or_path="org/m", revision=revision)
    report = check_against(read_adapter(adapter_folder), targets, **CHECK | PINNED)
    assert (report.base_match, report.warnings) == ("name", ())


def test_another_revision_than_the_known_ones_is_refused_unless_forced(
    adapter_folder: Path, targets: AdapterTargets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, base_model_name_or_path="org/m", revision="v2")
    adapter, message = (
        read_adapter(adapter_folder),
        "was trained on 'org/m@v2', allowed: org/m@0123, org/m@v1",
    )
    with pytest.raises(WrongBase, match=message):
        check_against(adapter, targets, **CHECK | PINNED)
    report = check_against(adapter, targets, **CHECK | PINNED, force=True)
    assert report.base_match == "forced"
    assert message in report.warnings[0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(
    adapter_folder: Path,
    targets: AdapterTargets,
    base: BaseTensors,
    edit_tensors: Callable[..., None],
    value: float,
) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[f"{Q}.lora_B.weight"][1, 2] = value
        return tensors

    edit_tensors(adapter_folder, spoil)
    adapter = read_adapter(adapter_folder)
    report = check_against(adapter, targets, **CHECK)
    with pytest.raises(NotFinite, match=rf"{re.escape(Q)}\.lora_B\.weight holds 1 values"):
        load_weights(adapter, report, targets, base, torch.bfloat16)
