"""Turns of the Responses API: what came before is read, the turn made a chat, its answer kept. No HTTP."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from db.rows import ResponseRow
from serve.answers.responses import Frame, ResponseFormat, item_id
from serve.answers.shared import fingerprint
from serve.caller import Caller
from serve.conductor import Conductor, Performance
from serve.conversation import in_own_names, refuse_cut_calls, to_chat
from serve.errors import BadRequest, RemoteError
from serve.generation import start_all
from serve.ids import bare_id
from serve.kept_responses import KeptResponses
from serve.order import Order, Prompt
from serve.protocol.response_items import FunctionCallItem, FunctionCallOutputItem, Item, ReasoningItem
from serve.protocol.responses import ResponseBody

_PREFIXES: Mapping[type[Item], str] = {
    FunctionCallItem: "fc",
    FunctionCallOutputItem: "fco",
    ReasoningItem: "rs",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn ready to start. input_items: as they are kept."""

    performance: Performance[ResponseFormat]
    body: ResponseBody
    caller: Caller
    input_items: list[dict[str, Any]]


class Responder:
    """Makes turns out of bodies. keep_days: how long answers are kept."""

    def __init__(self, conductor: Conductor, kept: KeptResponses, keep_days: int) -> None:
        self._conductor = conductor
        self._kept = kept
        self._keep_for = timedelta(days=keep_days)

    async def turn(self, body: ResponseBody, caller: Caller) -> Turn:
        """Raises what a chat raises, PreviousResponseNotFound, and DatabaseAway where history is needed."""
        history: list[Item] = []
        if body.previous_response_id is not None:
            history = await self._kept.history(caller.tenant, body.previous_response_id)
        handed_in = await self._kept.resolved(caller.tenant, body.items)
        refuse_cut_calls(history, kept=True)
        refuse_cut_calls(handed_in, kept=False)
        items = _with_ids(handed_in, caller.id)

        def shape(order: Order, prompts: Sequence[Prompt]) -> ResponseFormat:
            frame = Frame(caller.id, int(time.time()), len(items), _echoed(body, order))
            tokenizer = order.route.model.tokenizer
            return ResponseFormat(frame, prompts[0].parser(), tokenizer, body.wanted_logprobs)

        chat = to_chat(body, [*history, *handed_in])
        try:
            performance = await self._conductor.converse("responses", chat, caller, shape)
        except BadRequest as error:
            raise in_own_names(error) from error
        return Turn(performance, body, caller, items)

    async def start(self, turn: Turn) -> None:
        """Return once the replica has taken the turn. Raises RemoteError (its refusal) or ReplicaLost."""
        try:
            await start_all(turn.performance.generations)
        except RemoteError as error:
            raise in_own_names(error) from error

    async def kept(self, turn: Turn, answer: dict[str, Any]) -> dict[str, Any]:
        """The finished answer, kept if that was asked for; its `store` tells whether it is."""
        stored = turn.body.store and await self._kept.keep(self._row(turn, answer))
        return answer | {"store": stored}

    def _row(self, turn: Turn, answer: Mapping[str, Any]) -> ResponseRow:
        now, previous = datetime.now(UTC), turn.body.previous_response_id
        return ResponseRow(
            id=turn.caller.id,
            tenant=turn.caller.tenant,
            previous_id=None if previous is None else bare_id(previous),
            model=answer["model"],
            status=answer["status"],
            input_items=turn.input_items,
            output_items=answer["output"],
            answer={name: value for name, value in answer.items() if name != "output"},
            created_at=now,
            expires_at=now + self._keep_for,
        )


def _with_ids(items: list[Item], request_id: str) -> list[dict[str, Any]]:
    """Items as they are kept and shown: each with an id of its own."""
    return [
        item.model_dump(exclude_none=True)
        | {"id": item.id or item_id(_PREFIXES.get(type(item), "msg"), request_id, place)}
        | {"status": item.status or "completed"}
        for place, item in enumerate(items)
    ]


def _echoed(body: ResponseBody, order: Order) -> dict[str, Any]:
    """What an answer repeats of its request."""
    route = order.route
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata,
        "model": route.requested,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.store,
        "system_fingerprint": fingerprint(route.base_digest, route.adapter_digest),
        "temperature": body.temperature,
        "text": body.text.model_dump(by_alias=True, exclude_none=True),
        "tool_choice": _choice(body),
        "tools": [tool.model_dump() for tool in body.tools],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }


def _choice(body: ResponseBody) -> Any:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    return choice if isinstance(choice, str) else choice.model_dump()
