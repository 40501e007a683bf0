"""Model folders from the Hugging Face hub: only what serving reads, pinned to the commit they came from.

Knows no settings. A download that is cut off goes on where it was; one that was given up goes on
with the files it lacks. The folder appears when it is whole.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.modelspec import read_spec
from noria.errors import ModelSourceError

_CONFIGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors")
_MAIN = "main"
_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_RECORD = "noria_source.json"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the hub; `revision` is a branch, a tag or a commit, None for the main branch."""

    repo: str
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From `org/repo` or `org/repo@revision`; None for what is written otherwise."""
        found = _ID.fullmatch(text)
        return cls(found["repo"], found["revision"]) if found else None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def fetch(
    source: HubSource,
    folder: Path,
    report: Callable[[str], None],
    endpoint: str | None = None,
    *,
    check: Callable[[Path], object] = read_spec,
) -> Path:
    """Bring `source` into `folder` and return it; one that holds it already is used without a network.

    endpoint: another hub than the one that HF_ENDPOINT names. check: reads a folder that has no weights yet.
    Raises ModelSourceError: no network, no such repository or revision, terms not accepted, no safetensors, a
    folder of another source; UnsupportedModel, by `check`, before the weights are fetched.
    """
    if folder.exists():
        _expect_same(source, folder)
        return folder
    with _explained(source):
        commit = _commit(source, endpoint)
        report(f"fetching {source} at {commit[:12]}")
        partial = folder.parent / f".{folder.name}.{commit[:12]}"
        _download(source, commit, partial, _CONFIGS, endpoint)
        check(partial)
        _download(source, commit, partial, _WEIGHTS, endpoint)
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    record = {"repo": source.repo, "revision": source.revision, "commit": commit}
    (partial / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    try:
        partial.rename(folder)
    except OSError:
        _expect_same(source, folder)  # another process was first
    return folder


def names_of(folder: Path) -> tuple[str, ...]:
    """By which an adapter may call a model that was fetched: its repository, also with each known revision.

    Empty for any other folder.
    """
    if not (path := folder / _RECORD).is_file():
        return ()
    record = json.loads(path.read_text(encoding="utf-8"))
    revisions = dict.fromkeys((record["revision"] or _MAIN, record["commit"]))
    return (record["repo"], *(f"{record['repo']}@{revision}" for revision in revisions))


def _commit(source: HubSource, endpoint: str | None) -> str:
    """The commit that the revision names now, once its files can be served."""
    from huggingface_hub import HfApi

    info = HfApi(endpoint=endpoint).model_info(source.repo, revision=source.revision)
    names = {sibling.rfilename for sibling in info.siblings or ()}
    if not names & {"model.safetensors", "model.safetensors.index.json"}:
        others = sorted({Path(name).suffix for name in names if name.endswith((".bin", ".gguf", ".pth"))})
        met = f"only {', '.join(others)} weights" if others else "no weights"
        raise ModelSourceError(f"{source} holds {met}; safetensors (model.safetensors) are needed")
    if missing := [name for name in ("config.json", "tokenizer.json") if name not in names]:
        raise ModelSourceError(f"{source} lacks {' and '.join(missing)}")
    return str(info.sha)


def _download(
    source: HubSource, commit: str, into: Path, names: tuple[str, ...], endpoint: str | None
) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(
        source.repo, revision=commit, local_dir=into, allow_patterns=list(names), endpoint=endpoint
    )


@contextmanager
def _explained(source: HubSource) -> Iterator[None]:
    """The hub's errors in one line each."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelSourceError(
            f"{source} is gated: accept its terms on the hub, then set HF_TOKEN to a token of that account"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelSourceError(
            f"{source.repo} is no folder here, and the hub shows no such repository to this user"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelSourceError(f"{source.repo} has no revision {source.revision}") from error
    except errors.OfflineModeIsEnabled as error:
        raise ModelSourceError(f"{source} is not here yet, and HF_HUB_OFFLINE forbids to fetch it") from error
    except (errors.HTTPError, errors.LocalEntryNotFoundError) as error:  # type: ignore[attr-defined]
        raise ModelSourceError(f"{source} cannot be fetched from the hub: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _expect_same(source: HubSource, folder: Path) -> None:
    """Raises ModelSourceError where `folder` was not fetched from `source`."""
    record: dict[str, Any] = {}
    if (path := folder / _RECORD).is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
    found = f"{record.get('repo', 'another source')}@{record.get('revision') or _MAIN}"
    same = record.get("repo") == source.repo
    if not same or source.revision not in (record.get("revision"), record.get("commit")):
        raise ModelSourceError(f"{folder} holds {found}, not {source}; remove it, or choose another name")
