"""Errors of the demonstration.

NoriaError
    StageFailed     a stage did not do what it says
"""

from noria.errors import NoriaError


class StageFailed(NoriaError):
    """A stage did not do what it says; the message tells what was seen and what was expected."""
