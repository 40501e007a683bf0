"""The embedded server: restarts, survives a kill, stays out of the way of others."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db.database import Database
from db.embedded import EmbeddedPostgres, psql_path
from db.errors import DatabaseAway, EmbeddedServerError


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="noria-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def own_server(folder: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(folder / "a folder" / "postgres", settings={"fsync": "off"})
    yield server
    server.stop()


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_a_used_folder_starts_again_with_its_rows(own_server: EmbeddedPostgres) -> None:
    url = own_server.start()
    assert own_server.running()
    run(url, "CREATE TABLE kept AS SELECT 42 AS x")
    own_server.stop()
    assert not own_server.running()
    assert own_server.start() == url
    assert run(url, "SELECT x FROM kept") == [(42,)]


def test_the_server_is_18_with_vectors_and_only_a_socket(own_server: EmbeddedPostgres) -> None:
    url = own_server.start()
    version = run(url, "SHOW server_version")[0][0]
    assert str(version).startswith("18.")
    run(url, "CREATE EXTENSION vector")
    assert run(url, "SHOW listen_addresses") == [("",)]
    assert stat.S_IMODE(own_server.socket_dir.stat().st_mode) == 0o700


def test_start_twice_and_stop_twice_do_nothing_the_second_time(own_server: EmbeddedPostgres) -> None:
    assert own_server.start() == EmbeddedPostgres(own_server.data_dir).start()
    own_server.stop()
    own_server.stop()


def test_a_killed_server_recovers_and_a_reused_pid_does_not_confuse(own_server: EmbeddedPostgres) -> None:
    url = own_server.start()
    run(url, "CREATE TABLE kept AS SELECT 1 AS x")
    note = own_server.cluster / "postmaster.pid"
    lines = note.read_text().split("\n")
    os.kill(int(lines[0]), signal.SIGKILL)
    note.write_text("\n".join([str(os.getpid()), *lines[1:]]))  # as if the pid were now ours
    assert not own_server.running()
    own_server.start()
    assert run(url, "SELECT x FROM kept") == [(1,)]


def test_two_instances_side_by_side(own_server: EmbeddedPostgres, folder: Path) -> None:
    other = EmbeddedPostgres(folder / "other", settings={"fsync": "off"})
    try:
        first, second = own_server.start(), other.start()
        run(first, "CREATE TABLE mine (x int)")
        assert first != second
        assert run(second, "SELECT to_regclass('mine')") == [(None,)]
        own_server.stop()
        assert run(second, "SELECT 1") == [(1,)]
    finally:
        other.stop()


def test_a_copy_of_a_running_folder_is_a_server_of_its_own(
    own_server: EmbeddedPostgres, folder: Path
) -> None:
    first = own_server.start()
    run(first, "CREATE TABLE kept AS SELECT 1 AS x")
    run(first, "CHECKPOINT")
    shutil.copytree(own_server.data_dir, folder / "copy")
    copy = EmbeddedPostgres(folder / "copy", settings={"fsync": "off"})
    try:
        assert not copy.running()
        assert run(copy.start(), "SELECT x FROM kept") == [(1,)]
        assert own_server.running()
    finally:
        copy.stop()


def test_the_pool_finds_a_server_that_went_and_came_back(own_server: EmbeddedPostgres) -> None:
    with Database(own_server.start(), timeout_s=1) as db:
        assert db.ping()
        own_server.stop()
        assert not db.ping()
        with pytest.raises(DatabaseAway), db.transaction():
            pass
        own_server.start()
        assert any(db.ping() for _ in range(10))


def test_a_normal_user_runs_it_as_himself(own_server: EmbeddedPostgres, folder: Path) -> None:
    own_server.start()
    home = folder / "home"
    home.mkdir()
    uid = 65534 if os.geteuid() == 0 else os.geteuid()
    os.chown(home, uid, -1)
    code = (
        "import os, sys, pathlib, psycopg; from db.embedded import EmbeddedPostgres\n"
        "uid = int(sys.argv[2])\n"
        "if os.geteuid() != uid: os.setgroups([]); os.setgid(uid); os.setuid(uid)\n"
        "server = EmbeddedPostgres(pathlib.Path(sys.argv[1]), settings={'fsync': 'off'})\n"
        "with psycopg.connect(server.start()) as c: assert c.execute('SELECT 1').fetchone() == (1,)\n"
        "server.stop(); assert not server.running()"
    )
    command = (sys.executable, "-c", code, str(home / "postgres"), str(uid))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (home / "postgres" / "cluster").stat().st_uid == uid


def test_an_interrupted_initialisation_is_begun_anew(own_server: EmbeddedPostgres) -> None:
    own_server.cluster.mkdir(parents=True)
    (own_server.cluster / "half").write_text("written")
    assert run(own_server.start(), "SELECT 1") == [(1,)]


def test_a_failing_start_shows_the_log(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "postgres", settings={"shared_buffers": "nonsense"})
    with pytest.raises(EmbeddedServerError, match="nonsense"):
        server.start()
    server.stop()
    assert not server.socket_dir.exists()


def test_the_server_outlives_the_process_that_started_it(own_server: EmbeddedPostgres) -> None:
    code = (
        "import sys, pathlib; from db.embedded import EmbeddedPostgres; "
        "EmbeddedPostgres(pathlib.Path(sys.argv[1])).start()"
    )
    subprocess.run((sys.executable, "-c", code, str(own_server.data_dir)), check=True)
    assert own_server.running()


def test_root_starts_a_server_below_a_closed_folder(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "deep" / "postgres", settings={"fsync": "off"})
    try:
        assert run(server.start(), "SELECT 1") == [(1,)]
        assert not closed.stat().st_mode & stat.S_IROTH
    finally:
        server.stop()


def test_psql_ships_with_the_server(own_server: EmbeddedPostgres) -> None:
    command = (str(psql_path()), own_server.start(), "-Atc", "SELECT 6 * 7")
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "42\n"


def test_a_folder_that_cannot_be_written_is_told_in_a_line(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(EmbeddedServerError, match="cannot be written"):
        EmbeddedPostgres(folder / "file" / "postgres").start()
