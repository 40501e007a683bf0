"""The whole engine on SmolLM2-135M in float32: token for token what transformers and PEFT make of it.

Float32, because in bfloat16 greedy texts part at near ties after a few tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

from engine import AdapterWeights, Engine, EngineConfig, LoraPair, Request, SamplingParams, Tokenizer

# PEFT 0.21 asks transformers 5 for an attribute under its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")

QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain photosynthesis to a child in two sentences.",
    "List three fruits that are red.",
    "How do I reverse a list in Python? Show the code.",
    "Translate 'good morning' into Spanish, German and Italian.",
    "I was charged twice (orders 4417 and 4418, $23.90 each). What should I do?",
    "Give me a name for a small bakery 🥐.",
    "Why is the sky blue?",
    "What is 17 + 25?",
    "Summarise: The meeting was moved from Tuesday 14:30 to Friday 09:00 because of the strike.",
    "Rewrite this politely: send me the file now!",
    "Who wrote 'Pride and Prejudice'?",
    "Tell me a short story about a lighthouse keeper and a storm.",
    "What's the difference between HTTP and HTTPS?",
    "Wie spät ist es in Tokio, wenn es in Berlin 8 Uhr ist?",
    "Name the planets of the solar system in order.",
    "Write an SQL query that counts users by country.",
    "How long should I boil an egg?",
    "Continue: Once upon a time, in a village by the river,",
]
TOKENS = 64
ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "rank4": {"r": 4, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]},
    "rank8": {"r": 8, "lora_alpha": 8, "target_modules": ALL_LINEAR},
    "rank16": {"r": 16, "lora_alpha": 8, "target_modules": ["o_proj", "up_proj", "down_proj"]},
}


@pytest.fixture(scope="module")
def prompts(smollm: Path) -> list[list[int]]:
    tokenizer = Tokenizer(smollm)
    return [
        tokenizer.encode(
            tokenizer.render_chat([{"role": "user", "content": question}]), add_special_tokens=False
        )
        for question in QUESTIONS
    ]


@pytest.fixture(scope="module")
def engine(smollm: Path, adapted: Any) -> Engine:
    """Without a prefix cache: what ran before must not help what runs after."""
    config = EngineConfig(
        model=smollm, dtype="float32", num_blocks=512, prefix_cache=False, check_integrity=True
    )
    made = Engine(config)
    for name in ADAPTERS:
        made.add_adapter(made.prepare_adapter(weights(adapted, name)))
    return made


@pytest.fixture(scope="module")
def adapted(smollm: Path) -> Any:
    """The base as transformers loads it, with three random adapters of PEFT beside it."""
    base = transformers.AutoModelForCausalLM.from_pretrained(smollm, dtype=torch.float32).eval()
    configs = {name: peft.LoraConfig(init_lora_weights=False, **shape) for name, shape in ADAPTERS.items()}
    torch.manual_seed(7)
    model = peft.get_peft_model(base, configs["rank4"], adapter_name="rank4")
    for name in ("rank8", "rank16"):
        model.add_adapter(name, configs[name])
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if "lora_" in key:
                tensor.copy_(torch.randn_like(tensor) * 0.08)
    return model.eval()


def weights(adapted: Any, name: str) -> AdapterWeights:
    modules = {}
    for key, module in adapted.base_model.model.named_modules():
        if name in getattr(module, "lora_A", {}):
            a, b = module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach()
            modules[key] = LoraPair(a, b, module.scaling[name])
    return AdapterWeights(name, modules)


def greedy(max_tokens: int = TOKENS) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


def padded(sequences: list[list[int]], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask of one batch."""
    width = max(map(len, sequences))
    ids, mask = torch.zeros(2, len(sequences), width, dtype=torch.int64)
    for row, own in enumerate(sequences):
        place = slice(width - len(own), width) if left else slice(len(own))
        ids[row, place], mask[row, place] = torch.tensor(own), 1
    return ids, mask


@pytest.fixture(scope="module")
def base_completions(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    return engine.generate(prompts, greedy())


def test_greedy_tokens_equal_transformers_generate(
    adapted: Any, prompts: list[list[int]], base_completions: list[list[int]]
) -> None:
    ids, mask = padded(prompts, left=True)
    with adapted.disable_adapter():
        want = adapted.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=2,
        )
    assert base_completions == want[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize(("name", "count"), [("rank8", 20), ("rank4", 4), ("rank16", 4)])
def test_greedy_tokens_equal_peft_s_own_forward(
    engine: Engine,
    adapted: Any,
    prompts: list[list[int]],
    base_completions: list[list[int]],
    name: str,
    count: int,
) -> None:
    """PEFT reads each prompt with its completion in one pass: the likeliest next token at every place."""
    completions = engine.generate(prompts[:count], greedy(), adapter=name)
    ids, mask = padded([p + c for p, c in zip(prompts, completions, strict=False)], left=False)
    adapted.set_adapter(name)
    with torch.no_grad():
        likeliest = adapted(input_ids=ids, attention_mask=mask).logits.argmax(dim=-1).tolist()
    starts = [len(prompt) - 1 for prompt in prompts[:count]]
    want = [row[start : start + TOKENS] for row, start in zip(likeliest, starts, strict=True)]
    assert completions == want
    assert all(own != base for own, base in zip(completions, base_completions, strict=False))


def test_concurrent_requests_equal_their_solo_runs(engine: Engine, prompts: list[list[int]]) -> None:
    """32 requests of mixed prompt and completion lengths, over the base and adapters of ranks 4, 8, 16."""
    choices: list[str | None] = [None, *ADAPTERS]
    requests = [
        Request(
            id=f"r{i}",
            prompt=tuple((prompts[i % 20] * 3)[: 11 + 3 * i]),
            sampling=greedy(4 + (7 * i) % 13),
            adapter=choices[(i + i // 4) % 4],
        )
        for i in range(32)
    ]
    together: dict[str, list[int]] = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    most = 0
    while engine.has_work:
        for event in engine.step():
            assert event.error is None
            together[event.request_id].extend(event.token_ids)
        most = max(most, engine.stats().running)
    assert most > 24
    for request in requests:
        (alone,) = engine.generate([request.prompt], request.sampling, adapter=request.adapter)
        assert together[request.id] == alone, request.id
