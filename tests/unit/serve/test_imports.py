import subprocess
import sys


def test_a_gateway_process_never_loads_torch() -> None:
    code = "import serve.door, sys; print('torch' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"
