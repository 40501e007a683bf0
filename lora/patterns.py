"""Regular expressions that come from an adapter's config, kept to forms that cannot run for ever.

`re` backtracks without a time limit while it holds the interpreter lock, so one hostile pattern would stop
the whole process. Refused are the forms behind exponential time (a repeated group that itself repeats or
branches), more than a few repeats, and inline flags, which would change how the pattern reads. What users
and trainers write passes.
"""

import functools
import re

from lora.errors import InvalidConfig

MAX_PATTERN_LENGTH = 4096
MAX_REPEATS = 6  # a few million steps for the longest module names
_REPEAT = re.compile(r"[*+]|\{\d*,?\d*\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_REFUSED_GROUP = re.compile(r"\(\?(?:P=|\(|[aiLmsux-])")
_ALLOWED = (
    f"a regular expression of at most {MAX_PATTERN_LENGTH} characters and {MAX_REPEATS} repeats, "
    "no repeat of a group that repeats or branches, no back references, no inline flags"
)


@functools.lru_cache(maxsize=4096)
def compile_pattern(field: str, text: str) -> re.Pattern[str]:
    """Compile `text`, found in config field `field`. Raises InvalidConfig if it is invalid or unsafe."""
    if len(text) > MAX_PATTERN_LENGTH or not _is_safe(text):
        raise InvalidConfig(field, text, _ALLOWED)
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidConfig(field, text, _ALLOWED) from error


def compile_suffix(field: str, key: str) -> re.Pattern[str]:
    """A key of rank_pattern or alpha_pattern: it matches the end of a module name, after a dot."""
    return compile_pattern(field, rf"(.*\.)?({key})$")


def compile_layers(name: str) -> re.Pattern[str]:
    """An entry of layers_pattern: it finds the first number behind a list of layers of that name."""
    return compile_pattern("layers_pattern", rf"(?:^|.*?\.){name}\.(?P<number>\d+)\.")


def _is_safe(text: str) -> bool:
    """One pass over the pattern; `risky[-1]` says whether the group being read repeats or branches."""
    position, repeats, risky, closed_risky = 0, 0, [False], False
    while position < len(text):
        width, kind = _token(text, position)
        position += width
        if kind == "open":
            risky.append(False)
        elif kind == "close":
            if len(risky) == 1:
                return False
            closed_risky = risky.pop()
            risky[-1] |= closed_risky
            continue
        elif kind == "branch":
            risky[-1] = True
        elif kind == "repeat":
            repeats += 1
            risky[-1] = True
            if closed_risky:
                return False
        elif kind == "refused":
            return False
        closed_risky = False
    return repeats <= MAX_REPEATS


def _token(text: str, position: int) -> tuple[int, str]:
    """Length and kind of the token at `position`."""
    character = text[position]
    if character == "\\":
        return 2, "refused" if text[position + 1 : position + 2] in set("123456789") else "atom"
    if character == "[" and (match := _CLASS.match(text, position)):
        return match.end() - position, "atom"
    if _REFUSED_GROUP.match(text, position):
        return 1, "refused"
    if character == "(":
        return 1, "open"
    if match := _REPEAT.match(text, position):
        return match.end() - position, "repeat"
    return 1, {")": "close", "|": "branch"}.get(character, "atom")
