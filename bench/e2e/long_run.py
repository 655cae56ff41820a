#!/usr/bin/env python3
"""Whether a long run stays as it began: memory, and the size and the time of its checkpoints.

    ./dev bench long_run [--model random:tiny-llama] [--steps 2000] [--period 100] [--set key=value]…

A `meshwright sft` on random rows with a checkpoint every --period updates. Told of each quarter of
the run: resident memory at its end, and the median of a step's time, of how long a checkpoint held
up training, of how long it took to be written, and of its size.

Result: a Markdown table on stdout. Python 3.11, standard library only.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = {
    "step, ms": ("perf/step_time_seconds", 1e3), "blocked, ms": ("checkpoint/blocked_seconds", 1e3),
    "saved in, ms": ("checkpoint/save_seconds", 1e3), "bytes": ("checkpoint/bytes", 1),
}


def median(records, key, scale):
    values = [record[key] * scale for record in records if key in record]
    return f"{statistics.median(values):,.10g}" if scale == 1 else f"{statistics.median(values):.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshwright", default=str(ROOT / "build/release/meshwright"))
    parser.add_argument("--model", default="random:tiny-llama")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--period", type=int, default=100)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    if options.steps < 8 * options.period:
        parser.error("a quarter of the run must hold two checkpoints: --steps is too small")
    environment = dict(os.environ)
    environment.setdefault("MW_PLUGIN_PATH", str(ROOT / ".deps"))
    with tempfile.TemporaryDirectory(prefix="long_run.") as name:
        folder = pathlib.Path(name)
        ids = random.Random(1)
        (folder / "rows.jsonl").write_text("".join(
            json.dumps({"input_ids": [ids.randrange(3, 131) for _ in range(options.length)]}) + "\n"
            for _ in range(97)))
        subprocess.run(
            [options.meshwright, "sft", "--model", options.model, "--data",
             str(folder / "rows.jsonl"), "--out", str(folder / "run"), "--quiet",
             f"steps={options.steps}", f"checkpoint_period={options.period}", "batch_size=2",
             f"max_target_length={options.length}", *options.set], env=environment, check=True)
        lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    print(f"| steps | resident, MiB | {' | '.join(COLUMNS)} |")
    print("|---|---:|" + "---:|" * len(COLUMNS))
    for quarter in range(4):
        part = records[quarter * options.steps // 4:(quarter + 1) * options.steps // 4]
        print(f"| {part[0]['step']} to {part[-1]['step']} "
              f"| {part[-1]['memory/live_bytes'] / 2**20:.1f} | "
              + " | ".join(median(part, *column) for column in COLUMNS.values()) + " |")


if __name__ == "__main__":
    sys.exit(main())
