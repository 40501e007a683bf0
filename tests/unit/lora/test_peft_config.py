"""Configs that are refused, each with the message its owner will read."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lora.errors import InvalidConfig, UnsupportedFeature
from lora.format import read_adapter

UNSUPPORTED: list[tuple[str, Any]] = [
    ("target_parameters", ["mlp.experts.gate_up_proj"]),
    ("layer_replication", [[0, 2], [1, 3]]),
    ("use_qalora", True),
    ("use_bdlora", {"nblocks": 2}),
    ("kasa_config", {"beta": 1}),
    ("monteclora_config", {"mc_samples": 1}),
    ("arrow_config", {"top_k": 1}),
    ("megatron_config", {"x": 1}),
    ("init_lora_weights", "pissa"),
    ("init_lora_weights", "pissa_niter_4"),
    ("init_lora_weights", "olora"),
    ("init_lora_weights", "loftq"),
    ("init_lora_weights", "corda"),
    ("use_something_of_next_year", True),
]


@pytest.mark.parametrize(("feature", "value"), UNSUPPORTED)
def test_a_feature_that_would_change_answers_is_refused_by_name(
    adapter_folder: Path, edit_config: Callable[..., None], feature: str, value: object
) -> None:
    edit_config(adapter_folder, **{feature: value})
    with pytest.raises(UnsupportedFeature, match=f"^{feature} is not supported"):
        read_adapter(adapter_folder)


def test_the_layout_of_the_base_weights_is_no_matter_of_the_adapter(
    adapter_folder: Path, edit_config: Callable[..., None]
) -> None:
    before = read_adapter(adapter_folder).digest
    edit_config(adapter_folder, fan_in_fan_out=True)
    assert read_adapter(adapter_folder).digest == before


BAD_FIELDS: list[tuple[str, Any]] = [
    ("peft_type", "IA3"),
    ("peft_type", None),
    ("r", 0),
    ("r", -4),
    ("r", 4.0),
    ("r", True),
    ("r", None),
    ("lora_alpha", "8"),
    ("lora_alpha", None),
    ("lora_alpha", math.nan),
    ("lora_alpha", 10**400),
    ("use_rslora", "yes"),
    ("target_modules", None),
    ("target_modules", []),
    ("target_modules", 5),
    ("target_modules", [1]),
    ("target_modules", "("),
    ("target_modules", "(a+)+b"),
    ("exclude_modules", "[a"),
    ("rank_pattern", ["q_proj"]),
    ("alpha_pattern", {"(": 1}),
    ("layers_to_transform", "0"),
    ("layers_to_transform", [-1]),
    ("layers_pattern", "layers"),
    ("base_model_name_or_path", 5),
    ("revision", 5),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
def test_a_bad_field_is_named_with_what_is_allowed(
    adapter_folder: Path, edit_config: Callable[..., None], field: str, value: object
) -> None:
    edit_config(adapter_folder, **{field: value})
    with pytest.raises(InvalidConfig, match=rf"^{field}: got .+, allowed: .+"):
        read_adapter(adapter_folder)


def test_a_bad_rank_inside_a_pattern_is_named(adapter_folder: Path, edit_config: Callable[..., None]) -> None:
    edit_config(adapter_folder, rank_pattern={"q_proj": 0})
    with pytest.raises(InvalidConfig, match=r"rank_pattern\['q_proj'\]: got 0"):
        read_adapter(adapter_folder)


def test_layers_together_with_a_regex_are_refused(
    adapter_folder: Path, edit_config: Callable[..., None]
) -> None:
    edit_config(adapter_folder, target_modules=".*q_proj", layers_to_transform=[0])
    with pytest.raises(InvalidConfig, match="only with a list of target_modules"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', "[" * 100_000])
def test_a_config_that_is_not_an_object_is_refused(adapter_folder: Path, text: str) -> None:
    (adapter_folder / "adapter_config.json").write_text(text)
    with pytest.raises(InvalidConfig, match=r"adapter_config\.json: got .*, allowed: a JSON object"):
        read_adapter(adapter_folder)
