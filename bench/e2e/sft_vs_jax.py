#!/usr/bin/env python3
"""Times fine-tuning steps of Meshwright and of plain JAX in turns.

    ./dev bench sft_vs_jax [--rounds 4] [--steps 3] [--start-rounds 6] [--only jax]

Both train the same architecture with random weights on the same number of full rows,
float32, AdamW. A round is one process of each, in an order that alternates, so that
other work on the machine falls on both. Both are measured from outside and alike: a
step is the time from the first line of output to the last one, over the steps between,
in wall-clock seconds and in CPU seconds of the process (all threads). The first step of
a process is a warm-up.

A start is the time from the start of a process to the call of its first step: weights
and optimizer state are in memory, the programs are compiled. Each process reports its
own; it is then killed. A round of starts is one of each with an empty cache of compiled
programs and one of each with a filled one.

Result: per engine the median step; for the ratio meshwright / jax the median over the
rounds and a 95 % bootstrap interval; peak resident memory; from process start to the
first finished step with an empty and with a filled cache of compiled programs; the starts,
with the median ratio. JSON and a Markdown table in --out. CPU seconds are the number to trust on a machine that others
use too; wall-clock seconds need a quiet one, and the table says how loaded it was.

JAX is installed once, pinned, in a virtual environment below the cache folder
($MW_CACHE_DIR, else $XDG_CACHE_HOME/meshwright, else ~/.cache/meshwright). Python 3.11,
standard library only.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from peer_python import python_with

ROOT = pathlib.Path(__file__).resolve().parents[2]
JAX_VERSION = "0.10.2"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def write_rows(path, count, length, vocab_size):
    """Rows of `length` random token ids; all but the last of each is a target."""
    ids = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            row = [ids.randrange(vocab_size) for _ in range(length)]
            file.write(json.dumps({"input_ids": row}) + "\n")


def vocab_size_of(preset):
    for line in (ROOT / f"configs/models/{preset}.yaml").read_text().splitlines():
        if line.startswith("vocab_size:"):
            return int(line.split(":")[1])
    raise SystemExit(f"error: configs/models/{preset}.yaml has no vocab_size")


class Probe:
    """CPU time and peak memory of a running process, from /proc."""

    def __init__(self, pid):
        self.folder = pathlib.Path(f"/proc/{pid}")

    def cpu_seconds(self):
        fields = (self.folder / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def peak_rss_bytes(self):
        for line in (self.folder / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0


def run_process(command, environment, num_steps):
    """Runs it and returns what passed between its lines of steps.

    {first_s, first_cpu_s: from the start to the first step; step_s, step_cpu_s: mean of
    the further steps; peak_rss_bytes; records: what it printed}
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   env=environment, cwd=ROOT)
        probe = Probe(process.pid)
        marks, records, peak = [], [], 0
        for line in process.stdout:
            record = json.loads(line)
            records.append(record)
            if "step" in record and len(marks) < num_steps:
                marks.append((time.perf_counter() - start, probe.cpu_seconds()))
                peak = max(peak, probe.peak_rss_bytes())
        process.wait()
        if process.returncode or len(marks) < num_steps:
            errors.seek(0)
            raise SystemExit(f"error: {' '.join(map(str, command))}: exit status "
                             f"{process.returncode}, {len(marks)} of {num_steps} steps\n{errors.read()}")
    # Metrics may come a step late and in pairs: only the ends are sure.
    between = max(num_steps - 1, 1)
    return {"first_s": marks[0][0], "first_cpu_s": marks[0][1],
            "step_s": (marks[-1][0] - marks[0][0]) / between,
            "step_cpu_s": (marks[-1][1] - marks[0][1]) / between,
            "peak_rss_bytes": peak, "records": records}


START = re.compile(r"ready after ([0-9.]+) s, of which ([0-9.]+) s on cores")


def run_start(command, environment):
    """{start_s, start_cpu_s} as the process reports them; then it is killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=environment, cwd=ROOT)
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith('{"start_seconds"'):
                record = json.loads(line)
                return {"start_s": record["start_seconds"],
                        "start_cpu_s": record["start_cpu_seconds"]}
            if match := START.search(line):
                return {"start_s": float(match[1]), "start_cpu_s": float(match[2])}
    finally:
        process.kill()
        process.wait()
    raise SystemExit(f"error: {' '.join(command)} reported no start:\n{''.join(said)}")


class Engine:
    """How to start one of the two; `cache` is its folder of compiled programs."""

    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder
        jax = [f"jax=={JAX_VERSION}", f"jaxlib=={JAX_VERSION}"]
        self.python = python_with(jax) if name == "jax" else None
        self.data = folder / "rows.jsonl"
        self.count = 0

    def command(self, num_steps, cache):
        o = self.options
        environment = dict(os.environ)
        if self.name == "jax":
            command = [self.python, ROOT / "bench/e2e/jax_step.py", "--preset", o.preset, "--rows",
                       str(o.rows), "--length", str(o.length), "--steps", str(num_steps),
                       "--compilation-cache", cache]
        else:
            environment["MW_CACHE_DIR"] = str(cache)
            environment.setdefault("MW_PLUGIN_PATH", str(ROOT / ".deps"))
            out = self.folder / f"run-{self.count}"
            self.count += 1
            command = [o.meshwright, "sft", "--model", f"random:{o.preset}", "--data", self.data,
                       "--out", out, "--json", f"steps={num_steps}",
                       f"batch_size={o.rows}", f"max_target_length={o.length}",
                       "learning_rate=1e-4", "lr_schedule=constant", "enable_checkpointing=false",
                       "tensorboard=false", *o.settings]
        return [str(word) for word in command], environment

    def run(self, num_steps, cache):
        return run_process(*self.command(num_steps, cache), num_steps)

    def start(self, cache):
        return run_start(*self.command(1, cache))


def measure_starts(runners, caches, num_rounds, folder):
    """{"cold": […], "warm": […]}: for each round {engine: {start_s, start_cpu_s}}."""
    starts = {"cold": [], "warm": []}
    names = list(runners)
    for i in range(num_rounds):
        for kind, rounds in starts.items():
            found = {}
            for name in names if i % 2 == 0 else names[::-1]:
                cache = caches[name]
                if kind == "cold":
                    cache = folder / f"cold-{i}-{name}"
                found[name] = runners[name].start(cache)
                if kind == "cold":
                    shutil.rmtree(cache)
            rounds.append(found)
            print(f"{kind} start {i + 1}: " + ", ".join(
                f"{name} {run['start_s']:.2f} s, {run['start_cpu_s']:.2f} CPU s"
                for name, run in found.items()), file=sys.stderr)
    return starts


def bootstrap_interval(values, rng, samples=10000):
    """95 % percentile interval of the median."""
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(samples))
    return medians[int(0.025 * samples)], medians[int(0.975 * samples) - 1]


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.processor())
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo")
                  if line.startswith("MemTotal"))
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(memory / 2**20, 1), "system": platform.platform()}


def summarize(rounds, engines):
    rng = random.Random(0)
    summary = {}
    if not rounds:
        return summary
    for name in engines:
        runs = [r[name] for r in rounds]
        summary[name] = {
            "step_s": statistics.median(run["step_s"] for run in runs),
            "step_cpu_s": statistics.median(run["step_cpu_s"] for run in runs),
            "peak_rss_bytes": statistics.median(run["peak_rss_bytes"] for run in runs),
            "warm_first_s": statistics.median(run["first_s"] for run in runs),
            "warm_first_cpu_s": statistics.median(run["first_cpu_s"] for run in runs),
        }
    if len(engines) == 2:
        summary["ratio"] = {}
        for key in ("step_s", "step_cpu_s"):
            ratios = [r["meshwright"][key] / r["jax"][key] for r in rounds]
            low, high = bootstrap_interval(ratios, rng)
            summary["ratio"][key] = {"median": statistics.median(ratios), "low": low, "high": high,
                                     "rounds": ratios}
    return summary


def start_rows(result):
    """Lines of the table for the starts."""
    lines, rng = [], random.Random(1)
    for kind, rounds in result["starts"].items():
        for key, what in (("start_s", "s"), ("start_cpu_s", "CPU seconds")):
            if not rounds:
                continue
            cells = [f"{statistics.median(r[e][key] for r in rounds):.2f}"
                     for e in result["engines"]]
            if len(cells) == 2:
                ratios = [r["meshwright"][key] / r["jax"][key] for r in rounds]
                low, high = bootstrap_interval(ratios, rng)
                cells.append(f"{statistics.median(ratios):.3f}"
                             + (f" ({low:.3f} to {high:.3f})" if len(rounds) >= 4 else ""))
            label = (f"start, {kind} cache, s" if what == "s" else "the same, CPU seconds")
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def markdown(result):
    summary, cold, engines = result["summary"], result["cold"], result["engines"]
    rows = [
        ("CPU seconds a step", lambda e: summary[e]["step_cpu_s"], "{:.2f}", "step_cpu_s"),
        ("seconds a step", lambda e: summary[e]["step_s"], "{:.2f}", "step_s"),
        ("peak resident memory, GB", lambda e: summary[e]["peak_rss_bytes"] / 1e9, "{:.2f}", None),
        ("start to the end of the first step, cold cache, s", lambda e: cold[e]["first_s"], "{:.1f}", None),
        ("the same, CPU seconds", lambda e: cold[e]["first_cpu_s"], "{:.1f}", None),
        ("start to the end of the first step, warm cache, s", lambda e: summary[e]["warm_first_s"], "{:.1f}", None),
        ("the same, CPU seconds", lambda e: summary[e]["warm_first_cpu_s"], "{:.1f}", None),
    ]
    both = len(engines) == 2
    lines = ["| | " + " | ".join(engines) + (" | ratio |" if both else " |"),
             "|---|" + "---:|" * (len(engines) + both)]
    for label, value, form, paired in rows if summary else []:
        cells = [form.format(value(e)) for e in engines]
        if both and paired:
            r = summary["ratio"][paired]
            # Fewer rounds than this say nothing about their spread.
            interval = f" ({r['low']:.3f} to {r['high']:.3f})" if result["rounds"] >= 4 else ""
            cells.append(f"{r['median']:.3f}{interval}")
        elif both:
            cells.append(f"{value('meshwright') / value('jax'):.3f}")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    lines += start_rows(result)
    m = result["machine"]
    lines += ["", f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; {result['rounds']} rounds of "
              f"{result['steps']} steps after a warm-up, {result['start_rounds']} of starts; {result['what']}; load average "
              f"{result['load_before'][0]:.1f} before and {result['load_after'][0]:.1f} after; "
              f"revision {result['revision']}, jax {JAX_VERSION}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshwright", default=ROOT / "build/release/meshwright")
    parser.add_argument("--preset", default="smollm2-135m", help="of the llama family")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of each process")
    parser.add_argument("--start-rounds", type=int, default=6, help="0: no starts; with --rounds 0: nothing else")
    parser.add_argument("--only", choices=["jax", "meshwright"])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument("settings", nargs="*", help="key=value for meshwright sft")
    options = parser.parse_args()
    if options.rounds < 0 or options.start_rounds < 0 or options.steps < 1:
        parser.error("--steps must be positive, and the numbers of rounds not negative")
    engines = [options.only] if options.only else ["meshwright", "jax"]
    if "meshwright" in engines and not pathlib.Path(options.meshwright).exists():
        parser.error(f"{options.meshwright} is missing: run ./dev build")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sft_vs_jax."))
    try:
        write_rows(folder / "rows.jsonl", options.rows * (options.steps + 2), options.length,
                   vocab_size_of(options.preset))
        runners = {name: Engine(name, options, folder) for name in engines}
        caches = {name: folder / f"cache-{name}" for name in engines}
        load_before = os.getloadavg()
        # The first run of each fills its cache of compiled programs.
        if options.rounds:
            cold = {name: runners[name].run(1, caches[name]) for name in engines}
        else:
            cold = {name: runners[name].start(caches[name]) for name in engines}
        rounds = []
        for i in range(options.rounds):
            order = engines if i % 2 == 0 else engines[::-1]
            rounds.append({name: runners[name].run(options.steps + 1, caches[name])
                           for name in order})
            print(f"round {i + 1}: " + ", ".join(
                f"{name} {rounds[-1][name]['step_s']:.2f} s, "
                f"{rounds[-1][name]['step_cpu_s']:.2f} CPU s"
                for name in engines), file=sys.stderr)
        starts = measure_starts(runners, caches, options.start_rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    revision = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                              capture_output=True, text=True).stdout.strip()
    result = {
        "engines": engines, "machine": machine(), "revision": revision, "jax": JAX_VERSION,
        "what": f"{options.preset}, {options.rows} rows of {options.length} tokens, float32"
                + (", " + " ".join(options.settings) if options.settings else ""),
        "rounds": options.rounds, "steps": options.steps,
        "start_rounds": options.start_rounds, "starts": starts,
        "load_before": load_before, "load_after": os.getloadavg(),
        "cold": cold, "summary": summarize(rounds, engines), "runs": rounds}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sft_vs_jax.json").write_text(json.dumps(result, indent=1) + "\n")
    table = markdown(result)
    (options.out / "sft_vs_jax.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
