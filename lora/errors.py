"""Everything this package raises.

LoraError
├── AdapterPathRefused        the path may not be read (says nothing about what exists there)
├── AdapterNotFound           inside an allowed root, but there is no adapter
├── InvalidAdapter            the folder alone is enough to refuse it
│   ├── UnreadableFile        a file that the system does not give
│   ├── InvalidConfig         adapter_config.json, or another JSON file that the adapter needs
│   ├── UnsupportedFeature    a PEFT feature that is not served
│   ├── InvalidWeights        adapter_model.safetensors: damaged, or not tensors of an adapter
│   ├── InvalidChatTemplate   the adapter's chat template is no text
│   ├── NotFinite             a tensor holds NaN or infinity
│   ├── RankTooLarge          a rank is over its limit
│   └── LimitExceeded         a size or count is over its limit
├── AdapterMismatch           the adapter does not fit this base model
│   ├── WrongBase             it was trained on another base
│   ├── UnmatchedTensors      tensors whose module the base or the config does not name
│   ├── MissingTensors        tensors that the config asks for and the file lacks
│   ├── WrongShape            a tensor of another size than its module needs
│   ├── WrongVocabulary       a table of another number of tokens than the base has
│   ├── OutsideVocabulary     a token id that the base does not have
│   └── BaseLacksTensor       the base's own files are incomplete
├── SelfCheckFailed           the comparison with merged weights could not be made
├── IdenticalToBase           it was loaded, and no probe answers otherwise than the base
├── StoreError
│   ├── InvalidStore          a store's URL or options that cannot be
│   ├── StoreUnavailable      the store does not answer, or refuses access
│   ├── InvalidDigest         not "sha256:" and 64 hexadecimal digits
│   ├── NotInStore            no complete copy under this digest
│   ├── DamagedCopy           the bytes do not have the digest they are filed under
│   ├── InvalidKey            an object's key that is no plain path
│   ├── NoObject              there is no object under this key
│   └── DamagedObject         an object's bytes do not have the sha256 they were written with
├── AdapterOverBudget         it takes more memory than all adapters together may
├── PinsFillBudget            one more pinned adapter would leave no memory for others
├── StopsUnusable             the file of the local kill switch cannot be read or written
└── ResidencyClosed           the replica is shutting down

A message says what was wrong, the value met and the value allowed. All of them survive pickling.
"""

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHOWN = 8
_BRIEF = 120
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxlist, _REPR.maxdict = 3, _SHOWN, _SHOWN
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 4 * _BRIEF  # it cuts in the middle, we at the end


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


class UnreadableFile(InvalidAdapter):
    """A file of the adapter that is there and cannot be read."""

    def __init__(self, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file} cannot be read: {reason}")


class InvalidConfig(InvalidAdapter):
    """A field of adapter_config.json, or a JSON file as a whole (the field is then the file's name)."""

    def __init__(self, field: str, got: object, allowed: str) -> None:
        self.field, self.got, self.allowed = field, got, allowed
        super().__init__(f"{_plain(field)}: got {_brief(got)}, allowed: {allowed}")


class UnsupportedFeature(InvalidAdapter):
    """A PEFT feature that would change the answers if it were dropped, so it is refused."""

    def __init__(self, feature: str, got: object, advice: str = "") -> None:
        self.feature, self.got = feature, got
        more = f"; {advice}" if advice else ""
        super().__init__(f"{_plain(feature)} is not supported (got {_brief(got)}){more}")


class InvalidWeights(InvalidAdapter):
    """The weights file is damaged, or holds something else than tensors of an adapter."""

    def __init__(self, reason: str, keys: Sequence[str] = ()) -> None:
        self.keys = tuple(keys)
        super().__init__(f"adapter_model.safetensors: {reason}{': ' + shorten(keys) if keys else ''}")


class InvalidChatTemplate(InvalidAdapter):
    """A chat template that is no text."""

    def __init__(self, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"the chat template in {file} {reason}, allowed: a text in UTF-8 that is not empty")


class NotFinite(InvalidAdapter):
    """A tensor holds NaN or infinity."""

    def __init__(self, tensor: str, count: int) -> None:
        self.tensor, self.count = tensor, count
        super().__init__(f"tensor {tensor} holds {count} values that are NaN or infinite, allowed: 0")


class LimitExceeded(InvalidAdapter):
    """A size or count over its limit."""

    def __init__(self, what: str, got: int, allowed: int) -> None:
        self.what, self.got, self.allowed = what, got, allowed
        super().__init__(f"{what} is {got}, allowed: at most {allowed}")


class RankTooLarge(InvalidAdapter):
    """A rank over its limit: of any adapter, or of this base model's adapters (max_lora_rank)."""

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
    """Tensors that the config asks for and the weights file lacks."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(keys)
        super().__init__(f"adapter_config.json asks for {len(keys)} tensors that are absent: {shorten(keys)}")


class WrongShape(AdapterMismatch):
    """A tensor of another size than its module and rank need."""

    def __init__(self, tensor: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> None:
        self.tensor, self.expected, self.actual = tensor, expected, actual
        super().__init__(f"tensor {tensor} has shape {list(actual)}, expected {list(expected)}")


class WrongVocabulary(AdapterMismatch):
    """A table of tokens that was made larger or smaller than the base's."""

    def __init__(self, tensor: str, got: int, allowed: int) -> None:
        self.tensor, self.got, self.allowed = tensor, got, allowed
        super().__init__(
            f"tensor {tensor} has rows for {got} tokens, the base model's vocabulary has {allowed}: "
            "adapters of a resized vocabulary are not supported"
        )


class OutsideVocabulary(AdapterMismatch):
    """A token id that the base model does not have."""

    def __init__(self, field: str, got: int, vocab: int) -> None:
        self.field, self.got, self.vocab = field, got, vocab
        super().__init__(f"{field} names token {got}, allowed: 0 to {vocab - 1}")


class BaseLacksTensor(AdapterMismatch):
    """The base model's files have no tensor that its architecture has."""

    def __init__(self, tensor: str) -> None:
        self.tensor = tensor
        super().__init__(f"the base model's files lack tensor {tensor}, which the adapter changes")


class IdenticalToBase(LoraError):
    """The adapter answers every probe exactly as the base model does, so it changes nothing that shows."""

    def __init__(self, digest: str, probes: int) -> None:
        self.digest, self.probes = digest, probes
        super().__init__(
            f"adapter {digest} changes nothing: on {probes} probe prompts its logprobs equal the base "
            "model's, allowed: at least one that differs (or force)"
        )


class SelfCheckFailed(LoraError):
    """The comparison with merged weights could not be made; it says nothing of the adapter."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the adapter could not be compared with merged weights: {reason}")


class StoreError(LoraError):
    """Base of the errors of the store, of adapters and of objects."""


class InvalidStore(StoreError):
    """A store's URL or option. What was given is not repeated: it may hold a password."""

    def __init__(self, option: str, allowed: str) -> None:
        self.option, self.allowed = option, allowed
        super().__init__(f"{option} of the adapter store is not valid, allowed: {allowed}")


class StoreUnavailable(StoreError):
    """The store does not answer, or refuses access. Holds no address and nothing that the server wrote."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the store is not available: {reason}")


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


class InvalidKey(StoreError):
    """A key that could not have been made here."""

    def __init__(self, got: str) -> None:
        self.got = got
        super().__init__(f"key {_brief(got)} is not valid, allowed: names of letters, digits, '_' and '-', "
                         "with slashes between them")  # fmt: skip


class NoObject(StoreError):
    """The store has no object under this key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"object {_brief(key)} is not in the store")


class DamagedObject(StoreError):
    """An object whose bytes are not those that were written."""

    def __init__(self, key: str, found: str, expected: str) -> None:
        self.key, self.found, self.expected = key, found, expected
        super().__init__(f"object {_brief(key)} is damaged: its sha256 is {found}, expected: {expected}")


class AdapterOverBudget(LoraError):
    """The adapter could not be in memory even alone with those that are pinned."""

    def __init__(self, digest: str, needed: int, allowed: int) -> None:
        self.digest, self.needed, self.allowed = digest, needed, allowed
        super().__init__(
            f"adapter {digest} takes {needed} bytes in memory, allowed: {allowed}, "
            "which adapter_bytes leaves beside pinned adapters"
        )


class PinsFillBudget(LoraError):
    """Pinned adapters would leave no room to load any other."""

    def __init__(self, digest: str, needed: int, pinned: int, budget: int) -> None:
        self.digest, self.needed, self.pinned, self.budget = digest, needed, pinned, budget
        super().__init__(
            f"adapter {digest} takes {needed} bytes and is not pinned: {pinned} are, of {budget} for all "
            "adapters, and one more of its size has to fit beside; unpin another, or raise adapter_bytes"
        )


class StopsUnusable(LoraError):
    """The file of the local kill switch cannot be read or written."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"the local stops in {path} cannot be used: {reason}")


class ResidencyClosed(LoraError):
    """The replica is shutting down and loads nothing more."""

    def __init__(self) -> None:
        super().__init__("adapters are no longer loaded: the replica is shutting down")


def _plain(name: str) -> str:
    """A name from a file as it is, unless it is not fit to be shown so."""
    return name if name.isprintable() and name.isascii() and len(name) <= _BRIEF else _brief(name)


def _brief(value: object) -> str:
    """Never deep, never long, whatever the value."""
    text = _REPR.repr(value)
    return text if len(text) <= _BRIEF else text[: _BRIEF - 3] + "..."
