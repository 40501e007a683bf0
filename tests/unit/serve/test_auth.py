import pytest

from serve.auth import Doorkeeper, key_digest
from serve.errors import Forbidden, Unauthorized


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_without_keys_everybody_passes() -> None:
    door = Doorkeeper(None, None)
    assert door.tenant({}) == "default"
    assert door.tenant(bearer("anything")) == "default"
    door.admin({})


def test_a_key_names_its_tenant() -> None:
    door = Doorkeeper(None, {key_digest("k1"): "acme"})
    assert door.tenant(bearer("k1")) == "acme"
    for headers in ({}, bearer("k2"), {"authorization": "Basic k1"}, {"authorization": "k1"}):
        with pytest.raises(Unauthorized):
            door.tenant(headers)


def test_a_newer_picture_of_the_keys_takes_effect() -> None:
    door = Doorkeeper(None, {key_digest("k1"): "acme"})
    door.set_keys({})
    with pytest.raises(Unauthorized):
        door.tenant(bearer("k1"))


def test_changes_need_the_admin_key() -> None:
    door = Doorkeeper("root", {key_digest("k1"): "acme"})
    door.admin(bearer("root"))
    with pytest.raises(Unauthorized):
        door.admin({})
    with pytest.raises(Forbidden):
        door.admin(bearer("k1"))
    assert door.tenant(bearer("root")) == "default"
