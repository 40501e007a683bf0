"""What an engine that embeds counts about its passes. Knows no texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.records import EngineStats
from engine.stats import SpreadCounter


@dataclass(slots=True)
class PassFigures:
    """Counted since the start, beside what runs now."""

    running: int = 0
    tokens: int = 0
    passes: int = 0
    failed: int = 0
    consecutive_failures: int = 0
    computed_tokens: int = 0
    texts_by_pass: SpreadCounter = field(default_factory=SpreadCounter)
    tokens_by_pass: SpreadCounter = field(default_factory=SpreadCounter)

    def begin(self, texts: int, tokens: int) -> None:
        """A pass of so many texts and tokens starts."""
        self.running, self.tokens = texts, tokens
        self.texts_by_pass.add(texts)
        self.tokens_by_pass.add(tokens)
        self.passes += 1

    def end(self, *, failed: bool) -> None:
        """It ended; failed: the model could not compute it."""
        self.running = 0
        self.failed += failed
        self.consecutive_failures = self.consecutive_failures + 1 if failed else 0
        self.computed_tokens += 0 if failed else self.tokens

    def stats(self, *, waiting: int, adapters: int) -> EngineStats:
        """As an engine reports itself: requests are texts, steps are passes."""
        return EngineStats(
            running=self.running,
            waiting=waiting,
            steps=self.passes,
            failed_steps=self.failed,
            consecutive_failures=self.consecutive_failures,
            prompt_tokens=self.computed_tokens,
            last_batch_seqs=self.running,
            last_batch_tokens=self.tokens,
            seqs_by_step=self.texts_by_pass.spread(),
            tokens_by_step=self.tokens_by_pass.spread(),
            adapters=adapters,
        )
