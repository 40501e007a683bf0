"""Adapters that are refused, each with the message its owner will read."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from lora.errors import (
    AdapterMismatch,
    InvalidConfig,
    InvalidWeights,
    LimitExceeded,
    MissingTensors,
    NotFinite,
    UnmatchedTensors,
    UnsupportedFeature,
    WrongBase,
    WrongShape,
)
from lora.format import check_against, read_adapter
from lora.weights import load_weights

BASE_DIGEST = "sha256:" + "b" * 64
CHECK: dict[str, Any] = {"base_digest": BASE_DIGEST, "base_names": ["tiny"], "max_rank": 64}
Q = "base_model.model.model.layers.0.self_attn.q_proj"

UNSUPPORTED: list[tuple[str, Any]] = [
    ("use_dora", True),
    ("bias", "lora_only"),
    ("bias", "all"),
    ("lora_bias", True),
    ("modules_to_save", ["lm_head"]),
    ("trainable_token_indices", [1, 2]),
    ("target_parameters", ["mlp.experts.gate_up_proj"]),
    ("fan_in_fan_out", True),
    ("layer_replication", [[0, 2], [1, 3]]),
    ("alora_invocation_tokens", [5]),
    ("use_qalora", True),
    ("use_bdlora", {"nblocks": 2}),
    ("kasa_config", {"beta": 1}),
    ("monteclora_config", {"mc_samples": 1}),
    ("arrow_config", {"top_k": 1}),
    ("ensure_weight_tying", True),
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


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: raw[: len(raw) * 6 // 10], "truncated or overlong"),
        (lambda raw: raw + b"x", "truncated or overlong"),
        (lambda raw: raw[:5], "truncated: 5 bytes"),
        (lambda raw: b"", "truncated: 0 bytes"),
        (lambda raw: (1 << 62).to_bytes(8, "little") + raw[8:], "is beyond the end of the file"),
        (lambda raw: raw[:8] + b"\xff" + raw[9:], "the header is not JSON"),
        (lambda raw: (2).to_bytes(8, "little") + b"[]", "the header is not a JSON object"),
        (lambda raw: (2).to_bytes(8, "little") + b"{}", "it holds no tensors"),
    ],
)
def test_damaged_weights_are_told_apart(
    adapter_folder: Path, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = adapter_folder / "adapter_model.safetensors"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)


def _header(entries: str, data: bytes) -> bytes:
    return len(entries).to_bytes(8, "little") + entries.encode() + data


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}}', "a name occurs twice"),
        ('{"a":5}', "damaged header entry: a"),
        ('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', "damaged header entry: a"),
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}', "damaged header entry: a"),
        ('{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}', "dtype 'I64', allowed: F32, F16, BF16"),
        ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', "4 bytes do not make a F32 tensor"),
        (
            '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
            '"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            "tensors overlap or leave a gap: b",
        ),
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', "tensors overlap or leave a gap: a"),
    ],
)
def test_a_lying_header_is_refused(adapter_folder: Path, entries: str, message: str) -> None:
    (adapter_folder / "adapter_model.safetensors").write_bytes(_header(entries, bytes(8)))
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        (f"{Q}.lora_magnitude_vector", "use_dora"),
        (f"{Q}.lora_magnitude_vector.weight", "use_dora"),
        (f"{Q}.lora_B.bias", "lora_bias"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", "LoRA on embeddings"),
        ("base_model.model.model.embed_tokens.base_layer.weight", "saved embeddings"),
        (
            "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
            "trainable_token_indices",
        ),
    ],
)
def test_tensors_of_an_unsupported_feature_are_refused_by_its_name(
    adapter_folder: Path, edit_tensors: Callable[..., None], name: str, feature: str
) -> None:
    edit_tensors(adapter_folder, lambda tensors: {**tensors, name: torch.ones(4, 4)})
    with pytest.raises(UnsupportedFeature, match=f"^{feature} is not supported"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {**t, "base_model.model.lm_head.weight": torch.ones(64, 32)}, "not LoRA tensors"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(128)}, "1-D tensors, as a sharded"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(4, 0)}, "none of them 0"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(4, 4, 2)}, "two dimensions"),
        (
            lambda t: {n: v for n, v in t.items() if n != f"{Q}.lora_B.weight"},
            "one of lora_A and lora_B is absent for",
        ),
        (lambda t: {**t, f"{Q}.lora_A.default.weight": torch.ones(4, 32)}, "two tensors for one matrix"),
    ],
)
def test_tensors_that_are_not_lora_matrices_are_refused(
    adapter_folder: Path, edit_tensors: Callable[..., None], change: Callable[..., Any], message: str
) -> None:
    edit_tensors(adapter_folder, change)
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)


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
