"""Everything this package raises.

LoraError
├── AdapterPathRefused        the path may not be read (says nothing about what exists there)
├── AdapterNotFound           inside an allowed root, but there is no adapter
├── InvalidAdapter            the folder alone is enough to refuse it
│   ├── InvalidConfig         adapter_config.json
│   ├── UnsupportedFeature    a PEFT feature that is not served
│   ├── InvalidWeights        adapter_model.safetensors: damaged, or not LoRA tensors
│   ├── NotFinite             a tensor holds NaN or infinity
│   └── LimitExceeded         a size, count or rank is over its limit
├── AdapterMismatch           the adapter does not fit this base model
│   ├── WrongBase             it was trained on another base
│   ├── UnmatchedTensors      tensors whose module the base or the config does not name
│   ├── MissingTensors        the config targets modules that have no tensors
│   └── WrongShape            a tensor of another size than its module needs
├── StoreError
│   ├── InvalidDigest         not "sha256:" and 64 hexadecimal digits
│   ├── NotInStore            no complete copy under this digest
│   └── DamagedCopy           the bytes do not have the digest they are filed under
├── StopsUnusable             the file of the local kill switch cannot be read or written
└── ResidencyClosed           the replica is shutting down

A message says what was wrong, the value met and the value allowed. All of them survive pickling.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHOWN = 8


def shorten(names: Sequence[str]) -> str:
    """The first names of a list, with a count of the rest."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _rebuild(kind: "type[LoraError]", message: str, state: dict[str, Any]) -> "LoraError":
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class LoraError(Exception):
    """Base of every error of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__)


class AdapterPathRefused(LoraError):
    """The path is not inside an allowed root. The message is the same whether or not anything is there."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"adapter path {_brief(path)} is not allowed: give a folder inside one of the adapter roots"
        )


class AdapterNotFound(LoraError):
    """An allowed path without an adapter."""

    def __init__(self, path: str, missing: str) -> None:
        self.path, self.missing = path, missing
        super().__init__(f"no adapter at {_brief(path)}: {missing} is absent")


class InvalidAdapter(LoraError):
    """The adapter folder itself is wrong, whatever the base model."""


class InvalidConfig(InvalidAdapter):
    """A field of adapter_config.json, or the file as a whole (field "adapter_config.json")."""

    def __init__(self, field: str, got: object, allowed: str) -> None:
        self.field, self.got, self.allowed = field, got, allowed
        super().__init__(f"{field}: got {_brief(got)}, allowed: {allowed}")


class UnsupportedFeature(InvalidAdapter):
    """A PEFT feature that would change the answers if it were dropped, so it is refused."""

    def __init__(self, feature: str, got: object, advice: str = "") -> None:
        self.feature, self.got = feature, got
        super().__init__(f"{feature} is not supported (got {_brief(got)}){'; ' + advice if advice else ''}")


class InvalidWeights(InvalidAdapter):
    """The weights file is damaged, or holds something else than LoRA matrices."""

    def __init__(self, reason: str, keys: Sequence[str] = ()) -> None:
        self.keys = tuple(keys)
        super().__init__(f"adapter_model.safetensors: {reason}{': ' + shorten(keys) if keys else ''}")


class NotFinite(InvalidAdapter):
    """A tensor holds NaN or infinity."""

    def __init__(self, tensor: str, count: int) -> None:
        self.tensor, self.count = tensor, count
        super().__init__(f"tensor {tensor} holds {count} values that are NaN or infinite, allowed: 0")


class LimitExceeded(InvalidAdapter):
    """A size, count or rank over its limit."""

    def __init__(self, what: str, got: int, allowed: int) -> None:
        self.what, self.got, self.allowed = what, got, allowed
        super().__init__(f"{what} is {got}, allowed: at most {allowed}")


class AdapterMismatch(LoraError):
    """The adapter is sound, but not for this base model."""


class WrongBase(AdapterMismatch):
    """The adapter says it was trained on another base model."""

    def __init__(self, got: str | None, allowed: Sequence[str]) -> None:
        self.got, self.allowed = got, tuple(allowed)
        said = "names no base model" if got is None else f"was trained on {got!r}"
        super().__init__(f"the adapter {said}, allowed: {shorten(self.allowed)} (or force)")


class UnmatchedTensors(AdapterMismatch):
    """Tensors that belong to no module that could take them."""

    def __init__(self, reason: str, keys: Sequence[str], matched: int) -> None:
        self.keys, self.matched = tuple(keys), matched
        super().__init__(f"{reason} ({matched} tensors match, {len(keys)} do not): {shorten(keys)}")


class MissingTensors(AdapterMismatch):
    """Modules that the config targets and the weights file lacks."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules = tuple(modules)
        super().__init__(f"target_modules names {len(modules)} modules without tensors: {shorten(modules)}")


class WrongShape(AdapterMismatch):
    """A tensor of another size than its module and rank need."""

    def __init__(self, tensor: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> None:
        self.tensor, self.expected, self.actual = tensor, expected, actual
        super().__init__(f"tensor {tensor} has shape {list(actual)}, expected {list(expected)}")


class StoreError(LoraError):
    """Base of the adapter store's errors."""


class InvalidDigest(StoreError):
    """A digest that could not have been made here."""

    def __init__(self, got: str) -> None:
        self.got = got
        super().__init__(f"digest {_brief(got)} is not valid, allowed: 'sha256:' and 64 hexadecimal digits")


class NotInStore(StoreError):
    """The store has no complete adapter under this digest."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f"adapter {digest} is not in the store")


class DamagedCopy(StoreError):
    """A stored adapter whose bytes no longer have its digest; it has been moved aside."""

    def __init__(self, digest: str, found: str) -> None:
        self.digest, self.found = digest, found
        super().__init__(f"the stored copy of {digest} is damaged ({found}); it is quarantined")


class StopsUnusable(LoraError):
    """The file of the local kill switch cannot be read or written."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"the local stops in {path} cannot be used: {reason}")


class ResidencyClosed(LoraError):
    """The replica is shutting down and loads nothing more."""

    def __init__(self) -> None:
        super().__init__("adapters are no longer loaded: the replica is shutting down")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
