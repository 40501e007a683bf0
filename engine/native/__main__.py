"""`python -m engine.native` compiles the kernels ahead of the first engine, or says why it cannot."""

from __future__ import annotations

import sys

from engine.errors import NativeUnavailable
from engine.native.build import build, default_cache

try:
    build(default_cache())
except NativeUnavailable as error:
    sys.stderr.write(f"noria: steps will run on torch, more slowly: {error}\n")
