"""Every error the engine raises on purpose.

    EngineError
    ├── InvalidConfig                 a setting, or settings that contradict each other
    ├── RequestRefused                raised by add(); nothing was taken in
    │   ├── InvalidParameter          wrong type, NaN, out of range
    │   ├── PromptTooLong             prompt leaves no room for one token
    │   ├── TooLargeForPool           could never fit, even alone
    │   ├── QueueFull                 try again later
    │   ├── BadGrammar                no grammar, or none that can be enforced
    │   ├── GrammarTooComplex         too long, too deep or too slow to compile
    │   └── DuplicateRequest          the id is in use
    ├── AdapterError
    │   ├── UnknownAdapter            no adapter with this digest is added
    │   ├── NoAdapterSlots            the engine was made without any
    │   ├── AdapterInUse              removal while requests refer to it
    │   ├── AdapterTooLarge           rank over the slots' rank
    │   └── AdapterMismatch           module or shape the model does not have
    ├── ModelError
    │   ├── UnsupportedModel          architecture or feature the engine does not run
    │   ├── BadWeights                missing, surplus or misshapen tensors
    │   └── NativeUnavailable         the native backend cannot be built or run here
    ├── TokenizerError
    │   ├── NoChatTemplate            the model folder carries none
    │   └── BadTemplateInput          the template refused these messages
    ├── EngineBusy                    generate() while other requests are live
    ├── GuideFailed                   a grammar can be followed no further: the end of its choice
    ├── GenerationFailed              generate(): a request ended with finish="error"
    ├── EmbeddingFailed               a text whose vector is not finite
    ├── EngineClosed                  the engine no longer takes work
    └── IntegrityError                an invariant of blocks, scheduler or slots is broken (a bug)

A message says what was wrong, the value met and the value allowed. All of them survive pickling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_SHOWN = 8
"""Digests that a message lists."""


def _rebuild(cls: type[EngineError], message: str, state: dict[str, Any]) -> EngineError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class EngineError(Exception):
    """Root of the tree."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take the figures, not the message: the default would call them wrongly.
        return _rebuild, (type(self), str(self), dict(self.__dict__))


class InvalidConfig(EngineError):
    """A setting is out of range or contradicts another one."""


class RequestRefused(EngineError):
    """A request was not taken in; nothing was allocated for it."""


class InvalidParameter(RequestRefused):
    """One parameter of a request has a wrong type or value."""

    def __init__(self, param: str, value: object, allowed: str) -> None:
        super().__init__(f"{param} is {value!r}; allowed: {allowed}")
        self.param = param
        self.value = value
        self.allowed = allowed


class PromptTooLong(RequestRefused):
    """The prompt leaves no room for a single generated token."""

    def __init__(self, got: int, allowed: int) -> None:
        super().__init__(f"prompt has {got} tokens; at most {allowed} are allowed")
        self.got = got
        self.allowed = allowed


class TooLargeForPool(RequestRefused):
    """Prompt and max_tokens together need more blocks than the pool has in all."""

    def __init__(self, needed: int, allowed: int) -> None:
        super().__init__(f"prompt and max_tokens need {needed} KV blocks; the pool has {allowed}")
        self.needed = needed
        self.allowed = allowed


class QueueFull(RequestRefused):
    """As many requests wait as may wait."""

    def __init__(self, waiting: int, allowed: int) -> None:
        super().__init__(f"{waiting} requests are waiting; at most {allowed} may")
        self.waiting = waiting
        self.allowed = allowed


class DuplicateRequest(RequestRefused):
    """A live request has this id already."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request id {request_id!r} is in use; ids of live requests are unique")
        self.request_id = request_id


class BadGrammar(RequestRefused):
    """A grammar that cannot be read, that nothing satisfies, or that asks for what cannot be enforced."""

    def __init__(self, param: str, reason: str) -> None:
        super().__init__(f"{param} cannot be used: {reason}")
        self.param = param
        self.reason = reason


class GrammarTooComplex(RequestRefused):
    """A grammar over a limit."""

    def __init__(self, param: str, got: str, allowed: str) -> None:
        super().__init__(f"{param} has {got}; at most {allowed} allowed")
        self.param = param
        self.got = got
        self.allowed = allowed


class AdapterError(EngineError):
    """An adapter cannot be added, found or removed."""


class UnknownAdapter(AdapterError):
    """No adapter with this digest is added."""

    def __init__(self, digest: str, added: Iterable[str]) -> None:
        names = sorted(added)
        shown = ", ".join(names[:_SHOWN]) or "none"
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        super().__init__(f"adapter {digest!r} is not added; added: {shown}{more}")
        self.digest = digest


class NoAdapterSlots(AdapterError):
    """The engine was made without slots, so no step can have an adapter."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"adapter_slots is 0; at least 1 is needed for adapter {digest!r}")
        self.digest = digest


class AdapterInUse(AdapterError):
    """Live requests refer to the adapter."""

    def __init__(self, digest: str, requests: int) -> None:
        super().__init__(f"adapter {digest!r} serves {requests} live requests; it is removed at 0")
        self.digest = digest
        self.requests = requests


class AdapterTooLarge(AdapterError):
    """The adapter's rank is over the rank the slots are made for."""

    def __init__(self, digest: str, rank: int, allowed: int) -> None:
        super().__init__(f"adapter {digest!r} has rank {rank}; at most {allowed} is allowed")
        self.digest = digest
        self.rank = rank
        self.allowed = allowed


class AdapterMismatch(AdapterError):
    """The adapter names a module, or has a shape, that the model does not have."""


class ModelError(EngineError):
    """The model folder cannot be run."""


class UnsupportedModel(ModelError):
    """The engine does not run this architecture or a feature of it."""


class BadWeights(ModelError):
    """Tensors are missing, surplus, misshapen or not finite."""


class NativeUnavailable(ModelError):
    """The native backend lacks a compiler, a processor feature or memory; the reference backend remains."""


class TokenizerError(EngineError):
    """The tokenizer cannot do what was asked."""


class NoChatTemplate(TokenizerError):
    """The model folder carries no chat template."""


class BadTemplateInput(TokenizerError):
    """The chat template refused these messages."""


class EngineBusy(EngineError):
    """generate() runs alone; other requests are live."""

    def __init__(self, requests: int) -> None:
        super().__init__(f"{requests} requests are live; generate() starts at 0")
        self.requests = requests


class GuideFailed(EngineError):
    """What a sequence may go on with is not known any more; it must end, or its grammar would not hold."""


class GenerationFailed(EngineError):
    """A request driven by generate() ended with an error."""

    def __init__(self, request_id: str, reason: str) -> None:
        super().__init__(f"request {request_id!r} failed: {reason}")
        self.request_id = request_id
        self.reason = reason


class EmbeddingFailed(EngineError):
    """A vector holds NaN or infinity."""

    def __init__(self) -> None:
        super().__init__("the vector of a text holds values that are not finite")


class EngineClosed(EngineError):
    """The engine is closed or closing and takes no more work."""


class IntegrityError(EngineError):
    """An invariant of the block pool, the scheduler or the adapter slots does not hold."""
