"""What is not served is refused by its name, what contradicts the base with both sides: never dropped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.adapter_targets import AdapterTargets
from engine.base_tensors import BaseTensors
from engine.modelspec import read_spec
from lora.errors import (
    InvalidConfig,
    InvalidWeights,
    MissingTensors,
    NotFinite,
    OutsideVocabulary,
    UnmatchedTensors,
    UnsupportedFeature,
    WrongShape,
    WrongVocabulary,
)
from lora.format import read_adapter
from lora.weights import load_weights
from tests.unit.lora.peft_models import Trained, fit, train

Q = "base_model.model.model.layers.0.self_attn.q_proj"
TABLE = "base_model.model.model.embed_tokens"
HEAD = "base_model.model.lm_head"
Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def rewrite(trained: Trained, change: Change) -> Trained:
    file = trained.folder / "adapter_model.safetensors"
    save_file({name: value.contiguous() for name, value in change(load_file(file)).items()}, file)
    return trained


def load(trained: Trained) -> None:
    targets = read_spec(trained.model).adapter_targets
    adapter, report = read_adapter(trained.folder), fit(trained.model, trained.folder)
    load_weights(adapter, report, targets, BaseTensors(trained.model), torch.float32)


TOGETHER: list[tuple[str, dict[str, Any]]] = [
    ("lora_bias together with use_dora", {"lora_bias": True, "use_dora": True}),
    ("use_dora together with alora_invocation_tokens", {"alora_invocation_tokens": [1], "use_dora": True}),
    ("bias together with alora_invocation_tokens", {"alora_invocation_tokens": [1], "bias": "all"}),
    (
        "modules_to_save together with alora_invocation_tokens",
        {"alora_invocation_tokens": [1], "modules_to_save": ["norm"]},
    ),
    (
        "trainable_token_indices together with alora_invocation_tokens",
        {"alora_invocation_tokens": [1], "trainable_token_indices": [1]},
    ),
]


@pytest.mark.parametrize(("feature", "fields"), TOGETHER, ids=[feature for feature, _ in TOGETHER])
def test_features_that_do_not_go_together_are_named(
    adapter_folder: Path, edit_config: Callable[..., None], feature: str, fields: dict[str, Any]
) -> None:
    edit_config(adapter_folder, **fields)
    with pytest.raises(UnsupportedFeature, match=f"^{feature} is not supported"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("family", "config", "feature"),
    [
        ("llama", {"modules_to_save": ["up_proj"]}, "modules_to_save is not supported .*up_proj"),
        ("llama", {"modules_to_save": ["mlp"]}, "modules_to_save is not supported .*mlp"),
    ],
)
def test_what_peft_trains_and_we_do_not_serve_is_named(
    family: str, config: dict[str, Any], feature: str, tmp_path: Path
) -> None:
    trained = train(tmp_path, family, **{"target_modules": ["q_proj"], **config})
    with pytest.raises(UnsupportedFeature, match=feature):
        fit(trained.model, trained.folder)


@pytest.mark.parametrize("family", ["llama", "tied"])
def test_ensure_weight_tying_is_neutral_where_it_changes_nothing(family: str, tmp_path: Path) -> None:
    trained = train(tmp_path, family, target_modules=["q_proj"], ensure_weight_tying=True)
    assert fit(trained.model, trained.folder).warnings == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trainable_token_indices": [3], "target_modules": ["q_proj", "embed_tokens"]}, "another change of"),
        ({"trainable_token_indices": [3], "modules_to_save": ["embed_tokens"]}, "another change of"),
        ({"trainable_token_indices": {"lm_head": [3]}, "modules_to_save": ["lm_head"]}, "another change of"),
        ({"trainable_token_indices": {"q_proj": [3]}}, "trainable_token_indices of a module .*q_proj"),
        ({"alora_invocation_tokens": [3], "target_modules": ["embed_tokens"]}, "LoRA on embeddings"),
        ({"lora_bias": True, "target_modules": ["embed_tokens"]}, "lora_bias on embeddings"),
    ],
)
def test_changes_of_a_table_that_exclude_each_other_are_named(
    fields: dict[str, Any], message: str, tmp_path: Path, edit_config: Callable[..., None]
) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj"])
    edit_config(trained.folder, **fields)
    with pytest.raises(UnsupportedFeature, match=message):
        fit(trained.model, trained.folder)


def test_a_saved_head_beside_tied_token_rows_is_named(
    tmp_path: Path, edit_config: Callable[..., None]
) -> None:
    trained = train(tmp_path, "tied", target_modules=["q_proj"])
    edit_config(trained.folder, trainable_token_indices=[3], modules_to_save=["lm_head"])
    with pytest.raises(UnsupportedFeature, match="a saved lm_head that is tied"):
        fit(trained.model, trained.folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bias", "lora"),
        ("bias", True),
        ("use_dora", 1),
        ("lora_bias", "yes"),
        ("modules_to_save", "lm_head"),
        ("modules_to_save", [1]),
        ("trainable_token_indices", [-1]),
        ("trainable_token_indices", [1.0]),
        ("trainable_token_indices", [1, 1]),
        ("trainable_token_indices", {"embed_tokens": "1"}),
        ("alora_invocation_tokens", 5),
        ("alora_invocation_tokens", [True]),
        ("ensure_weight_tying", "no"),
    ],
)
def test_a_bad_value_of_a_feature_is_named(
    adapter_folder: Path, edit_config: Callable[..., None], field: str, value: object
) -> None:
    edit_config(adapter_folder, **{field: value})
    with pytest.raises(InvalidConfig, match=rf"^{field}: got .+, allowed: .+"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trainable_token_indices": [3, 64]}, "trainable_token_indices names token 64, allowed: 0 to 63"),
        ({"alora_invocation_tokens": [99]}, "alora_invocation_tokens names token 99, allowed: 0 to 63"),
    ],
)
def test_tokens_outside_the_vocabulary_are_named(
    adapter_folder: Path,
    tiny_model: Path,
    edit_config: Callable[..., None],
    fields: dict[str, Any],
    message: str,
) -> None:
    edit_config(adapter_folder, **fields)
    with pytest.raises(OutsideVocabulary, match=message):
        fit(tiny_model, adapter_folder)


@pytest.mark.parametrize(
    ("config", "name", "rows"),
    [
        ({"target_modules": ["embed_tokens"]}, f"{TABLE}.lora_embedding_A", (4, 70)),
        ({"target_modules": ["embed_tokens"]}, f"{TABLE}.base_layer.weight", (70, 32)),
        ({"target_modules": ["lm_head"]}, f"{HEAD}.lora_B.weight", (60, 4)),
        ({"modules_to_save": ["lm_head"]}, f"{HEAD}.weight", (70, 32)),
        ({"modules_to_save": ["embed_tokens"]}, f"{TABLE}.weight", (70, 32)),
    ],
)
def test_a_resized_vocabulary_tells_both_sizes(
    config: dict[str, Any], name: str, rows: tuple[int, int], tmp_path: Path
) -> None:
    trained = train(tmp_path, "llama", **{"target_modules": ["q_proj"], **config})
    rewrite(trained, lambda tensors: {**tensors, name: torch.ones(rows)})
    with pytest.raises(WrongVocabulary, match=rf"tensor {name} has rows for {max(rows)} .* has 64"):
        fit(trained.model, trained.folder)


ASKED: list[tuple[dict[str, Any], str]] = [
    ({"use_dora": True}, r"q_proj\.lora_magnitude_vector"),
    ({"lora_bias": True}, r"q_proj\.lora_B\.bias"),
    ({"bias": "all"}, r"k_proj\.bias"),
    ({"bias": "lora_only"}, r"q_proj\.bias"),
    ({"modules_to_save": ["model.norm"]}, r"model\.norm\.weight"),
    ({"modules_to_save": ["lm_head"]}, r"lm_head\.weight"),
    ({"trainable_token_indices": [1]}, r"model\.embed_tokens\.trainable_tokens_delta"),
    ({"target_modules": ["q_proj", "embed_tokens"]}, r"embed_tokens\.lora_embedding_A"),
    ({"target_modules": ["q_proj", "lm_head"]}, r"lm_head\.lora_A"),
]


@pytest.mark.parametrize(("fields", "absent"), ASKED)
def test_what_the_config_asks_for_and_the_file_lacks_is_named(
    fields: dict[str, Any], absent: str, tmp_path: Path, edit_config: Callable[..., None]
) -> None:
    trained = train(tmp_path, "qwen2", target_modules=["q_proj"])
    edit_config(trained.folder, **fields)
    with pytest.raises(MissingTensors, match=absent):
        fit(trained.model, trained.folder)


@pytest.mark.parametrize(("config", "absent"), ASKED)
def test_what_the_file_holds_and_the_config_does_not_ask_for_is_named(
    config: dict[str, Any], absent: str, tmp_path: Path, edit_config: Callable[..., None]
) -> None:
    trained = train(tmp_path, "qwen2", **{"target_modules": ["q_proj"], **config})
    neutral = dict.fromkeys(("modules_to_save", "trainable_token_indices"))
    plain = {"use_dora": False, "lora_bias": False, "bias": "none", "target_modules": ["q_proj"]}
    edit_config(trained.folder, **neutral, **plain)
    if config == {"modules_to_save": ["lm_head"]}:
        assert [tensor.name for tensor in fit(trained.model, trained.folder).copies] == [f"{HEAD}.weight"]
        return
    with pytest.raises(UnmatchedTensors, match="does not target these modules, or not with such tensors"):
        fit(trained.model, trained.folder)


def test_a_classifier_is_named_as_a_module_that_was_saved(
    adapter_folder: Path,
    tiny_model: Path,
    edit_config: Callable[..., None],
    edit_tensors: Callable[[Path, Change], None],
) -> None:
    edit_config(adapter_folder, modules_to_save=["classifier", "score"])
    edit_tensors(adapter_folder, lambda t: {**t, "base_model.model.score.weight": torch.ones(2, 32)})
    with pytest.raises(UnsupportedFeature, match=r"modules_to_save is not supported .*score"):
        fit(tiny_model, adapter_folder)


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [
        ({"use_dora": True}, f"{Q}.lora_magnitude_vector", (31,)),
        ({"use_dora": True}, f"{Q}.lora_magnitude_vector", (1, 32)),
        ({"lora_bias": True}, f"{Q}.lora_B.bias", (33,)),
        ({"bias": "lora_only"}, f"{Q}.base_layer.bias", (16,)),
        ({"modules_to_save": ["model.norm"]}, "base_model.model.model.norm.weight", (16,)),
        ({"modules_to_save": ["lm_head"]}, f"{HEAD}.weight", (64, 16)),
        ({"trainable_token_indices": [1, 2]}, f"{TABLE}.token_adapter.trainable_tokens_delta", (3, 32)),
        ({"target_modules": ["embed_tokens"]}, f"{TABLE}.lora_embedding_A", (3, 64)),
    ],
)
def test_every_kind_of_tensor_has_a_shape(
    config: dict[str, Any], name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    trained = train(tmp_path, "qwen2", **{"target_modules": ["q_proj"], **config})
    rewrite(trained, lambda tensors: {**tensors, name: torch.ones(shape)})
    with pytest.raises(WrongShape, match=rf"tensor {name} has shape .*{shape[0]}.*, expected"):
        fit(trained.model, trained.folder)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"use_dora": True}, f"{Q}.lora_magnitude_vector"),
        ({"lora_bias": True}, f"{Q}.lora_B.bias"),
        ({"bias": "lora_only"}, f"{Q}.base_layer.bias"),
        ({"modules_to_save": ["model.norm"]}, "base_model.model.model.norm.weight"),
        ({"modules_to_save": ["lm_head"]}, f"{HEAD}.weight"),
        ({"modules_to_save": ["embed_tokens"]}, f"{TABLE}.weight"),
        ({"trainable_token_indices": [1, 2]}, f"{TABLE}.token_adapter.trainable_tokens_delta"),
        ({"target_modules": ["embed_tokens"]}, f"{TABLE}.lora_embedding_B"),
        ({"target_modules": ["lm_head"]}, f"{HEAD}.lora_A.weight"),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_every_kind_of_tensor_must_be_finite(
    config: dict[str, Any], name: str, value: float, tmp_path: Path
) -> None:
    def spoil(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors[name].view(-1)[5] = value
        return tensors

    trained = rewrite(train(tmp_path, "qwen2", **{"target_modules": ["q_proj"], **config}), spoil)
    with pytest.raises(NotFinite, match=rf"tensor {name} holds 1 values"):
        load(trained)


def test_a_gain_over_a_row_of_zeros_is_not_finite(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj"], use_dora=True)
    weights = load_file(trained.model / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.weight"][3] = 0.0
    save_file(weights, trained.model / "model.safetensors", metadata={"format": "pt"})
    rewrite(trained, lambda t: {n: v * 0.0 if n == f"{Q}.lora_B.weight" else v for n, v in t.items()})
    with pytest.raises(NotFinite, match="lora_magnitude_vector"):
        load(trained)


def test_two_copies_of_a_tied_table_that_differ_contradict_each_other(tmp_path: Path) -> None:
    trained = train(tmp_path, "tied", target_modules=["embed_tokens", "lm_head"])
    rewrite(trained, lambda tensors: {**tensors, f"{HEAD}.base_layer.weight": torch.ones(64, 32)})
    with pytest.raises(InvalidWeights, match="the base's head is its token table, and these two differ"):
        load(trained)


def test_a_copy_of_the_original_of_a_saved_module_must_repeat_the_base(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj"], modules_to_save=["model.norm"])
    name = "base_model.model.model.norm.original_module.weight"
    rewrite(trained, lambda tensors: {**tensors, name: torch.full((32,), 7.0)})
    with pytest.raises(UnsupportedFeature, match=rf"made from another one .*{name}"):
        load(trained)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("model.", "language_model.model.", "language_model.* as *"),
        ("model.", "model.language_model.", "model.language_model.* as model.*"),
        ("model.", "module.model.", "module.* as *"),
        ("model.", "", "* as model.*"),
        ("model.", "_orig_mod.model.", "_orig_mod"),
    ],
)
def test_names_of_other_wrappings_are_mapped_and_told(
    adapter_folder: Path,
    tiny_model: Path,
    edit_tensors: Callable[[Path, Change], None],
    old: str,
    new: str,
    told: str,
) -> None:
    before = fit(tiny_model, adapter_folder).modules.keys()
    prefix = "base_model.model."
    edit_tensors(
        adapter_folder, lambda t: {n.replace(prefix + old, prefix + new, 1): v for n, v in t.items()}
    )
    report = fit(tiny_model, adapter_folder)
    assert report.modules.keys() == before
    assert report.mapped == (told,)
    assert report.warnings == (f"names of tensors were mapped: {told}",)


def test_a_head_inside_a_vision_models_language_model_is_mapped(
    tmp_path: Path, edit_config: Callable[..., None]
) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj", "lm_head"])
    rewrite(
        trained,
        lambda t: {
            n.replace("base_model.model.", "base_model.model.language_model.", 1): v for n, v in t.items()
        },
    )
    assert "lm_head" in fit(trained.model, trained.folder).modules


def test_two_names_of_one_module_are_refused(
    adapter_folder: Path, tiny_model: Path, edit_tensors: Callable[[Path, Change], None]
) -> None:
    wrapped = "base_model.model.language_model."
    edit_tensors(
        adapter_folder,
        lambda t: t | {n.replace("base_model.model.", wrapped, 1): v.clone() for n, v in t.items()},
    )
    with pytest.raises(UnmatchedTensors, match=r"has no such modules \(12 tensors match, 12 do not\)"):
        fit(tiny_model, adapter_folder)


def test_the_report_is_plain_data(tmp_path: Path) -> None:
    trained = train(
        tmp_path, "qwen2", target_modules=["q_proj", "embed_tokens"], use_dora=True, bias="lora_only"
    )
    summary = fit(trained.model, trained.folder).summary()
    q = summary["matched_modules"]["model.layers.0.self_attn.q_proj"]
    assert (q["kinds"], q["rank"], q["scale"]) == (["lora", "dora", "bias"], 4, 1.5)
    assert q["bytes"] == 4 * (4 * 32 + 32 * 4 + 32 + 32)
    assert summary["matched_modules"]["model.embed_tokens"]["kinds"] == ["lora", "dora", "copy of the base"]
    assert summary["copies"] == [f"{TABLE}.base_layer.weight"]
    assert set(summary["files"]) == {"adapter_config.json", "adapter_model.safetensors"}
    assert summary["bytes"] == read_adapter(trained.folder).bytes


def test_targets_of_a_base_are_what_the_matching_needs(targets: AdapterTargets) -> None:
    assert targets.embedding == "model.embed_tokens"
    assert set(targets.linear) >= {"lm_head"}
