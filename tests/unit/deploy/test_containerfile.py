"""The image: pinned bases, an unprivileged user, a health check, no secrets, every package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
SECRET = re.compile(r"key|token|password|secret|credential", re.IGNORECASE)


def instructions() -> list[tuple[str, str]]:
    """Every instruction as (word, rest), comments dropped and continued lines joined."""
    text = (ROOT / "deploy/Containerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    found = []
    for line in joined.splitlines():
        word, _, rest = line.partition(" ")
        found.append((word, rest.strip()))
    return found


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def test_only_known_instructions() -> None:
    known = {"FROM", "RUN", "ARG", "ENV", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE"}
    known |= {"HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions()} <= known


def test_every_base_is_pinned_to_a_patch_release() -> None:
    bases = [rest.split(" ")[0] for word, rest in instructions() if word == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z0-9-]+", bases[0])


def test_the_last_stage_runs_as_an_unprivileged_user() -> None:
    users = [rest for word, rest in stages()[-1] if word == "USER"]
    assert users == ["10001:10001"]
    words = [word for word, _ in stages()[-1]]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in {"RUN", "COPY"})


def test_no_secret_is_baked_in() -> None:
    for word, rest in instructions():
        if word in {"ENV", "ARG"}:
            assert not SECRET.search(rest), rest
        if word == "COPY":
            assert not re.search(r"(^|\s)\.env|\.pem|id_rsa", rest), rest


def test_health_is_checked_at_the_port_that_is_exposed() -> None:
    last = dict(stages()[-1])
    assert f"http://127.0.0.1:{last['EXPOSE']}/health" in last["HEALTHCHECK"]


def test_every_package_of_the_project_is_copied() -> None:
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    packages = {pattern.rstrip("*") for pattern in find["include"]}
    copied = {rest.split(" ")[-1] for word, rest in stages()[0] if word == "COPY"}
    assert packages <= copied


def test_the_project_is_installed_with_the_tested_versions() -> None:
    install = " ".join(rest for word, rest in stages()[0] if word == "RUN")
    assert "pip install -c constraints.txt ." in install
