"""Whole adapters as PEFT saves them: what is read equals PEFT's own layers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engine.adapter_targets import AdapterTargets
from engine.base_tensors import BaseTensors
from lora.errors import AdapterNotFound, LimitExceeded, RankTooLarge, UnsupportedFeature
from lora.format import Limits, check_against, read_adapter
from lora.weights import load_weights

CHECK = {"base_digest": "sha256:" + "b" * 64, "base_names": ["tiny"], "max_rank": 64}

VARIANTS: dict[str, dict[str, Any]] = {
    "list": {},
    "every module": {
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    },
    "one full name": {"target_modules": ["model.layers.1.mlp.down_proj"]},
    "all-linear": {"target_modules": "all-linear"},
    "regex": {"target_modules": r".*\.(0|2)\..*(q|down)_proj"},
    "exclude list": {"exclude_modules": ["layers.1.self_attn.q_proj"]},
    "exclude regex": {"target_modules": "all-linear", "exclude_modules": r".*\.mlp\..*"},
    "some layers": {"layers_to_transform": [0, 2]},
    "one layer": {"layers_to_transform": 1, "layers_pattern": "layers"},
    "rslora": {"r": 16, "lora_alpha": 16, "use_rslora": True},
    "rank pattern": {"rank_pattern": {"q_proj": 2, "layers.1.self_attn.v_proj": 8}},
    "first pattern wins": {"rank_pattern": {r"layers\.0\.self_attn\.q_proj": 3, "q_proj": 6}},
    "alpha pattern": {"alpha_pattern": {"v_proj": 3, r"model\.layers\.2\..*q_proj": 32}},
    "patterns and rslora": {
        "rank_pattern": {"q_proj": 9},
        "alpha_pattern": {"q_proj": 6},
        "use_rslora": True,
    },
    "gaussian init": {"init_lora_weights": "gaussian"},
    "dropout": {"lora_dropout": 0.1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_targets_matrices_and_scales_equal_those_of_peft(
    variant: str, make_adapter: Callable[..., Any], targets: AdapterTargets, base: BaseTensors
) -> None:
    made = make_adapter(**VARIANTS[variant])
    adapter = read_adapter(made.folder)
    report = check_against(adapter, targets, **CHECK)
    weights = load_weights(adapter, report, targets, base, torch.float32)
    assert weights.digest == adapter.digest
    assert weights.modules.keys() == made.pairs.keys()
    assert report.warnings == ()
    for name, expected in made.pairs.items():
        found = weights.modules[name]
        assert found.scale == pytest.approx(expected.scale, rel=1e-12)
        assert torch.equal(found.a, expected.a)
        assert torch.equal(found.b, expected.b)


def test_a_written_all_linear_means_every_linear_layer_but_the_head(
    make_adapter: Callable[..., Any],
    targets: AdapterTargets,
    tmp_path: Path,
    edit_config: Callable[..., None],
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(make_adapter(target_modules="all-linear").folder, folder)
    edit_config(folder, target_modules="All-Linear")
    report = check_against(read_adapter(folder), targets, **CHECK)
    assert report.modules.keys() == targets.linear.keys() - {"lm_head"}


def test_rank_and_bytes_describe_the_whole_adapter(make_adapter: Callable[..., Any]) -> None:
    made = make_adapter(rank_pattern={"q_proj": 2, "layers.1.self_attn.v_proj": 8})
    adapter = read_adapter(made.folder)
    assert adapter.rank == 8
    assert adapter.bytes == sum(4 * (pair.a.numel() + pair.b.numel()) for pair in made.pairs.values())


def test_digest_ignores_file_order_metadata_and_meaningless_config(
    adapter_folder: Path, edit_config: Callable[..., None]
) -> None:
    before = read_adapter(adapter_folder).digest
    path = adapter_folder / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file(dict(reversed(tensors.items())), path, metadata={"made": "elsewhere"})
    config = json.loads((adapter_folder / "adapter_config.json").read_text())
    edit_config(
        adapter_folder,
        target_modules=list(reversed(config["target_modules"])),
        lora_dropout=0.5,
        inference_mode=False,
        lora_alpha=8.0,
        layers_to_transform=[],
    )
    assert read_adapter(adapter_folder.rename(adapter_folder.with_name("renamed"))).digest == before


@pytest.mark.parametrize(
    "fields",
    [
        {"lora_alpha": 9},
        {"use_rslora": True},
        {"alpha_pattern": {"q_proj": 1}},
        {"target_modules": ["q_proj"]},
        {"base_model_name_or_path": "other"},
        {"revision": "sha256:" + "0" * 64},
    ],
)
def test_digest_follows_every_field_that_matters(
    adapter_folder: Path, edit_config: Callable[..., None], fields: dict[str, Any]
) -> None:
    before = read_adapter(adapter_folder).digest
    edit_config(adapter_folder, **fields)
    assert read_adapter(adapter_folder).digest != before


def test_digest_follows_a_single_bit(adapter_folder: Path) -> None:
    before = read_adapter(adapter_folder).digest
    path = adapter_folder / "adapter_model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert read_adapter(adapter_folder).digest != before


def test_header_agrees_with_the_safetensors_library(adapter_folder: Path) -> None:
    adapter = read_adapter(adapter_folder)
    with safe_open(adapter.weights_file, framework="pt") as file:
        assert {name: tuple(file.get_tensor(name).shape) for name in file.keys()} == {  # noqa: SIM118
            name: info.shape for name, info in adapter.tensors.items()
        }


def test_a_pickle_is_refused_and_not_opened(adapter_folder: Path) -> None:
    (adapter_folder / "adapter_model.safetensors").rename(adapter_folder / "adapter_model.bin")
    with pytest.raises(UnsupportedFeature, match=r"adapter_model\.bin .* save the adapter as safetensors"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_absent_file_is_named(adapter_folder: Path, name: str) -> None:
    (adapter_folder / name).unlink()
    with pytest.raises(AdapterNotFound, match=rf"no adapter at 'plain': {name} is absent"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(config_bytes=10), r"size of adapter_config.json in bytes is \d+, allowed: at most 10"),
        (
            Limits(weights_bytes=100),
            r"size of adapter_model.safetensors in bytes is \d+, allowed: at most 100",
        ),
        (Limits(header_bytes=20), r"size of the safetensors header in bytes is \d+, allowed: at most 20"),
        (Limits(tensors=3), "number of tensors is 12, allowed: at most 3"),
        (Limits(rank=3), r"rank \(r\) is 4, allowed: at most 3"),
    ],
)
def test_every_limit_tells_both_numbers(adapter_folder: Path, limits: Limits, message: str) -> None:
    with pytest.raises((LimitExceeded, RankTooLarge), match=message):
        read_adapter(adapter_folder, limits=limits)
