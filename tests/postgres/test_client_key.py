"""The key of a command that calls its own server."""

import pytest

from db import keys
from db.database import Database
from noria import client_key
from noria.settings import ServerSettings, Settings
from serve.auth import key_digest


def test_a_key_is_made_for_the_call_alone(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_key.time, "sleep", lambda seconds: None)
    settings = Settings(server=ServerSettings(require_api_key=True))
    with client_key.client_key(settings, db) as key:
        assert keys.active(db) == {key_digest(key): "default"}
    assert keys.active(db) == {}


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        (ServerSettings(), "none"),
        (ServerSettings(require_api_key=True, admin_key="secret"), "secret"),
    ],
)
def test_none_is_made_where_none_is_needed(db: Database, asked: ServerSettings, key: str) -> None:
    with client_key.client_key(Settings(server=asked), db) as found:
        assert found == key
        assert keys.active(db) == {}
