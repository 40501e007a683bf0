"""What of a base model an adapter may change, as the matching needs it. Plain data from outside."""

from collections.abc import Mapping
from typing import Protocol

HEAD = "lm_head"
"""The module that makes logits, called so in every family."""


class BaseTargets(Protocol):
    """The part of engine.adapter_targets.AdapterTargets that is needed here.

    linear: linear modules, and the head of a model that has one -> (out, in). biases: modules with a bias
    -> its size. norms -> size. embedding: the token table, [vocab, hidden]. tied: the head's matrix is that
    table.
    """

    @property
    def linear(self) -> Mapping[str, tuple[int, int]]: ...

    @property
    def biases(self) -> Mapping[str, int]: ...

    @property
    def norms(self) -> Mapping[str, int]: ...

    @property
    def embedding(self) -> str: ...

    @property
    def vocab(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def tied(self) -> bool: ...
