"""`python -m bench [FOLDER]`: the measurements of one engine, one after the other."""

from __future__ import annotations

import subprocess
import sys

FOLDER = sys.argv[1] if len(sys.argv) > 1 else ".noria/models/smollm2-135m"

for measurement in ("decode", "waiting", "profile"):
    print(f"== {measurement}")
    subprocess.run([sys.executable, "-m", f"bench.{measurement}", "--model", FOLDER], check=True)
