"""The noria command over a real database: what it prints, what it records, and its exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from db import keys, registry
from db.database import Database
from db.rows import AdapterRow

Noria = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def noria(url: str, tmp_path_factory: pytest.TempPathFactory) -> Noria:
    data = tmp_path_factory.mktemp("instance")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {"NORIA_DATABASE_URL": url, "NORIA_DATA": str(data), "PATH": "", "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "noria", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_an_endpoint_is_created_on_a_known_base_only(noria: Noria, db: Database) -> None:
    refused = noria("endpoint", "create", "support", "--base", "nothing")
    assert refused.returncode == 1
    assert "nothing" in refused.stderr
    assert refused.stderr.count("\n") == 1
    registry.register_base_model(db, "tiny", "sha256:" + "c" * 64, "/models/tiny")
    created = noria("endpoint", "create", "support", "--base", "tiny")
    assert (created.returncode, created.stdout) == (0, "support: served by tiny\n")
    assert [row.name for row in registry.snapshot(db).endpoints] == ["support"]


def test_a_closed_gate_prints_every_reason_and_fails(
    noria: Noria, db: Database, add_adapter: Callable[..., AdapterRow]
) -> None:
    adapter = add_adapter("support-v1")
    refused = noria("promote", adapter.id)
    assert refused.returncode == 1
    assert "may not be promoted" in refused.stdout
    assert registry.adapter(db, adapter.id).status == "candidate"
    passed = noria("promote", adapter.id, "--override", "agreed with the owner")
    assert passed.returncode == 0, passed.stderr
    assert registry.adapter(db, adapter.id).status == "prod"
    reasons = {event.reason for event in registry.events(db, adapter_id=adapter.id)}
    assert "agreed with the owner" in reasons


def test_rollback_without_a_former_version_brings_back_the_base(
    noria: Noria, add_adapter: Callable[..., AdapterRow]
) -> None:
    adapter = add_adapter("support-v1")
    noria("promote", adapter.id, "--override", "test")
    back = noria("rollback", str(adapter.endpoint))
    assert back.returncode == 0, back.stderr
    assert "the base model serves" in back.stdout


def test_adapters_are_listed_for_people_and_for_scripts(
    noria: Noria, add_adapter: Callable[..., AdapterRow]
) -> None:
    adapter = add_adapter("support-v1")
    assert adapter.id in noria("adapters", "list").stdout
    assert [row["id"] for row in json.loads(noria("adapters", "list", "--json").stdout)] == [adapter.id]


def test_a_freeze_of_nothing_names_what_is_missing(
    noria: Noria, add_adapter: Callable[..., AdapterRow]
) -> None:
    endpoint = str(add_adapter("support-v1").endpoint)
    empty = noria("dataset", "freeze", endpoint)
    assert empty.returncode == 1
    assert "no rows are left" in empty.stderr
    assert "consent 0" in empty.stderr
    assert empty.stderr.count("\n") == 1


def test_training_without_a_snapshot_names_the_command_for_one(
    noria: Noria, add_adapter: Callable[..., AdapterRow]
) -> None:
    endpoint = str(add_adapter("support-v1").endpoint)
    refused = noria("train", endpoint, "--as", "support-v2")
    assert refused.returncode == 1
    assert f"noria dataset freeze {endpoint}" in refused.stderr


def test_consent_is_recorded_and_withdrawn(noria: Noria) -> None:
    assert "granted: default (all users)" in noria("consent", "grant").stdout
    assert "withdrawn: default ana" in noria("consent", "withdraw", "--user", "ana").stdout


def test_a_key_is_shown_once_and_can_be_revoked_once(noria: Noria, db: Database) -> None:
    made = noria("key", "create").stdout.strip()
    assert made.startswith("nk-")
    assert list(keys.active(db).values()) == ["default"]
    assert noria("key", "revoke", made).returncode == 0
    assert noria("key", "revoke", made).returncode == 1
    assert keys.active(db) == {}


def test_an_evaluation_without_an_instance_says_how_to_start_one(noria: Noria) -> None:
    refused = noria("evaluate", "smollm2-135m")
    assert refused.returncode == 1
    assert "noria up" in refused.stderr


def test_the_database_is_reached_by_psql(noria: Noria, url: str) -> None:
    assert noria("db", "url").stdout == url + "\n"
    answer = noria("db", "psql", "-c", "SELECT count(*) FROM serve.tenant", "-At")
    assert (answer.returncode, answer.stdout) == (0, "1\n")
    assert noria("db", "psql", "-c", "SELECT nonsense").returncode != 0


def test_migrate_tells_the_version(noria: Noria) -> None:
    assert noria("db", "migrate").stdout.startswith("schema: ")
