"""Errors of the front door, each printed by the command as one line.

NoriaError
    SettingsError        a setting is missing, malformed or contradicts another
    InstanceError        an instance cannot be started, reached or stopped
        InstanceRunning  the data folder belongs to a running instance
        NotRunning       a running instance is needed and there is none
    ModelSourceError     a base model's source cannot be used
    AdminRefused         the running instance refused an act on an adapter
    StopError            an adapter cannot be stopped or resumed on this machine
"""


class NoriaError(Exception):
    """Base of the errors that the noria command explains in one line."""


class SettingsError(NoriaError):
    """A setting is missing, malformed or contradicts another."""


class InstanceError(NoriaError):
    """An instance cannot be started, reached or stopped."""


class InstanceRunning(InstanceError):
    """The data folder belongs to a running instance."""


class NotRunning(InstanceError):
    """A running instance is needed and there is none."""


class ModelSourceError(NoriaError):
    """A base model's source cannot be used."""


class AdminRefused(NoriaError):
    """The running instance refused an act on an adapter; the message carries its reason and code."""


class StopError(NoriaError):
    """An adapter cannot be stopped or resumed on this machine."""
