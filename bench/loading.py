"""How long a model takes from its folder to its first token, and what memory the process then holds.

    python -m bench.loading --model FOLDER [--backend native] [--kv 1073741824] [--rounds 3]

Each round is a process of its own, and the file lies in the page cache: round 0, which may have to read the
disk, counts for nothing. Of the others the fastest counts; the processor's seconds stand beside the clock's.
Memory: resident; the peak has the file's own pages too, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

MB = 1 << 20
OTHERS_MB = 600
"""What a process may hold beside weights and KV pool."""


def once(folder: Path, backend: str, kv_bytes: int) -> dict[str, float]:
    """In this process, which has loaded nothing yet: seconds, and MB of memory."""
    started = time.perf_counter()
    import engine.backends  # noqa: F401  brings torch
    from engine import Engine, EngineConfig, Request, SamplingParams

    config = EngineConfig(model=folder, backend=backend, kv_bytes=kv_bytes)  # type: ignore[arg-type]
    imported, before, busy = time.perf_counter(), resident_mb("VmRSS"), time.process_time()
    built = Engine(config)
    loaded, busy = time.perf_counter(), time.process_time() - busy
    after = resident_mb("VmRSS")
    prompt, sampling = tuple(range(100, 612)), SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    built.add(Request("first", prompt, sampling))
    while not built.step():
        pass
    return {
        "import s": imported - started,
        "load s": loaded - imported,
        "load CPU s": busy,
        "first token s": time.perf_counter() - loaded,
        "before MB": before,
        "loaded MB": after,
        "used MB": resident_mb("VmRSS"),
        "peak MB": resident_mb("VmHWM"),
    }


def resident_mb(key: str) -> float:
    """A line of /proc/self/status in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.loading", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--backend", default="native")
    parser.add_argument("--kv", type=int, default=1 << 30, help="bytes of the KV pool")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", action="store_true", help="one round in this process, as JSON")
    args = parser.parse_args()
    if args.once:
        print(json.dumps(once(args.model, args.backend, args.kv)))
        return
    options = ("--model", args.model, "--backend", args.backend, "--kv", args.kv, "--once")
    command = [sys.executable, "-m", "bench.loading", *map(str, options)]
    rounds = []
    for number in range(args.rounds + 1):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rounds.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"round {number}:", ", ".join(f"{key} {value:.2f}" for key, value in rounds[-1].items()))
    weights = sum(path.stat().st_size for path in args.model.glob("*.safetensors"))
    best = {key: min(found[key] for found in rounds[1:]) for key in rounds[0]}
    print("fastest:", ", ".join(f"{key} {value:.2f}" for key, value in best.items()))
    print(f"weights {weights / MB:.0f} MB, {weights / 1e9 / best['load s']:.2f} GB/s")
    limit = weights / MB + args.kv / MB + OTHERS_MB
    print(f"resident at most {max(best['loaded MB'], best['used MB']):.0f} MB of {limit:.0f} MB")


if __name__ == "__main__":
    main()
