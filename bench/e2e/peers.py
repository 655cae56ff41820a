#!/usr/bin/env python3
"""Times fine-tuning steps of Meshwright and of its peers in turns.

    ./dev bench peers [--dtype bf16] [--preset qwen3-0.6b --rows 1 --length 1024] [--accumulate 4]
        [--rounds 4] [--steps 3] [--start-rounds 6] [--engines meshwright,jax,torch,torch-compile]

All train the same architecture with random weights on the same number of full rows: float32
weights, AdamW. Peers are plain JAX (bench/peers/jax_step.py) and PyTorch with transformers
(bench/peers/torch_step.py), eager and compiled. A round is one process of each, in an order that
turns, so that other work on the machine falls on all. All are measured from outside and alike: a
step is the time from the first line of output to the last one, over the steps between, in
wall-clock seconds and in CPU seconds of the process (all threads). The first step of a process is
a warm-up.

A start is the time from the start of a process to the call of its first step: weights are in
memory, and programs that are compiled ahead are compiled. Each process reports its own; it is then
killed. A round of starts is one of each with an empty cache of compiled programs and one of each
with a filled one. PyTorch compiles in its first step: see its first step instead.

Result: per engine the median step; the median over the rounds of the ratio of ours to a peer's,
with a 95 % bootstrap interval of four rounds or more; peak resident memory; from process start to
the first finished step with an empty and with a filled cache of compiled programs; the starts. JSON
and a Markdown table in --out. CPU seconds are the number to trust on a machine that others use too;
wall-clock seconds need a quiet one, and the table says how loaded it was.

Peers are installed once, pinned, in virtual environments below the cache folder ($MW_CACHE_DIR,
else $XDG_CACHE_HOME/meshwright, else ~/.cache/meshwright). Python 3.11, standard library only.
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
PACKAGES = {"jax": ["jax==0.10.2", "jaxlib==0.10.2"], "torch": ["torch==2.15.0", "transformers==5.24.0"]}
ENGINES = ["meshwright", "jax", "torch", "torch-compile"]
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
    """How to start one of them; `cache` is its folder of compiled programs."""

    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder
        kind = name.split("-")[0]
        self.python = None
        if kind != "meshwright":
            given = {"jax": options.jax_python, "torch": options.torch_python}[kind]
            self.python = given or python_with(PACKAGES[kind])
        self.data = folder / "rows.jsonl"
        self.count = 0

    def command(self, num_steps, cache):
        o = self.options
        # It slows numpy where somebody has set it.
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        shape = ["--preset", o.preset, "--rows", o.rows, "--length", o.length, "--accumulate",
                 o.accumulate, "--dtype", o.dtype, "--steps", num_steps]
        if self.name == "jax":
            command = [self.python, ROOT / "bench/peers/jax_step.py", *shape,
                       "--compilation-cache", cache]
        elif self.python:
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
            command = [self.python, ROOT / "bench/peers/torch_step.py", *shape]
            command += ["--compile"] if self.name == "torch-compile" else []
        else:
            environment["MW_CACHE_DIR"] = str(cache)
            environment.setdefault("MW_PLUGIN_PATH", str(ROOT / ".deps"))
            out = self.folder / f"run-{self.count}"
            self.count += 1
            command = [o.meshwright, "sft", "--model", f"random:{o.preset}", "--data", self.data,
                       "--out", out, "--json", f"steps={num_steps}",
                       f"batch_size={o.rows}", f"max_target_length={o.length}",
                       f"gradient_accumulation_steps={o.accumulate}", f"dtype={o.dtype}",
                       "learning_rate=1e-4", "lr_schedule=constant", "enable_checkpointing=false",
                       "tensorboard=false", *o.settings]
        return [str(word) for word in command], environment

    def run(self, num_steps, cache):
        return run_process(*self.command(num_steps, cache), num_steps)

    def start(self, cache):
        return run_start(*self.command(1, cache))


def turned(names, i):
    """The order of round i: in as many rounds as there are names each is once at each place; the
    next as many rounds go backwards."""
    at = i % len(names)
    order = names[at:] + names[:at]
    return order if i // len(names) % 2 == 0 else order[::-1]


def measure_starts(runners, caches, num_rounds, folder):
    """{"cold": […], "warm": […]}: for each round {engine: {start_s, start_cpu_s}}."""
    starts = {"cold": [], "warm": []}
    names = list(runners)
    for i in range(num_rounds):
        for kind, rounds in starts.items():
            found = {}
            for name in turned(names, i):
                cache = caches[name]
                if kind == "cold":
                    cache = folder / f"cold-{i}-{name}"
                found[name] = runners[name].start(cache)
                if kind == "cold":
                    shutil.rmtree(cache, ignore_errors=True)
            rounds.append(found)
            print(f"{kind} start {i + 1}: " + ", ".join(
                f"{name} {run['start_s']:.2f} s, {run['start_cpu_s']:.2f} CPU s"
                for name, run in found.items()), file=sys.stderr)
    return starts


def bootstrap_interval(values, samples=10000):
    """95 % percentile interval of the median."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(samples))
    return medians[int(0.025 * samples)], medians[int(0.975 * samples) - 1]


def described(ratios):
    """Their median, and its interval where they are enough to say something about their spread."""
    if not ratios:
        return ""
    text = f"{statistics.median(ratios):.3f}"
    if len(ratios) < 4:
        return text
    low, high = bootstrap_interval(ratios)
    return f"{text} ({low:.3f} to {high:.3f})"


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.processor())
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo")
                  if line.startswith("MemTotal"))
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(memory / 2**20, 1), "system": platform.platform()}


def summarize(rounds, engines):
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
    for name in engines:
        if name == "meshwright" or "meshwright" not in engines:
            continue
        for key in ("step_s", "step_cpu_s"):
            summary[name][f"{key}_ratios"] = [r["meshwright"][key] / r[name][key] for r in rounds]
    return summary


def markdown(result):
    summary, cold, engines = result["summary"], result["cold"], result["engines"]

    def ratio(name, key):
        return described(summary[name].get(f"{key}_ratios", []))

    def start(name, kind, key):
        rounds = result["starts"][kind]
        return f"{statistics.median(r[name][key] for r in rounds):.2f}" if rounds else ""

    def start_ratio(name, kind, key):
        rounds = result["starts"][kind]
        if name == "meshwright" or "meshwright" not in engines:
            return ""
        return described([r["meshwright"][key] / r[name][key] for r in rounds])

    lines = []
    if summary:
        lines += ["| | s a step | ours / its | CPU s a step | ours / its | peak resident GB | "
                  "start to end of first step: cold, s | warm, s |",
                  "|---|---:|---:|---:|---:|---:|---:|---:|"]
        for name in engines:
            run = summary[name]
            lines.append(
                f"| {name} | {run['step_s']:.2f} | {ratio(name, 'step_s')} | "
                f"{run['step_cpu_s']:.2f} | {ratio(name, 'step_cpu_s')} | "
                f"{run['peak_rss_bytes'] / 1e9:.2f} | {cold[name]['first_s']:.1f} | "
                f"{run['warm_first_s']:.1f} |")
    if result["start_rounds"]:
        lines += ["", "| start | cold cache, s | ours / its | CPU s | ours / its | "
                  "warm cache, s | ours / its | CPU s | ours / its |",
                  "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
        for name in engines:
            lines.append(f"| {name} | " + " | ".join(
                cell(name, kind, key) for kind in ("cold", "warm")
                for key in ("start_s", "start_cpu_s") for cell in (start, start_ratio)) + " |")
    m = result["machine"]
    lines += ["", f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; {result['rounds']} rounds of "
              f"{result['steps']} steps after a warm-up, {result['start_rounds']} of starts; {result['what']}; load average "
              f"{result['load_before'][0]:.1f} before and {result['load_after'][0]:.1f} after; "
              f"revision {result['revision']}, {', '.join(result['versions'])}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshwright", default=ROOT / "build/release/meshwright")
    parser.add_argument("--preset", default="smollm2-135m", help="of the families llama, qwen3")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="of the computation")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of each process")
    parser.add_argument("--start-rounds", type=int, default=6, help="0: no starts; with --rounds 0: nothing else")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--jax-python", help="an interpreter that has jax already")
    parser.add_argument("--torch-python", help="one that has torch and transformers already")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument("settings", nargs="*", help="key=value for meshwright sft")
    options = parser.parse_args()
    if options.rounds < 0 or options.start_rounds < 0 or options.steps < 1:
        parser.error("--steps must be positive, and the numbers of rounds not negative")
    engines = options.engines.split(",")
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"no engine {', '.join(unknown)}; there are {', '.join(ENGINES)}")
    if "meshwright" in engines and not pathlib.Path(options.meshwright).exists():
        parser.error(f"{options.meshwright} is missing: run ./dev build")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="peers."))
    try:
        write_rows(folder / "rows.jsonl", options.rows * options.accumulate * (options.steps + 2),
                   options.length,
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
            rounds.append({name: runners[name].run(options.steps + 1, caches[name])
                           for name in turned(engines, i)})
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
        "engines": engines, "machine": machine(), "revision": revision,
        "versions": [p for kind in PACKAGES for p in PACKAGES[kind]
                     if any(name.split("-")[0] == kind for name in engines)],
        "what": f"{options.preset}, {options.accumulate} x {options.rows} rows of {options.length} tokens, {options.dtype}"
                + (", " + " ".join(options.settings) if options.settings else ""),
        "rounds": options.rounds, "steps": options.steps,
        "start_rounds": options.start_rounds, "starts": starts,
        "load_before": load_before, "load_after": os.getloadavg(),
        "cold": cold, "summary": summarize(rounds, engines), "runs": rounds}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    table = markdown(result)
    (options.out / "peers.md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
