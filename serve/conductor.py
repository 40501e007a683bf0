"""From a checked body to generations ready to start: name resolved, prompt tokenised, replica chosen.

Everything that is fixed for a request is fixed here, once: the adapter version, the replica, the sampling
parameters. Knows no HTTP.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from serve.answers.assistant import Assistant
from serve.answers.chat import ChatFormat
from serve.answers.shared import Head, fingerprint
from serve.answers.text import TextFormat
from serve.bad_words import token_sequences
from serve.caller import Caller
from serve.errors import InvalidField
from serve.fleet import Fleet
from serve.generation import Generation
from serve.ids import uuid7
from serve.metrics import BASE, Meter, Metrics
from serve.order import Api, Order, Prompt
from serve.prompts import Prompts, beside, of_text, refuse_unknown
from serve.protocol.chat import ChatBody
from serve.protocol.completions import CompletionBody
from serve.record.keeper import Keeper
from serve.routing import Router
from serve.understanding import understand

Format = TypeVar("Format")
Given = TypeVar("Given", covariant=True)

Shape = Callable[[Order, Sequence[Prompt]], Format]
"""Makes the form of an answer to prompts as they were cut."""


@dataclass(frozen=True, slots=True)
class Performance(Generic[Given]):
    """A request ready to start, and the form of its answer."""

    generations: list[Generation]
    format: Given
    choices: int
    headers: dict[str, str]

    def close(self) -> None:
        """Free the replica of what was started and not finished."""
        for generation in self.generations:
            generation.close()


class Conductor:
    """Makes performances out of bodies."""

    def __init__(
        self, router: Router, fleet: Fleet, keeper: Keeper, metrics: Metrics, prompts: Prompts
    ) -> None:
        self._router = router
        self._fleet = fleet
        self._keeper = keeper
        self._metrics = metrics
        self._prompts = prompts

    async def chat(self, body: ChatBody, caller: Caller) -> Performance[ChatFormat]:
        """Raises what converse() raises."""

        def shape(order: Order, prompts: Sequence[Prompt]) -> ChatFormat:
            (prompt,) = prompts
            assistant = Assistant(prompt.parser, named=body.calls.named, reasoning=body.include_reasoning)
            return ChatFormat(_head("chatcmpl", order), order.reads, assistant, order.shown, prompt.ids)

        return await self.converse("chat", body, caller, shape)

    async def converse(
        self, api: Api, body: ChatBody, caller: Caller, shape: Shape[Format]
    ) -> Performance[Format]:
        """A conversation, of whichever API; `shape` makes the form of its answer.

        Raises UnknownModel, BadRequest, NoReplica and the tokenizer's errors.
        """
        caller = caller.with_parent(body.metadata.get("parent_request_id"), "metadata.parent_request_id")
        order = self._order(api, body, caller)
        prompt = await understand(self._prompts, order.route, body.talk, body.calls, body.grammar)
        return self._perform(order, [prompt], shape)

    async def complete(self, body: CompletionBody, caller: Caller) -> Performance[TextFormat]:
        """Raises UnknownModel, BadRequest, NoReplica and the tokenizer's errors."""
        order = self._order("completions", body, caller)
        prompts = [await _prompt(order, body, prompt) for prompt in body.prompt]

        def shape(order: Order, prompts: Sequence[Prompt]) -> TextFormat:
            return TextFormat(_head("cmpl", order), order.reads, order.shown, prompts, body.n)

        return self._perform(order, prompts, shape)

    def _order(self, api: Api, body: ChatBody | CompletionBody, caller: Caller) -> Order:
        key = body.user_key or caller.user or caller.id
        route = self._router.route(body.model, key)
        return Order(api, body, caller, route, token_sequences(route.model.tokenizer, body.bad_words))

    def _perform(self, order: Order, sent: Sequence[Prompt], shape: Shape[Format]) -> Performance[Format]:
        route = order.route
        member = self._fleet.pick(route.model.name, route.adapter_digest)
        longest = member.report.max_model_len
        prompts = [order.cut(prompt, longest) for prompt in sent]
        wanted = [order.wanted(prompt, longest) for prompt in prompts]
        self._metrics.requested(
            route.endpoint, route.variant, route.adapter_id, order.body.n, wanted[0].max_tokens
        )
        meter = Meter(self._metrics, route.model.name, route.adapter_id or BASE)
        ids = [order.caller.id, *(uuid7() for _ in range(len(prompts) * order.body.n - 1))]
        generations: list[Generation] = []
        for place, (prompt, want) in enumerate(zip(prompts, wanted, strict=True)):
            first = place * order.body.n
            own = ids[first : first + order.body.n]
            entries = [self._keeper.entry(order.record(record_id, prompt)) for record_id in own]
            job = order.job(first, own[0], prompt, want)
            generations.append(Generation(job, member.link, entries, meter))
        return Performance(generations, shape(order, prompts), len(ids), order.headers(ids))


def _head(kind: str, order: Order) -> Head:
    print_ = fingerprint(order.route.base_digest, order.route.adapter_digest)
    return Head(f"{kind}-{order.caller.id}", int(time.time()), order.route.requested, print_)


async def _prompt(order: Order, body: CompletionBody, prompt: str | list[int]) -> Prompt:
    tokenizer, vocabulary = order.route.model.tokenizer, order.route.model.spec.vocab_size
    if isinstance(prompt, str):
        ids = await of_text(tokenizer, prompt, add_special_tokens=body.add_special_tokens)
        if not ids:
            raise InvalidField("prompt is empty; at least one token is needed", "prompt")
        return Prompt(ids, ({"role": "prompt", "content": prompt},), prompt)
    refuse_unknown(prompt, vocabulary, "prompt")

    def read() -> Prompt:
        shown = {"role": "prompt", "content": tokenizer.decode(prompt)}
        return Prompt(tuple(prompt), (shown,), order.reads.prompt_text(prompt) if body.echo else "")

    return await beside(len(prompt), read)
