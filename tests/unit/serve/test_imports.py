import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["serve.door", "serve.directory", "serve.replica", "noria.cluster"])
def test_a_process_without_an_engine_never_loads_torch(module: str) -> None:
    """Gateways, and whoever builds the app: it only names the class of the replicas."""
    code = f"import {module}, sys; print('torch' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"
