"""GGUF in, model folder out: the same tensors, tokenizer and figures, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from engine import importer
from engine.config import EngineConfig
from engine.errors import UnsupportedModel
from engine.importer import import_gguf
from engine.runner import build_runner
from engine.shards import ShardWriter
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import Row, byte_level_encoder
from tests.unit.engine.gguf_files import save_model, write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with tied embeddings, as Hugging Face keeps it."""
    made = tmp_path_factory.mktemp("llama")
    rope = {"rope_type": "default", "rope_theta": 100000.0}
    save_model("Llama", made, rms_norm_eps=1e-5, rope_parameters=rope, tie_word_embeddings=True)
    return made


@pytest.fixture
def imported(folder: Path, tmp_path: Path) -> Path:
    return import_gguf(
        write_model(tmp_path / "m.gguf", "Llama", folder), tmp_path / "deep" / "out", "float32"
    )


def test_tensors_are_the_model_s_own(folder: Path, imported: Path) -> None:
    tensors, source = load_file(imported / "model.safetensors"), load_file(folder / "model.safetensors")
    assert tensors.keys() == source.keys()
    for name, tensor in source.items():
        assert torch.equal(tensors[name], tensor), name


def test_transformers_reloads_it_as_a_plain_model(folder: Path, imported: Path) -> None:
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(imported).eval()
    assert reloaded.config.rms_norm_eps == 1e-5
    assert reloaded.config.rope_parameters["rope_theta"] == 100000.0
    assert getattr(reloaded.config, "quantization_config", None) is None
    assert reloaded.generation_config.eos_token_id == [2, 0]


def test_dtype_is_stored(folder: Path, tmp_path: Path) -> None:
    out = import_gguf(write_model(tmp_path / "m.gguf", "Llama", folder), tmp_path / "out", "bfloat16")
    assert {t.dtype for t in load_file(out / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"


def test_progress_ends_at_the_whole(folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    file = write_model(tmp_path / "m.gguf", "Llama", folder)
    import_gguf(file, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert (
        seen[-1][0]
        == seen[-1][1]
        == sum(t.numel() * 4 for t in load_file(folder / "model.safetensors").values())
    )


def test_large_models_come_in_shards(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "ShardWriter", lambda folder: ShardWriter(folder, shard_bytes=30_000))
    file = write_model(tmp_path / "m.gguf", "Llama", folder)
    out = import_gguf(file, tmp_path / "out", "float32")
    names = sorted(path.name for path in out.glob("*.safetensors"))
    assert len(names) > 1
    assert names[0] == f"model-00001-of-{len(names):05}.safetensors"
    source = load_file(folder / "model.safetensors")
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in source.values())
    for name, tensor in source.items():
        assert torch.equal(load_file(out / index["weight_map"][name])[name], tensor)
    runners = [
        build_runner(EngineConfig(model=at, dtype="float32", num_blocks=4, backend="reference"))
        for at in (out, folder)
    ]
    span = Row(0, [5, 6, 7], [1]).span(0, 3)
    torch.testing.assert_close(*(runner.logits((span,)) for runner in runners))


def test_digits_are_split(imported: Path) -> None:
    tokenizer = Tokenizer(imported)
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("12345")] == [b"1", b"2", b"3", b"4", b"5"]
    raw = json.loads((imported / "tokenizer.json").read_text())
    assert [step["type"] for step in raw["pre_tokenizer"]["pretokenizers"]] == ["Digits", "ByteLevel"]


def test_tokenizer_equals_its_source_and_transformers(imported: Path) -> None:
    ours, original = Tokenizer(imported), byte_level_encoder()
    theirs = transformers.AutoTokenizer.from_pretrained(imported)
    for text in ("the quick dog", "naïve 🙂\n\n", "<|im_start|>user<tool call>", " größer"):
        assert ours.encode(text) == original.encode(text).ids == theirs(text)["input_ids"]
    talk = [{"role": "user", "content": "the 42 dogs"}]
    want = theirs.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    assert ours.encode(ours.render_chat(talk), add_special_tokens=False) == want
    assert ours.eos_ids == {0, 2}
    assert (theirs.bos_token, theirs.eos_token, theirs.model_max_length) == ("<|im_start|>", "<|im_end|>", 64)


def test_existing_folder_is_left_alone(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert import_gguf(write_model(tmp_path / "m.gguf", "Llama", folder), out) == out
    assert list(out.iterdir()) == []


def test_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GIF89a" * 100)
    with pytest.raises(UnsupportedModel, match="is not a GGUF file"):
        import_gguf(tmp_path / "m.gguf", tmp_path / "out")


@pytest.mark.parametrize("arch", ["bloom", "mamba"])
def test_other_architectures_are_named(tmp_path: Path, arch: str) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "m.gguf", arch)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        UnsupportedModel, match=f"architecture {arch} is not .*: llama, qwen2, .*gemma3, phi3"
    ):
        import_gguf(tmp_path / "m.gguf", tmp_path / "out")


def test_missing_vocabulary_is_named(folder: Path, tmp_path: Path) -> None:
    def no_tokens(writer: Any, changes: dict[str, Any]) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")

    file = write_model(tmp_path / "m.gguf", "Llama", folder, tokens=no_tokens)
    with pytest.raises(UnsupportedModel, match=r"lacks the metadata tokenizer.ggml.tok"):
        import_gguf(file, tmp_path / "out")
