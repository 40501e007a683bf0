"""A database with the current schema, and a registry that knows the models and endpoints of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from db import migrate, partitions, registry
from db.database import Database
from lora.format import base_digest
from noria.database import database_url
from noria.settings import Settings


@contextmanager
def open_registered(settings: Settings, folders: Mapping[str, Path]) -> Iterator[Database]:
    """Bring the database of `settings` up to date; `folders` maps each base model to its weights."""
    url = database_url(settings)
    migrate.upgrade(url)
    with Database(url) as database:
        partitions.ensure(database)
        _register(settings, database, folders)
        yield database


def _register(settings: Settings, database: Database, folders: Mapping[str, Path]) -> None:
    for model_id, folder in folders.items():
        registry.register_base_model(database, model_id, base_digest(folder), str(folder))
    for endpoint in settings.endpoints:
        registry.create_endpoint(database, endpoint.name, endpoint.model)
