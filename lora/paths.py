"""Which folders a caller may name as an adapter."""

from collections.abc import Sequence
from pathlib import Path

from lora.adapter_files import OPTIONAL_FILES
from lora.errors import AdapterNotFound, AdapterPathRefused
from lora.peft_config import CONFIG_FILE, WEIGHTS_FILE


def resolve_adapter_path(path: str, roots: Sequence[Path]) -> Path:
    """The real folder behind `path`: absolute inside a root, or relative to one.

    Raises AdapterPathRefused for everything that leads out of the roots (another absolute path, "..", a link
    of the folder or of its files, a URL), with one message whether or not something is there. Raises
    AdapterNotFound for a path inside a root without an adapter's configuration; whether there are weights,
    and in which form, is for their reader to tell.
    """
    if not path.strip() or "\0" in path or "://" in path or ".." in Path(path).parts:
        raise AdapterPathRefused(path)
    real_roots = [root.resolve() for root in roots]
    inside = [
        folder
        for root in real_roots
        if (folder := _real(root / path)) is not None and _is_inside(folder, real_roots)
    ]
    if not inside:
        raise AdapterPathRefused(path)
    folder = next((candidate for candidate in inside if candidate.is_dir()), None)
    if folder is None:
        raise AdapterNotFound(path, "the folder")
    for name in (CONFIG_FILE, WEIGHTS_FILE, *OPTIONAL_FILES):
        file = _real(folder / name)
        if file is None or not _is_inside(file, real_roots):
            raise AdapterPathRefused(path)
        if name == CONFIG_FILE and not file.is_file():
            raise AdapterNotFound(path, name)
    return folder


def _real(path: Path) -> Path | None:
    """The path with every link followed, or None where links go in circles or the name is too long."""
    try:
        real = path.resolve()
        real.exists()  # raises for a name too long to exist
    except (OSError, RuntimeError):
        return None
    return real


def _is_inside(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
