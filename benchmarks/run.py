"""All benchmarks in one go: a table of ratios beside their limits, and the same as JSON.

    python benchmarks/run.py                    all, at their small size: at most five minutes on two quiet cores
    python benchmarks/run.py --full             all, at the sizes of the paper
    python benchmarks/run.py engine fetch       some of them
    python benchmarks/run.py --out bench.json   where to write the results (default: bench.json)

Each benchmark is a script of its own and runs in a process of its own, one after the other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _measure import line, machine

FOLDER = Path(__file__).resolve().parent
ORDER = (
    "engine",
    "arithmetic",
    "growth",
    "fetch",
    "reference",
    "avalanche_peer",
    "buffers",
    "store",
    "images",
    "geo",
    "metrics",
    "checkpoints",
    "distributed",
    "pipeline_simulation",
    "report",
    "build",
)
FIGURES: dict[str, list[tuple[str, str, float | None, float | None]]] = {
    # place in the script's result (a.b for b within a), what it is, at most, at least
    "buffers": [
        (f"{name}.step_over_limit", f"sample and insert, {name} / its limit of time", 1.0, None)
        for name in ("fifo", "reservoir", "ring")
    ],
    "images": [("worst_ingest_over_bare", "ingest / bare decode, resize, encode", 1.2, None)],
    "store": [("jpeg_store_over_bare", "store / bare pread and decode, JPEG, a core", None, 0.9)],
    "geo": [
        ("labels_over_limit", "cell labels / 3 M a second on a core", None, 1.0),
        ("labels_over_library", "cell labels / S2 library, one point a call", None, 1.0),
    ],
    "metrics": [
        ("seconds_over_limit", "all metrics over the log / 30 s", 1.0, None),
        ("peak_over_limit", "memory of all metrics over the log / 4 GB", 1.0, None),
    ],
    "report": [
        ("seconds_over_limit", "report over the log / 60 s", 1.0, None),
        ("memory_over_limit", "memory of the report over the log / 2 GB", 1.0, None),
    ],
    "build": [("time_ratio", "build / polars scan, filter, write", 3.0, None)],
}
"""Which figures of the scripts that know no lines belong into the table."""


def last_json(text: str) -> dict[str, Any]:
    """The last JSON object a script printed."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict):
            found = value
        at = text.find("{", end)
    return found


def lines_of(name: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """A script's lines of the table."""
    if "lines" in result:
        return list(result["lines"])
    found = []
    for place, what, at_most, at_least in FIGURES.get(name, []):
        value: Any = result
        for key in place.split("."):
            value = value.get(key, {})
        if isinstance(value, int | float):
            found.append(line(what, float(value), at_most=at_most, at_least=at_least))
    return found


def run_script(name: str, size: str) -> dict[str, Any]:
    """One benchmark: its lines, everything it printed, and how long it took."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), size], capture_output=True, text=True, check=False
    )
    result = last_json(done.stdout)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "failed": done.stderr.strip().splitlines()[-1:] if done.returncode else [],
        "lines": lines_of(name, result),
        "result": result,
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as text, a line a ratio.

    >>> print(table({"geo": {"lines": [line("a / b", 1.5, at_most=2)], "failed": [], "seconds": 3.0}}))
    benchmark           value    limit      what
    geo                 1.5      <= 2       a / b
    """
    rows = [f"{'benchmark':<19} {'value':<8} {'limit':<10} what"]
    for name, result in results.items():
        for entry in result["lines"]:
            mark = "" if entry["kept"] else "   (missed)"
            rows.append(f"{name:<19} {entry['value']:<8.4g} {entry['limit']:<10} {entry['what']}{mark}")
        if result["failed"]:
            rows.append(f"{name:<19} failed: {result['failed'][0]}")
        elif not result["lines"]:
            reason = result["result"].get("details", {}).get("skipped", "see the JSON")
            rows.append(f"{name:<19} {reason}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    present = [name for name in ORDER if (FOLDER / f"{name}.py").exists()]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(present)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes (the default)")
    size.add_argument("--full", action="store_true", help="the sizes of the paper")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="file for the results")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in present]:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(present)}")
    results: dict[str, dict[str, Any]] = {}
    for name in args.names or present:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results[name] = run_script(name, "--full" if args.full else "--quick")
    print(table(results))
    document = {
        "size": "full" if args.full else "quick",
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "benchmarks": results,
    }
    args.out.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written to {args.out}")
    return 1 if any(result["failed"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
