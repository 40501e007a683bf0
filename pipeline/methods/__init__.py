"""The training methods: one file each, one line here."""

from typing import Any

from pipeline.errors import UnknownMethod
from pipeline.methods.base import Method
from pipeline.methods.kto import Kto

METHODS: dict[str, Method[Any]] = {method.name: method for method in (Kto(),)}


def get_method(name: str) -> Method[Any]:
    """Raises: UnknownMethod."""
    if name not in METHODS:
        raise UnknownMethod(name, tuple(sorted(METHODS)))
    return METHODS[name]
