"""GGUF in, model folder out: the same tensors, tokenizer and figures, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from engine.errors import UnsupportedModel
from engine.importer import import_gguf
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import CHATML, byte_level_encoder

LAYERS, HEADS, KV_HEADS, HIDDEN, INNER = 2, 4, 2, 32, 64


def model() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=byte_level_encoder().get_vocab_size(),
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """As llama.cpp's converter stores q and k."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_tensors(source: Any) -> dict[str, torch.Tensor]:
    state = source.state_dict()
    found = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
    }
    for layer in range(LAYERS):
        for theirs, ours in NAMES.items():
            weight = state[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                weight = interleaved(weight, HEADS if ours == "attn_q" else KV_HEADS)
            found[f"blk.{layer}.{ours}.weight"] = weight
    return found


def write_gguf(path: Path, source: Any, **changes: Any) -> Path:
    """`changes`: arch, model, pre, scaling, extra (tensor name), omit (a method not called)."""
    writer = gguf.GGUFWriter(path, changes.get("arch", "llama"))
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    if changes.get("omit") != "head_count":
        writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if "scaling" in changes:
        writer.add_rope_scaling_type(changes["scaling"])
    add_tokenizer(writer, changes)
    for name, tensor in gguf_tensors(source).items():
        writer.add_tensor(name, tensor.numpy())
    if "extra" in changes:
        writer.add_tensor(changes["extra"], np.ones(3, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: Any, changes: dict[str, Any]) -> None:
    encoder = byte_level_encoder()
    vocab = sorted(encoder.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(encoder.to_str())["model"]["merges"]
    added = encoder.get_added_tokens_decoder()
    kinds = [(3 if added[i].special else 4) if i in added else 1 for _, i in vocab]
    writer.add_tokenizer_model(changes.get("model", "gpt2"))
    writer.add_tokenizer_pre(changes.get("pre", "smollm"))
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(changes.get("add_bos", False))
    writer.add_chat_template(CHATML)


@pytest.fixture(scope="module")
def source() -> Any:
    return model()


@pytest.fixture
def imported(source: Any, tmp_path: Path) -> Path:
    return import_gguf(write_gguf(tmp_path / "m.gguf", source), tmp_path / "deep" / "folder", "float32")


def test_tensors_are_the_model_s_own(source: Any, imported: Path) -> None:
    tensors = load_file(imported / "model.safetensors")
    state = {name: tensor for name, tensor in source.state_dict().items() if name != "lm_head.weight"}
    assert tensors.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(tensors[name], tensor), name


def test_transformers_reloads_it_as_a_plain_model(source: Any, imported: Path) -> None:
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(imported).eval()
    ids = torch.tensor([[5, 40, 7, 99]])
    with torch.no_grad():
        torch.testing.assert_close(reloaded(ids).logits, source(ids).logits)
    assert reloaded.config.rms_norm_eps == 1e-5
    assert reloaded.config.rope_parameters["rope_theta"] == 100000.0
    assert getattr(reloaded.config, "quantization_config", None) is None
    assert reloaded.generation_config.eos_token_id == [2, 0]


def test_dtype_is_stored(source: Any, tmp_path: Path) -> None:
    folder = import_gguf(write_gguf(tmp_path / "m.gguf", source), tmp_path / "out", "bfloat16")
    assert {t.dtype for t in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"


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
    assert ours.encode_chat(talk) == want
    assert ours.eos_ids == {0, 2}
    assert (theirs.bos_token, theirs.eos_token, theirs.model_max_length) == ("<|im_start|>", "<|im_end|>", 64)


def test_bos_is_put_in_front_where_the_file_asks(source: Any, tmp_path: Path) -> None:
    folder = import_gguf(write_gguf(tmp_path / "m.gguf", source, add_bos=True), tmp_path / "out")
    assert Tokenizer(folder).encode("the dog")[0] == 1


def test_existing_folder_is_left_alone(source: Any, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert import_gguf(write_gguf(tmp_path / "m.gguf", source), folder) == folder
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "gpt2"}, "architecture gpt2 is not supported; supported: llama"),
        ({"scaling": gguf.RopeScalingType.YARN}, "RoPE scaling yarn"),
        ({"model": "llama"}, "tokenizer llama is not supported; supported: gpt2"),
        ({"pre": "tekken"}, "pre-tokenizer tekken is not supported; supported: gpt-2, smollm"),
        ({"extra": "rope_freqs.weight"}, "tensor rope_freqs.weight"),
        ({"omit": "head_count"}, "lacks the metadata llama.attention.head_count"),
    ],
)
def test_what_is_not_known_is_refused_and_leaves_nothing(
    source: Any, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = write_gguf(tmp_path / "m.gguf", source, **changes)
    with pytest.raises(UnsupportedModel, match=message):
        import_gguf(file, tmp_path / "models" / "out")
    left = list((tmp_path / "models").iterdir()) if (tmp_path / "models").exists() else []
    assert left == []


def test_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GIF89a" * 100)
    with pytest.raises(UnsupportedModel, match="is not a GGUF file"):
        import_gguf(tmp_path / "m.gguf", tmp_path / "out")
