"""How deep a JSON text is nested, found before it is parsed: parsers go down by one call a level."""

import re

import numpy as np

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = np.zeros(256, np.int32)
_STEPS[[*b"[{"]], _STEPS[[*b"]}"]] = 1, -1


def is_deeper(raw: bytes, levels: int) -> bool:
    """Whether more than so many arrays and objects stand one within another, for a text that is JSON."""
    if raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    brackets = np.frombuffer(_STRING.sub(b"", raw).translate(None, _OTHERS), np.uint8)
    return bool(_STEPS[brackets].cumsum().max(initial=0) > levels)
