"""The settings example of the cluster loads, and stands for what it says it shows."""

from __future__ import annotations

from pathlib import Path

from noria import settings

EXAMPLE = Path(__file__).parents[3] / "deploy/noria.toml"
SECRETS = {"NORIA_ADMIN_KEY": "from-the-cluster", "NORIA_DATABASE_URL": "postgresql://noria:secret@pg/noria"}


def test_it_loads_with_the_secrets_from_the_environment() -> None:
    loaded = settings.load(EXAMPLE, environment=SECRETS)
    assert loaded.database.url == SECRETS["NORIA_DATABASE_URL"]
    assert loaded.server.admin_key == SECRETS["NORIA_ADMIN_KEY"]


def test_it_shows_an_external_database_and_replicas() -> None:
    loaded = settings.load(EXAMPLE, environment={"NORIA_ADMIN_KEY": "x"})
    assert loaded.database.url is not None
    assert loaded.server.replicas > 1
    assert all(model.replicas > 1 for model in loaded.models)
    assert loaded.endpoints[0].model == loaded.models[0].id


def test_adapters_are_in_a_bucket_that_all_pods_reach() -> None:
    loaded = settings.load(EXAMPLE, environment={"NORIA_ADMIN_KEY": "x"})
    assert loaded.store_url.startswith("s3://")
    assert loaded.s3 is not None


def test_it_holds_no_secret() -> None:
    loaded = settings.load(EXAMPLE, environment={"NORIA_ADMIN_KEY": "x"})
    assert loaded.database.url is not None
    user = loaded.database.url.split("//")[1].split("@")[0]
    assert ":" not in user
    assert "admin_key =" not in EXAMPLE.read_text()
    assert "AWS_SECRET_ACCESS_KEY =" not in EXAMPLE.read_text()
