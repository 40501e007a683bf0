"""Revisions, one a file, each beside its SQL."""
