"""The marker of an adapter in a bucket: which files one upload wrote, their sizes and SHA-256."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from lora.adapter_files import FileInfo, file_infos
from lora.store.local_copy import Spoiled

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MAX_FILES = 16


@dataclass(frozen=True, slots=True)
class Manifest:
    """File names to their sums. The names are plain: no path can be made of them."""

    files: Mapping[str, FileInfo]

    @classmethod
    def of(cls, folder: Path, names: tuple[str, ...]) -> Self:
        """What lies in the folder under these names. Raises UnreadableFile."""
        return cls(file_infos(folder, names))

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Raises Spoiled for what write() could not have written."""
        try:
            tree = json.loads(raw)["files"]
            files = {
                name: FileInfo(str(fields["sha256"]), int(fields["bytes"])) for name, fields in tree.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Spoiled("its marker is not readable") from error
        if not 0 < len(files) <= _MAX_FILES or not all(_NAME.fullmatch(name) for name in files):
            raise Spoiled("its marker names files that no adapter has")
        return cls(files)

    def write(self) -> bytes:
        """As JSON."""
        return json.dumps({"files": {name: asdict(file) for name, file in self.files.items()}}).encode()

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Compare with the sizes in bytes of what there is. Raises Spoiled."""
        for name, file in self.files.items():
            if name not in sizes:
                raise Spoiled(f"{name} is missing")
            if sizes[name] != file.bytes:
                raise Spoiled(f"{name} has {sizes[name]} bytes, {file.bytes} were written")

    def check_content(self, folder: Path) -> None:
        """Compare with the files in a folder. Raises Spoiled."""
        found = file_infos(folder, tuple(self.files))
        for name, file in self.files.items():
            if found[name] != file:
                raise Spoiled(f"{name} has other bytes than were written")
