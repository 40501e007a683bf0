"""Messages of the data plane and their translation from and to the engine's records.

A message is a list whose first item names it; msgpack delimits it. Gateway to replica:

    ["hello", version, token]
    ["add", id, prompt, sampling, adapter, cache_salt, priority, force]
                                           force: accept an adapter of another base
    ["abort", id, index]                   index: of one choice, nil for all
    ["call", number, method, arguments]
    ["cancel", number]                     nobody waits for that call any more
    ["ping"]

Replica to gateway:

    ["welcome", version]
    ["accepted", id]                       the engine has taken the request
    ["refused", id, kind, message, param]  kind: class name of the exception
    ["events", [event, ...]]               all events of all this gateway's requests since the last message
    ["reply", number, value]  or  ["failed", number, kind, message, param]
    ["pong"]
"""

from dataclasses import asdict
from typing import Any

import msgpack

from engine.grammar import Grammar
from engine.records import Request, RequestStats, SamplingParams, TokenEvent, TokenLogprob

VERSION = 1
MAX_MESSAGE_BYTES = 64 << 20

Message = list[Any]


def pack(message: Message) -> bytes:
    """Bytes of one message."""
    data: bytes = msgpack.packb(message)
    return data


def unpacker() -> Any:
    """A decoder to feed with bytes as they come; iterating over it yields the complete messages."""
    return msgpack.Unpacker(max_buffer_size=MAX_MESSAGE_BYTES, strict_map_key=False)


def request_message(request: Request, force: bool) -> Message:
    """The "add" message of a request."""
    sampling = asdict(request.sampling)
    head: Message = ["add", request.id, request.prompt, sampling, request.adapter]
    return [*head, request.cache_salt, request.priority, force]


def read_request(message: Message) -> tuple[Request, bool]:
    """The request in an "add" message, and its `force`. Raises TypeError or ValueError when malformed."""
    _, request_id, prompt, sampling, adapter, cache_salt, priority, force = message
    params = SamplingParams(**{name: _read_parameter(name, value) for name, value in sampling.items()})
    return Request(request_id, tuple(prompt), params, adapter, cache_salt, priority), bool(force)


def _read_parameter(name: str, value: Any) -> Any:
    """msgpack knows one kind of sequence, and no records."""
    if name == "grammar" and value is not None:
        return Grammar(**value)
    if isinstance(value, list):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value


def write_event(event: TokenEvent) -> list[Any]:
    """An event as an item of an "events" message."""
    return [
        event.request_id,
        event.token_ids,
        None if event.logprobs is None else _write_logprobs(event.logprobs),
        event.finish,
        event.stop_token,
        event.stats and list(asdict(event.stats).values()),
        event.error,
        event.index,
        event.score,
        None if event.prompt_logprobs is None else _write_logprobs(event.prompt_logprobs),
    ]


def read_event(item: list[Any]) -> TokenEvent:
    """The event in an item. Raises TypeError or ValueError when malformed."""
    (request_id, token_ids, logprobs, finish, stop_token, stats, error, index, score, prompt_logprobs) = item
    return TokenEvent(
        request_id,
        tuple(token_ids),
        None if logprobs is None else _read_logprobs(logprobs),
        finish,
        stop_token,
        None if stats is None else RequestStats(*stats),
        error,
        index,
        score,
        None if prompt_logprobs is None else _read_logprobs(prompt_logprobs),
    )


def _write_logprobs(logprobs: tuple[TokenLogprob, ...]) -> list[Any]:
    return [[item.token_id, item.logprob, item.top, item.rank] for item in logprobs]


def _read_logprobs(entries: list[Any]) -> tuple[TokenLogprob, ...]:
    return tuple(map(_read_logprob, entries))


def _read_logprob(entry: list[Any]) -> TokenLogprob:
    token_id, logprob, top, rank = entry
    return TokenLogprob(token_id, logprob, tuple(map(tuple, top)), rank)


def describe(error: Exception) -> list[Any]:
    """Class name, message and parameter of an exception, as they cross the wire."""
    return [type(error).__name__, str(error), getattr(error, "param", None)]
