"""What every adapter store does, wherever it keeps its bytes."""

from pathlib import Path
from typing import Protocol

ABANDONED_S = 86_400.0
"""Age after which what is not complete belongs to a writer that died."""


class AdapterStore(Protocol):
    """Content-addressed adapters. Every method may be called from any thread and any process.

    Every method raises StoreUnavailable when the store does not answer or refuses access.
    """

    @property
    def url(self) -> str:
        """Where it is; holds no credentials."""

    def put(self, folder: Path) -> str:
        """Check the adapter in `folder`, keep a copy, return its digest. Doing it twice changes nothing.

        Raises what read_adapter raises.
        """

    def fetch(self, digest: str, into: Path) -> Path:
        """A checked local_folder(digest, into), copied there unless a sound copy is there.

        A damaged download is set aside in `into`/quarantine and tried once more. Raises NotInStore, or
        DamagedCopy when the store's own copy has other content; that copy is moved aside, and a later put of
        the same adapter restores it.
        """

    def exists(self, digest: str) -> bool:
        """Whether a complete adapter is filed under the digest."""

    def delete(self, digest: str) -> bool:
        """Remove an adapter; False if there was none."""

    def list(self) -> list[str]:
        """Digests of all complete adapters, sorted."""

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        """Remove what writers that died have left half done, that old at least; returns how many pieces."""

    def check(self) -> None:
        """Return if the store answers."""
