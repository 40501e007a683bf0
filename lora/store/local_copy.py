"""A store's adapter on the local disk: copied under a temporary name, checked, and only then shown."""

import logging
from collections.abc import Callable
from pathlib import Path

from lora.errors import AdapterNotFound, DamagedCopy, InvalidAdapter
from lora.folders import is_complete, move_aside, publish, staging_folder
from lora.format import Limits, check_digest, read_adapter

QUARANTINE = "quarantine"
SCHEME = "sha256:"

logger = logging.getLogger(__name__)


class Spoiled(Exception):
    """What a store delivered can not be the adapter; the text says why. Never leaves this package."""


def hexadecimal(digest: str) -> str:
    """The digits of a digest, which name folders and keys. Raises InvalidDigest."""
    return check_digest(digest).removeprefix(SCHEME)


def local_folder(digest: str, into: Path) -> Path:
    """Where fetch() puts an adapter under `into`. Raises InvalidDigest."""
    return into / hexadecimal(digest)


def fetch_copy(digest: str, into: Path, copy: Callable[[Path], None], limits: Limits) -> Path:
    """A sound local_folder(digest, into). `copy` fills an empty folder from the store, or raises Spoiled.

    What arrives damaged is set aside and copied once more, since the way may have done it. Raises DamagedCopy
    when that is no better: then the store's own copy is bad. Raises what `copy` raises.
    """
    target, aside = local_folder(digest, into), into / QUARANTINE
    if is_complete(target):
        if content_of(target, limits) == digest:
            return target
        move_aside(target, aside, target.name)
    with staging_folder(into) as staged:
        found = _copied(copy, staged, limits)
        if found == digest:
            publish(staged, target, durable=False)
            return target
        logger.warning(
            "adapter %s arrived damaged (%s); it is set aside and fetched once more", digest, found,
            extra={"action": "adapter_quarantined"},
        )  # fmt: skip
        move_aside(staged, aside, target.name)
    with staging_folder(into) as staged:
        found = _copied(copy, staged, limits)
        if found != digest:
            raise DamagedCopy(digest, found)
        publish(staged, target, durable=False)
    return target


def _copied(copy: Callable[[Path], None], staged: Path, limits: Limits) -> str:
    """The digest of what `copy` brought, or what is wrong with it."""
    try:
        copy(staged)
    except Spoiled as error:
        return str(error)
    return content_of(staged, limits)


def content_of(folder: Path, limits: Limits) -> str:
    """The digest of what a folder really holds, or what is wrong with it."""
    try:
        return read_adapter(folder, limits=limits).digest
    except (InvalidAdapter, AdapterNotFound) as error:
        return str(error)
