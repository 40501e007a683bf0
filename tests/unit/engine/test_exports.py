"""The public surface of the package."""

import subprocess
import sys

import pytest

import engine


def test_every_public_name_resolves_and_the_list_is_complete() -> None:
    assert set(engine.__all__) == set(engine._HOME)
    assert all(getattr(engine, name) is not None for name in engine.__all__)
    assert dir(engine) == sorted(engine.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = engine.nothing


@pytest.mark.parametrize(
    "statement",
    [
        "import engine",
        "from engine import EngineConfig, Request, SamplingParams, TokenEvent, EngineError",
        "from engine import Tokenizer, Detokenizer, read_spec",
        "from engine import Engine, AsyncEngine; import engine.fake_runner",
    ],
)
def test_what_decides_needs_no_torch(statement: str) -> None:
    code = f"{statement}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
