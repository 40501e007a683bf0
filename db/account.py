"""Under which account the embedded server runs, and the rights that account needs.

PostgreSQL refuses to run as root. A normal user runs it as himself. Root runs it as whoever already
owns the data folder, else as an account of its own, which must then be able to walk down to the
data folder and to the binaries.
"""

import logging
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from db.errors import EmbeddedServerError

log = logging.getLogger(__name__)

SERVER_USER = "pgserver"


class Switch(TypedDict, total=False):
    """Keywords for subprocess.run that change the account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The uid and gid of the server, and how a child process becomes them (nothing to switch: empty)."""

    uid: int
    gid: int
    switch: Switch


def account_for(data_dir: Path, binaries: Path) -> Account:
    """Choose the account for a data folder and give it the rights it lacks.

    Raises:
        EmbeddedServerError: the folder belongs to somebody else, or no account can be made.
    """
    owner = data_dir.stat().st_uid
    if os.geteuid() != 0:
        if owner != os.geteuid():
            raise EmbeddedServerError(
                f"{data_dir} belongs to uid {owner}, this process runs as uid {os.geteuid()}: "
                "run as the owner or change the owner"
            )
        return Account(os.geteuid(), os.getegid(), {})
    entry = _entry_of(owner) if owner != 0 else _server_entry()
    account = Account(
        entry.pw_uid,
        entry.pw_gid,
        {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []},
    )
    _own(data_dir, account)
    _open_way(data_dir)
    _open_way(binaries)
    _open_tree(binaries.parent)
    return account


def _entry_of(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return _server_entry()


def _server_entry() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        pass
    useradd = shutil.which("useradd") or "/usr/sbin/useradd"
    try:
        subprocess.run((useradd, "--system", SERVER_USER), check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedServerError(
            f"the database cannot run as root and the account {SERVER_USER!r} cannot be made with "
            f"{useradd}: {error}; make it by hand, or run as a normal user"
        ) from error
    return pwd.getpwnam(SERVER_USER)


def _own(data_dir: Path, account: Account) -> None:
    """Hand a folder that root holds to the account, whole: it may have been copied by root."""
    cluster = data_dir / "cluster"
    foreign = [path for path in (data_dir, cluster) if path.exists() and path.stat().st_uid != account.uid]
    if not foreign:
        return
    for folder, _, files in os.walk(data_dir):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _open_way(path: Path) -> None:
    """Let everybody walk through (not list) the folders above a path."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            log.warning("folder %s opened for walking through (mode +x): the database runs below it", folder)
            folder.chmod(mode | stat.S_IXOTH)


def _open_tree(folder: Path) -> None:
    """Let everybody read and run the binaries where a strict umask closed them at installation."""
    if folder.stat().st_mode & stat.S_IROTH and (folder / "bin" / "postgres").stat().st_mode & stat.S_IXOTH:
        return
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        runs = stat.S_IXOTH if mode & stat.S_IXUSR else 0
        path.chmod(mode | stat.S_IROTH | runs)
