"""Errors of the benchmarks, each printed by the command as one line.

BenchError
    BadLoad      a load that cannot be offered
    NoFigures    every request of a run failed
"""


class BenchError(Exception):
    """Base of the errors of a benchmark."""


class BadLoad(BenchError):
    """A load that cannot be offered."""


class NoFigures(BenchError):
    """Every request of a run failed, so there is nothing to measure."""
