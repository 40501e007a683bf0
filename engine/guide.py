"""Where one sequence stands in its grammar: what may follow, and whether anything may.

Who touches what: between begin() and the moment the mask is ready the matcher is a mask thread's, at all
other times the engine thread's.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import GuideFailed

if TYPE_CHECKING:
    from llguidance import LLMatcher

_SHOWN = 400
"""Characters of a reason."""


@dataclass(slots=True)
class Tables:
    """What all guides of one compilation share, and fill as they go; once they are full, all of them fail."""

    failed: bool = False


class Guide:
    """One sequence's way through a grammar.

    end_ids: tokens that end a completion; they may come where the sentence may end, and only there.
    tables: those of the matcher.
    """

    def __init__(self, matcher: LLMatcher, end_ids: frozenset[int], tables: Tables) -> None:
        self.end_ids = end_ids
        self._tables = tables
        self._matcher = matcher
        self._mask: Future[bytes] | None = None

    def begin(self) -> bool:
        """Make ready for fill(); False where the mask is known or being made."""
        if self._mask is not None:
            return False
        self._mask = Future()
        return True

    def fill(self) -> None:
        """Make the mask, on a mask thread."""
        assert self._mask is not None, "begin() comes first"
        try:
            mask = self._matcher.compute_bitmask()
            if self._matcher.is_error():
                raise self._failure()
            self._mask.set_result(mask)
        except BaseException as error:  # a panic of the library is no Exception; the engine thread waits
            failed = error if isinstance(error, GuideFailed) else GuideFailed(repr(error))
            self._mask.set_exception(failed)

    @property
    def pending(self) -> Future[bytes]:
        """The mask that may not be ready yet."""
        assert self._mask is not None, "begin() comes first"
        return self._mask

    def mask(self) -> bytes:
        """Tokens that may follow, as in engine.token_mask, waited for. Raises GuideFailed."""
        return self.pending.result()

    def advance(self, token_id: int) -> bool:
        """A token has been chosen; says whether nothing may follow but the end. Raises GuideFailed."""
        self._mask = None
        ends = token_id in self.end_ids
        if not ends and not self._matcher.consume_token(token_id):
            raise self._failure()
        if not ends and not self._matcher.is_stopped():
            return False
        if not self._matcher.is_accepting():
            raise GuideFailed("the completion ends where its grammar does not")
        return True

    def copy(self) -> Guide:
        """Another guide at the same place, which then goes its own way."""
        other = Guide(self._matcher.deep_copy(), self.end_ids, self._tables)
        other._mask = self._mask if self._mask is not None and self._mask.done() else None
        return other

    def _failure(self) -> GuideFailed:
        self._tables.failed = True
        return GuideFailed(f"the grammar cannot be followed: {said(self._matcher)}")


def said(matcher: LLMatcher) -> str:
    """The matcher's error on one line, without the state of its parser and where its program was."""
    message = matcher.get_error().partition("<non-verbose/>")[0].partition("<backtrace>")[0]
    return " ".join(message.split())[:_SHOWN] or "nothing was said why"
