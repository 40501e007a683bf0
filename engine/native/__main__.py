"""`python -m engine.native [CACHE]`: compile the kernels now, as an installation does, and say for what."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.errors import NativeUnavailable
from engine.native.build import build, default_cache
from engine.native.library import open_library

LEVELS = {1: "AVX2", 2: "AVX-512 with BF16"}


def main() -> int:
    cache = Path(sys.argv[1]) if len(sys.argv) > 1 else default_cache()
    try:
        level = open_library(cache).noria_level()
        sys.stdout.write(f"{build(cache)}: runs with {LEVELS[level]}\n")
    except NativeUnavailable as error:
        sys.stdout.write(f"no native kernels, the reference backend will serve: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
