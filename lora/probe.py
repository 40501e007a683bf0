"""Fixed prompts that an adapter's answers are looked at by, and the check that it changes any of them.

A file can fit its base in every respect and still do nothing: an adapter that was saved before it was
trained, or whose tensors are zero. Only the answers tell. The prompts are token ids, so no tokenizer is
needed; they contain what switches the adapter on and the tokens whose rows it changes.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence

from engine.records import Request, SamplingParams, TokenLogprob
from engine.sampling import MAX_LOGPROBS
from lora.errors import IdenticalToBase

Ask = Callable[[Request], Awaitable[Sequence[TokenLogprob]]]
"""Has an engine answer a request and gives the logprobs of its tokens."""

CHANGE_LENGTHS = (6, 9, 7)
_STEP = 2_654_435_761  # Knuth's multiplier: neighbours land far apart, all over the vocabulary
PROBE = "probe-"
"""How the ids of all probes begin."""
ROUNDING = 1e-5
"""Differences of logprobs that the order of sums may make: an activated adapter parts its prompt."""
_numbers = itertools.count()


def probe_prompts(
    vocab: int, lengths: Sequence[int], *, invocation: Sequence[int] = (), touched: Sequence[int] = ()
) -> tuple[tuple[int, ...], ...]:
    """One prompt for each length, the same in every process.

    invocation: stands in the middle of each. touched: tokens whose own rows the adapter changes; a share of
    them ends each prompt.
    """
    prompts = []
    for number, length in enumerate(lengths):
        filler = [(number + 1) * (place + 1) * _STEP % vocab for place in range(length)]
        middle = length // 2
        prompt = (*filler[:middle], *invocation, *filler[middle:], *touched[number :: len(lengths)])
        prompts.append(prompt)
    return tuple(prompts)


def probe_request(prompt: Sequence[int], adapter: str | None, max_tokens: int) -> Request:
    """Greedy, with the most logprobs that are to be had, and sharing no cached prefix with anybody's."""
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, logprobs=MAX_LOGPROBS, ignore_eos=True)
    name = f"{PROBE}{next(_numbers)}"
    return Request(name, tuple(prompt), sampling, adapter, cache_salt=name)


async def check_changes(
    ask: Ask, digest: str, prompts: Sequence[Sequence[int]], *, force: bool
) -> tuple[str, ...]:
    """Compare the adapter's answers with the base's, prompt by prompt, until one differs.

    One short request at a time, so that running streams hardly notice. Raises IdenticalToBase, which `force`
    turns into a warning, and what `ask` raises.
    """
    for prompt in prompts:
        base = await ask(probe_request(prompt, None, 1))
        if _differ(base, await ask(probe_request(prompt, digest, 1))):
            return ()
    return unchanged(digest, len(prompts), force=force)


def unchanged(digest: str, prompts: int, *, force: bool) -> tuple[str, ...]:
    """What it means that none of so many answers differs: IdenticalToBase, or by force a warning."""
    error = IdenticalToBase(digest, prompts)
    if not force:
        raise error
    return (f"loaded by force: {error}",)


def _differ(one: Sequence[TokenLogprob], other: Sequence[TokenLogprob]) -> bool:
    """Whether the likeliest tokens have other logprobs; which of two equal ones comes first is no matter."""
    both = [[logprob for place in places for _, logprob in place.top] for places in (one, other)]
    return any(abs(first - second) > ROUNDING for first, second in zip(*both, strict=True))
