"""The border where errors of a disk, or of a network file system, become ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from lora.errors import StoreUnavailable


@contextmanager
def answering() -> Iterator[None]:
    """What the file system refuses becomes StoreUnavailable, a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnavailable(error.strerror or type(error).__name__) from error
