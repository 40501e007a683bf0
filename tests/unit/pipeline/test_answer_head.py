"""The head that scores answers only gives TRL's own figures and gradients."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import add_fused_lm_head

from pipeline.methods import answer_head
from pipeline.methods.answer_head import add_answer_head


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return LlamaForCausalLM(config)


def batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 97, (3, 11), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[:, :4] = -100
    labels[1, 8:] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


@pytest.mark.parametrize("chunk", [1024, 5])
def test_it_agrees_with_the_head_it_stands_in_for(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_head, "CHUNK", chunk)
    ours, theirs = model(), model()
    add_answer_head(ours)
    add_fused_lm_head(theirs, outputs=("log_probs", "entropy", "mean_logits"))
    found = ours(**batch(), fused_lm_head=True)
    wanted = theirs(**batch(), fused_lm_head=True)
    for name in ("log_probs", "entropy", "mean_logits"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), atol=1e-5, rtol=1e-5)
    found.log_probs.sum().backward()
    wanted.log_probs.sum().backward()
    for (name, one), (_, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_without_the_flag_the_model_is_as_before() -> None:
    plain, patched = model(), model()
    add_answer_head(patched)
    given = batch()
    torch.testing.assert_close(plain(**given).logits, patched(**given).logits)
    torch.testing.assert_close(plain(**given).loss, patched(**given).loss)


def test_a_model_with_capped_logits_is_refused() -> None:
    capped = model()
    capped.config.final_logit_softcapping = 30.0
    with pytest.raises(ValueError, match="final_logit_softcapping"):
        add_answer_head(capped)
