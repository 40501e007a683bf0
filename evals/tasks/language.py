"""Language: the answer is in the language the case asks for.

The detector counts stop words: of the words of the answer, how many belong to each language's list of very
frequent words. The language with most hits wins. Fewer than MIN_WORDS words, no hit at all, or a tie cannot
be told: unscored. It is coarse on purpose: it separates English, Spanish, French and German answers
deterministically, without a model, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from evals.completer import Completion
from evals.suite import Case
from evals.tasks.base import Kind

MIN_WORDS = 3
_FREQUENT = {
    "en": "the of and to is in that it for was on are with as at be this have from or by not but what all "
    "were when we there can an your which their has will would if about do does its into you",
    "es": "el la los las de y que es en un una por con para no se lo como más pero sus le ya o este sí "
    "porque esta entre cuando muy sin sobre también hasta hay donde quien desde son está del al",
    "fr": "le la les de et que est en un une pour avec dans ne se ce qui par sur pas plus au aux des du "
    "mais ou comme tout nous vous ils elle sont être cette ces leur si deux même aussi",
    "de": "der die das und ist in den von zu mit sich des auf für nicht ein eine als auch es an werden aus "
    "er hat dass sie nach wird bei einer um am sind noch wie einem über so zum oder",
}
STOP_WORDS: Mapping[str, frozenset[str]] = {code: frozenset(text.split()) for code, text in _FREQUENT.items()}


def detect(text: str) -> str | None:
    """The language code with most stop words, or None when it cannot be told."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    if len(words) < MIN_WORDS:
        return None
    hits = {code: sum(word in stops for word in words) for code, stops in STOP_WORDS.items()}
    best = max(hits.values())
    winners = [code for code, count in hits.items() if count == best]
    return winners[0] if best > 0 and len(winners) == 1 else None


class Language:
    """Metric: language (rate of answers in the language asked for)."""

    name = "language"
    metrics: Mapping[str, Kind] = {"language": "rate"}

    def applies(self, case: Case) -> bool:
        return case.language is not None

    def score(self, case: Case, completion: Completion) -> Mapping[str, float | None]:
        found = detect(completion.text)
        return {"language": None if found is None else float(found == case.language)}
