"""Watches that nobody stands in line for a slot longer than engine.slot_turns says."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.slot_turns import QUANTUM, SlotTurns


@dataclass
class SlotWatch:
    """limits: steps that whoever came into line in some step may stand there. longest: anybody has stood."""

    limits: dict[tuple[str, int], int] = field(default_factory=dict)
    longest: int = 0

    def look(self, turns: SlotTurns) -> None:
        """After each step."""
        slots, line = turns._num_slots, turns._line
        for digest, since in line.items():
            limit = self.limits.setdefault((digest, since.step), -(-len(line) // slots) * QUANTUM)
            stood = turns._step - since.step
            assert stood < limit
            self.longest = max(self.longest, stood)
