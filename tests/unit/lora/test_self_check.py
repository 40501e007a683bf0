"""An engine's adapter beside merged weights: a right one passes, a wrong scale is found."""

from pathlib import Path
from typing import Any

import pytest

from lora.errors import SelfCheckFailed
from lora.merged_logprobs import answer
from lora.probe import probe_request
from lora.self_check import CHECK_LENGTHS, COMPLETION_TOKENS, SelfCheck, judge, questions_of, self_check
from tests.unit.lora.engines import AskedEngine
from tests.unit.lora.peft_models import Trained, train

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dora with biases": ("qwen2", {"target_modules": SEVEN, "use_dora": True, "bias": "all"}),
    "dora on Conv1D": (
        "gpt2",
        {"target_modules": ["c_attn", "c_fc"], "use_dora": True, "fan_in_fan_out": True},
    ),
    "norms and biases": (
        "gpt2",
        {"target_modules": ["c_attn"], "modules_to_save": ["ln_1"], "bias": "all", "fan_in_fan_out": True},
    ),
    "a bias where there was none": ("llama", {"target_modules": ["o_proj", "lm_head"], "lora_bias": True}),
    "tables with dora": ("tied", {"target_modules": ["embed_tokens", "lm_head"], "use_dora": True}),
    "saved tables": ("tied", {"target_modules": SEVEN, "modules_to_save": ["embed_tokens", "lm_head"]}),
    "tokens of both": ("tied", {"target_modules": ["q_proj"], "trainable_token_indices": [61, 3]}),
    "tokens of the input": ("llama", {"target_modules": ["q_proj"], "trainable_token_indices": [61, 3]}),
}


async def check(trained: Trained, factor: float = 1.0) -> SelfCheck:
    """As self_check does it, without a process."""
    asked = AskedEngine(trained.model, trained.folder, factor)
    prompts = asked.prompts(CHECK_LENGTHS)
    base, adapted = [
        [await asked.ask(probe_request(prompt, adapter, COMPLETION_TOKENS)) for prompt in prompts]
        for adapter in (None, asked.digest)
    ]
    questions = {"base": questions_of(prompts, base), "adapter": questions_of(prompts, adapted)}
    return judge(base, adapted, answer(trained.model, trained.folder, questions), "float32")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_right_adapter_of_every_kind_passes(kind: str, tmp_path: Path) -> None:
    family, config = KINDS[kind]
    found = await check(train(tmp_path, family, **config))
    assert found.passed
    assert found.merged
    assert found.positions == len(CHECK_LENGTHS) * COMPLETION_TOKENS
    assert found.max_difference < 1e-3 < found.effect
    assert found.top1_agreement == 1.0


async def test_an_activated_adapter_is_computed_beside_the_weights(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj", "lm_head"], alora_invocation_tokens=[9, 4])
    found = await check(trained)
    assert (found.passed, found.merged) == (True, False)
    assert not (await check(trained, 0.5)).passed


@pytest.mark.parametrize("factor", [0.5, 1.25, 2.0])
async def test_a_scale_that_ignores_rslora_is_found(factor: float, tmp_path: Path) -> None:
    config = {"target_modules": ["q_proj", "v_proj", "down_proj"], "r": 4, "use_rslora": True}
    found = await check(train(tmp_path, "llama", **config), factor)
    assert not found.passed
    assert found.mean_difference > found.tolerance


async def test_the_check_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj", "v_proj"])
    asked = AskedEngine(trained.model, trained.folder)
    folders: dict[str, Any] = {"model_folder": trained.model, "adapter_folder": trained.folder}
    found = await self_check(asked.ask, asked.digest, asked.prompts((5, 9)), dtype="float32", **folders)
    assert found.passed
    assert found.positions == 2 * COMPLETION_TOKENS


async def test_a_process_that_ends_badly_is_told(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj"])
    asked = AskedEngine(trained.model, trained.folder)
    with pytest.raises(SelfCheckFailed, match=r"(?s)ended with status 1: .*config\.json is missing"):
        await self_check(
            asked.ask,
            asked.digest,
            asked.prompts((5,)),
            model_folder=tmp_path / "absent",
            adapter_folder=trained.folder,
            dtype="float32",
        )


async def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj"])
    asked = AskedEngine(trained.model, trained.folder)
    with pytest.raises(SelfCheckFailed, match=r"took more than 0\.01 s"):
        await self_check(
            asked.ask,
            asked.digest,
            asked.prompts((5,)),
            model_folder=trained.model,
            adapter_folder=trained.folder,
            dtype="float32",
            timeout_s=0.01,
        )
