"""Adapters against a base model: what fits, what is mapped, what is refused."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from lora.errors import (
    AdapterMismatch,
    LimitExceeded,
    MissingTensors,
    NotFinite,
    UnmatchedTensors,
    WrongBase,
    WrongShape,
)
from lora.format import check_against, read_adapter
from lora.weights import load_weights

BASE_DIGEST = "sha256:" + "b" * 64
CHECK: dict[str, Any] = {"base_digest": BASE_DIGEST, "base_names": ["tiny"], "max_rank": 64}
Q = "base_model.model.model.layers.0.self_attn.q_proj"


Targets = Mapping[str, tuple[int, int]]


def test_rank_over_the_limit_tells_both_numbers(adapter_folder: Path, targets: Targets) -> None:
    with pytest.raises(LimitExceeded, match="adapter rank is 4, allowed: at most 2"):
        check_against(read_adapter(adapter_folder), targets, **{**CHECK, "max_rank": 2})


def test_keys_that_match_no_module_are_named(
    adapter_folder: Path, targets: Targets, edit_tensors: Callable[..., None]
) -> None:
    edit_tensors(
        adapter_folder,
        lambda t: {name.replace("model.layers", "foo.layers", 1): value for name, value in t.items()},
    )
    with pytest.raises(UnmatchedTensors, match=r"0 tensors match, 12 do not.*foo\.layers\.0") as caught:
        check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert len(caught.value.keys) == 12


def test_a_partial_match_is_refused_and_names_the_rest(
    adapter_folder: Path, targets: Targets, edit_tensors: Callable[..., None]
) -> None:
    edit_tensors(
        adapter_folder, lambda t: {name.replace("layers.2", "layers.7"): value for name, value in t.items()}
    )
    with pytest.raises(UnmatchedTensors, match=r"8 tensors match, 4 do not.*layers\.7"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


def test_tensors_that_the_config_does_not_target_are_refused(
    adapter_folder: Path, targets: Targets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, target_modules=["q_proj"])
    with pytest.raises(UnmatchedTensors, match=r"does not target these modules.*v_proj"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


def test_targets_without_tensors_are_refused(
    adapter_folder: Path, targets: Targets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, target_modules=["q_proj", "v_proj", "up_proj"])
    with pytest.raises(MissingTensors, match=r"3 modules without tensors: .*mlp\.up_proj"):
        check_against(read_adapter(adapter_folder), targets, **CHECK)


def test_a_wrong_shape_tells_tensor_expected_and_actual(adapter_folder: Path, targets: Targets) -> None:
    wider = {name: (out, 40) for name, (out, _) in targets.items()}
    message = re.escape(f"tensor {Q}.lora_A.weight has shape [4, 32], expected [4, 40]")
    with pytest.raises(WrongShape, match=message):
        check_against(read_adapter(adapter_folder), wider, **CHECK)


def test_a_rank_other_than_the_config_says_is_a_wrong_shape(
    adapter_folder: Path, targets: Targets, edit_config: Callable[..., None]
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
    targets: Targets,
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


def test_force_does_not_excuse_anything_else(adapter_folder: Path, targets: Targets) -> None:
    adapter = read_adapter(adapter_folder)
    with pytest.raises(AdapterMismatch):
        check_against(adapter, dict.fromkeys(targets, (8, 8)), **CHECK, force=True)


def test_a_digest_in_the_revision_decides_whatever_the_name(
    adapter_folder: Path, targets: Targets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, base_model_name_or_path="/somewhere/else", revision=BASE_DIGEST)
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert (report.base_match, report.warnings) == ("digest", ())


def test_a_named_revision_is_said_to_be_unchecked(
    adapter_folder: Path, targets: Targets, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, revision="main")
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert report.warnings == ("revision 'main' is not a digest and was not compared",)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model.", "module.model."])
def test_a_known_prefix_is_mapped_and_said(
    adapter_folder: Path, targets: Targets, edit_tensors: Callable[..., None], prefix: str
) -> None:
    before = check_against(read_adapter(adapter_folder), targets, **CHECK).modules
    edit_tensors(
        adapter_folder,
        lambda t: {name.replace("model.layers.", f"{prefix}layers."): value for name, value in t.items()},
    )
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert report.mapped_prefix == (prefix, "model.")
    assert report.warnings == (f"module names {prefix}* were read as model.*",)
    assert report.modules.keys() == before.keys()


def test_an_adapter_of_the_bare_decoder_is_mapped(
    adapter_folder: Path, targets: Targets, edit_tensors: Callable[..., None]
) -> None:
    edit_tensors(
        adapter_folder,
        lambda t: {name.replace("model.layers.", "layers.", 1): value for name, value in t.items()},
    )
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert report.mapped_prefix == ("layers.", "model.layers.")


@pytest.mark.parametrize(("left", "told"), [(0.0, True), (1e-6, False)])
def test_an_adapter_that_changes_nothing_is_told(
    adapter_folder: Path, targets: Targets, edit_tensors: Callable[..., None], left: float, told: bool
) -> None:
    def clear(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        cleared = {name: t * 0.0 if "lora_B" in name else t for name, t in tensors.items()}
        cleared[f"{Q}.lora_B.weight"] = torch.full_like(tensors[f"{Q}.lora_B.weight"], left)
        return {name: t.abs() if "lora_B" in name else t for name, t in cleared.items()}

    edit_tensors(adapter_folder, clear)
    report = check_against(read_adapter(adapter_folder), targets, **CHECK)
    assert report.warnings == (
        ("the adapter is identical to the base: every lora_B is zero",) if told else ()
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(
    adapter_folder: Path, targets: Targets, edit_tensors: Callable[..., None], value: float
) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[f"{Q}.lora_B.weight"][1, 2] = value
        return tensors

    edit_tensors(adapter_folder, spoil)
    adapter = read_adapter(adapter_folder)
    report = check_against(adapter, targets, **CHECK)
    with pytest.raises(NotFinite, match=rf"{re.escape(Q)}\.lora_B\.weight holds 1 values"):
        load_weights(adapter, report, torch.bfloat16)
