"""Tables that PEFT saves unasked: the logits are those of PEFT's own forward."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lora.errors import UnsupportedFeature
from tests.unit.lora.peft_models import PROMPTS, fit, our_logits, train


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
        ("llama", {"target_modules": ["q_proj"], "trainable_token_indices": [61, 3]}),
        ("llama", {"target_modules": ["q_proj"]}),
        ("tied", {"target_modules": ["q_proj"]}),
    ],
)
def test_tables_that_peft_adds_change_nothing(family: str, config: dict[str, Any], tmp_path: Path) -> None:
    trained = train(tmp_path, family, save_embedding=True, **config)
    for prompt, ours in zip(PROMPTS, our_logits(trained.model, trained.folder, PROMPTS), strict=True):
        torch.testing.assert_close(ours, trained.logits(prompt), rtol=2e-4, atol=2e-4)


def test_a_head_that_does_not_follow_its_table_is_refused(tmp_path: Path) -> None:
    trained = train(tmp_path, "tied", target_modules=["q_proj", "lm_head"])
    file = trained.folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ensure_weight_tying": True}))
    with pytest.raises(UnsupportedFeature, match="has to follow the token table"):
        fit(trained.model, trained.folder)
