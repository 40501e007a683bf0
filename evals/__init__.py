"""Suites, tasks and statistics; sees a Completer, never an engine."""
