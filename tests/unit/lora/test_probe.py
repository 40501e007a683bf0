"""An adapter that changes nothing is told from one that does, whatever it changes."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from engine.records import Request, TokenLogprob
from lora.errors import IdenticalToBase
from lora.probe import CHANGE_LENGTHS, PROBE, check_changes, probe_prompts, probe_request
from tests.unit.lora.engines import AskedEngine
from tests.unit.lora.peft_models import train

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {"target_modules": ["q_proj"]}),
    "activated": ("llama", {"target_modules": ["q_proj"], "alora_invocation_tokens": [9, 4]}),
    "tokens": ("llama", {"target_modules": "dummy-target-modules", "trainable_token_indices": [13]}),
    "tokens of the head": (
        "tied",
        {"target_modules": "dummy-target-modules", "trainable_token_indices": {"lm_head": [13]}},
    ),
    "norms": ("llama", {"target_modules": "dummy-target-modules", "modules_to_save": ["model.norm"]}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_adapter_that_changes_something_passes(kind: str, tmp_path: Path) -> None:
    family, config = KINDS[kind]
    trained = train(tmp_path, family, **config)
    asked = AskedEngine(trained.model, trained.folder)
    assert await check_changes(asked.ask, asked.digest, asked.prompts(CHANGE_LENGTHS), force=False) == ()
    assert asked.asked == 2


async def test_one_row_of_a_saved_table_shows(tmp_path: Path) -> None:
    config = {"target_modules": "dummy-target-modules", "modules_to_save": ["embed_tokens"]}
    trained = train(tmp_path, "llama", **config)
    table = load_file(trained.model / "model.safetensors")["model.embed_tokens.weight"]
    table[33] += 0.5
    save_file(
        {"base_model.model.model.embed_tokens.weight": table}, trained.folder / "adapter_model.safetensors"
    )
    asked = AskedEngine(trained.model, trained.folder)
    prompts = asked.prompts(CHANGE_LENGTHS)
    assert [33 in prompt for prompt in prompts].count(True) == 1
    assert await check_changes(asked.ask, asked.digest, prompts, force=False) == ()


async def test_an_untrained_adapter_is_refused_unless_forced(tmp_path: Path) -> None:
    trained = train(tmp_path, "llama", target_modules=["q_proj"], alora_invocation_tokens=[9, 4])
    file = trained.folder / "adapter_model.safetensors"
    save_file({name: t * 0.0 if "lora_B" in name else t for name, t in load_file(file).items()}, file)
    asked = AskedEngine(trained.model, trained.folder)
    prompts = asked.prompts(CHANGE_LENGTHS)
    with pytest.raises(IdenticalToBase, match=rf"{asked.digest} changes nothing: on 3 probe prompts"):
        await check_changes(asked.ask, asked.digest, prompts, force=False)
    (warning,) = await check_changes(asked.ask, asked.digest, prompts, force=True)
    assert warning.startswith("loaded by force: ")
    assert asked.asked == 12


async def test_a_difference_on_the_last_prompt_is_enough() -> None:
    async def ask(request: Request) -> list[TokenLogprob]:
        differs = request.adapter is not None and len(request.prompt) == 7
        logprob = -0.25 if differs else -0.5
        return [TokenLogprob(1, logprob, ((1, logprob), (2, -3.0)))]

    assert await check_changes(ask, "d", probe_prompts(64, (6, 9, 7)), force=False) == ()


@pytest.mark.parametrize("vocab", [3, 64, 49152, 151936])
def test_prompts_are_fixed_and_hold_what_they_must(vocab: int) -> None:
    prompts = probe_prompts(vocab, (6, 9), invocation=(2, 1), touched=(0, 1, 2))
    assert prompts == probe_prompts(vocab, (6, 9), invocation=(2, 1), touched=(0, 1, 2))
    assert [len(prompt) for prompt in prompts] == [6 + 2 + 2, 9 + 2 + 1]
    assert prompts[0] != prompts[1][:10]
    assert all(0 <= token < vocab for prompt in prompts for token in prompt)
    assert all((2, 1) in pairwise(prompt) for prompt in prompts)
    assert prompts[0][-2:] == (0, 2)
    assert prompts[1][-1:] == (1,)


def test_probes_have_names_and_salts_of_their_own() -> None:
    one, other = probe_request((1, 2), None, 1), probe_request((1, 2), None, 1)
    assert one.id != other.id
    assert one.cache_salt != other.cache_salt
    assert one.id.startswith(PROBE)
