"""Whatever lies in an adapter's folder, reading it ends well or with an error of this package."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.adapter_targets import AdapterTargets
from lora.errors import (
    AdapterNotFound,
    InvalidConfig,
    InvalidWeights,
    LimitExceeded,
    LoraError,
    UnreadableFile,
)
from lora.format import check_against, read_adapter

CHECK: dict[str, Any] = {"base_digest": "sha256:" + "b" * 64, "base_names": ["tiny"], "max_rank": 64}
FIELDS = [
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules",
    "exclude_modules", "layers_to_transform", "layers_pattern", "use_dora", "bias", "lora_bias",
    "modules_to_save", "trainable_token_indices", "alora_invocation_tokens", "ensure_weight_tying",
    "base_model_name_or_path", "revision", "init_lora_weights", "target_parameters", "layer_replication",
    "fan_in_fan_out", "arrow_config", "loftq_config", "task_type", "something of next year",
]  # fmt: skip
WORDS = [
    "q_proj",
    "lm_head",
    "embed_tokens",
    "norm",
    "all-linear",
    "all",
    "lora_only",
    ".*",
    "(",
    "model",
    "",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 70),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
QUICK = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def only_ours() -> Iterator[None]:
    """Anything else than a LoraError, and a message that cannot be sent, fails the test."""
    told = ""
    try:
        yield
    except LoraError as error:
        told = str(error)
    assert len(told.encode()) < 4000


def read(folder: Path, targets: AdapterTargets) -> None:
    adapter = read_adapter(folder)
    check_against(adapter, targets, **CHECK, force=True)


@QUICK
@given(changes=st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=4))
def test_any_values_of_the_configs_fields(
    changes: dict[str, Any], make_adapter: Callable[..., Any], targets: AdapterTargets, tmp_path: Path
) -> None:
    folder = _copy(make_adapter().folder, tmp_path)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    with only_ours():
        read(folder, targets)


@QUICK
@given(raw=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-16")))
@pytest.mark.parametrize(
    "name",
    ["adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "tokenizer_config.json"],
)
def test_any_bytes_in_any_file(
    raw: bytes, name: str, make_adapter: Callable[..., Any], targets: AdapterTargets, tmp_path: Path
) -> None:
    folder = _copy(make_adapter().folder, tmp_path)
    (folder / name).write_bytes(raw)
    with only_ours():
        read(folder, targets)


@QUICK
@given(data=st.data())
def test_any_damage_to_a_sound_weights_file(
    data: st.DataObject, make_adapter: Callable[..., Any], targets: AdapterTargets, tmp_path: Path
) -> None:
    folder = _copy(make_adapter().folder, tmp_path)
    file = folder / "adapter_model.safetensors"
    raw = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(raw)))
    file.write_bytes(raw[:cut])
    with only_ours():
        read(folder, targets)


ENTRIES = st.dictionaries(
    st.sampled_from(
        [
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
            "lm_head.weight",
            "__metadata__",
            "a",
        ]
    )
    | st.text(max_size=10),
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "BF16", "I64", "F8_E4M3"]) | VALUES,
            "shape": st.lists(st.integers(0, 40), max_size=3) | VALUES,
            "data_offsets": st.lists(st.integers(0, 6000), min_size=2, max_size=2) | VALUES,
        }
    )
    | VALUES,
    max_size=5,
)


@QUICK
@given(entries=ENTRIES, rest=st.integers(0, 6000))
def test_any_header(
    entries: dict[str, Any],
    rest: int,
    make_adapter: Callable[..., Any],
    targets: AdapterTargets,
    tmp_path: Path,
) -> None:
    folder = _copy(make_adapter().folder, tmp_path)
    header = json.dumps(entries).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(rest)
    )
    with only_ours():
        read(folder, targets)


def _copy(source: Path, tmp_path: Path) -> Path:
    target = tmp_path / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.6, 0.999])
def test_a_cut_file_is_told_as_truncated(adapter_folder: Path, share: float) -> None:
    file = adapter_folder / "adapter_model.safetensors"
    raw = file.read_bytes()
    file.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(InvalidWeights, match=r"truncated|beyond the end of the file"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 10**9])
def test_a_huge_header_is_not_believed(adapter_folder: Path, length: int) -> None:
    file = adapter_folder / "adapter_model.safetensors"
    file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(InvalidWeights, match=rf"header length {length} is beyond the end of the file"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    "name",
    ["a" * 513, "a\nb", "naïve.lora_A.weight", "\ud800", ""],
)
def test_a_tensors_name_must_be_fit_to_be_shown(adapter_folder: Path, name: str) -> None:
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    file = adapter_folder / "adapter_model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(InvalidWeights, match="printable ASCII"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("metadata", [5, ["a"], {"a": 1}, {"a": None}])
def test_metadata_must_be_texts(adapter_folder: Path, metadata: object) -> None:
    header = json.dumps({"__metadata__": metadata}).encode()
    (adapter_folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InvalidWeights, match="__metadata__"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("text", ['{"r": 4, "r": 8}', '{"rank_pattern": {"q": 1, "q": 2}}'])
def test_a_name_that_occurs_twice_in_the_config_is_told(adapter_folder: Path, text: str) -> None:
    (adapter_folder / "adapter_config.json").write_text(text)
    with pytest.raises(InvalidConfig, match="occurs twice in one object"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_absent(adapter_folder: Path, name: str) -> None:
    (adapter_folder / name).unlink()
    (adapter_folder / name).mkdir()
    with pytest.raises(AdapterNotFound, match=f"{name} is absent"):
        read_adapter(adapter_folder)
    (adapter_folder / name).rmdir()
    os.mkfifo(adapter_folder / name)
    with pytest.raises(AdapterNotFound, match=f"{name} is absent"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_what_the_system_does_not_give_is_told(
    adapter_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = Path.open

    def refuse(path: Path, *args: Any, **more: Any) -> Any:
        if path.name == name:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UnreadableFile, match=f"{name} cannot be read: Permission denied"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("field", ["target_modules", "exclude_modules", "modules_to_save", "rank_pattern"])
def test_a_list_without_end_is_refused(
    adapter_folder: Path, edit_config: Callable[..., None], field: str
) -> None:
    names = [f"m{number}" for number in range(5000)]
    edit_config(adapter_folder, **{field: dict.fromkeys(names, 1) if field == "rank_pattern" else names})
    with pytest.raises(LimitExceeded, match=f"number of entries of {field} is 5000, allowed: at most 4096"):
        read_adapter(adapter_folder)
