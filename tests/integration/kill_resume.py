#!/usr/bin/env python3
"""Kills a fine-tuning run again and again; it must end as if nothing had happened.

    tests/integration/kill_resume.py --meshwright build/release/meshwright [--kills 50] [--seed 0]

A tiny random model is trained with a checkpoint after every step. The process gets
SIGKILL at random moments: some while it starts, most somewhere between two lines of
metrics, where it computes, writes metrics or saves. After each kill the run must
continue from the newest whole checkpoint. The finished run must hold the same bytes of
weights and optimizer state, and the same logged losses, as one that nobody killed.

SIGINT, before the first step and in training, must end a run with status 0 and lose
nothing.

Broken on purpose, the same checks must fail: a flipped byte in the weights and a lost
step in the log are seen, and a damaged checkpoint is refused.

Python 3.11, standard library only.
"""

import argparse
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

from sft_runs import Failure, Runs, check, differences, losses, model_files, newest_checkpoint

STEPS_PER_KILL = 4


def kill_once(runs, out, moment, resume, where):
    """Starts, kills, and returns the steps that were logged before that.

    `where` is when: so many lines of metrics, then so many seconds.
    """
    lines, delay_s = where
    first = newest_checkpoint(out)
    process = runs.start(out, resume)
    logged = []
    for _ in range(lines):
        line = process.stdout.readline()
        if not line.endswith("\n"):
            break
        logged.append(json.loads(line)["step"])
    try:
        process.wait(timeout=delay_s)
        finished = True
    except subprocess.TimeoutExpired:
        finished = False
        process.kill()
    # Not communicate(), which would lose what readline() has buffered. The last line
    # may be cut.
    logged += [json.loads(line)["step"] for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()
    if finished:
        check(process.returncode == 0,
              f"{moment}: exit status {process.returncode}: {runs.errors()}")
    if logged:
        check(logged == list(range(first + 1, first + 1 + len(logged))),
              f"{moment}: continued at step {logged[0]} with the newest checkpoint at {first}, "
              f"or not in order: {logged}")
    return logged, finished


def check_negative_controls(runs, out, expected):
    files, log = expected
    weights = next(name for name in files if name != "optimizer.safetensors")
    flipped = bytearray(files[weights])
    flipped[-3] ^= 1
    check(differences(expected, (dict(files, **{weights: bytes(flipped)}), log)),
          "control: a flipped bit in the weights was not seen")
    check(differences(expected, (files, log[:5] + log[6:])),
          "control: a missing step of the log was not seen")

    damaged = out.with_name("damaged")
    shutil.copytree(out, damaged, symlinks=True)
    newest = damaged / "checkpoints" / str(newest_checkpoint(damaged))
    (newest / weights).write_bytes(bytes(flipped))
    process = runs.start(damaged, resume=True)
    process.communicate()
    check(process.returncode != 0 and weights in runs.errors(),
          f"control: a damaged checkpoint was taken: exit status {process.returncode}, "
          f"{runs.errors()!r}")


def check_stops(runs, folder, expected):
    """SIGINT loses nothing: it ends the run before the first step, and saves after it."""
    early = folder / "early"
    process = runs.start(early, resume=False)
    maps = pathlib.Path(f"/proc/{process.pid}/maps")
    # The plugin is loaded once the program listens to signals.
    while process.poll() is None and "pjrt" not in maps.read_text():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate()
    check(process.returncode == 0, f"early stop: exit status {process.returncode}: {runs.errors()}")
    if early.exists():
        check("stopped after step" in runs.errors(), f"early stop: {runs.errors()}")
    else:
        check(runs.errors().splitlines()[-1].startswith("meshwright: stopped before the first step"),
              f"early stop: {runs.errors()}")

    out = folder / "interrupted"
    process = runs.start(out, resume=False)
    logged = [json.loads(process.stdout.readline())["step"] for _ in range(2)]
    process.send_signal(signal.SIGINT)
    logged += [json.loads(line)["step"] for line in process.stdout]
    process.wait()
    process.stdout.close()
    check(process.returncode == 0, f"stop: exit status {process.returncode}: {runs.errors()}")
    check("stopping: no further micro-batch begins" in runs.errors(), f"stop: {runs.errors()}")
    check(newest_checkpoint(out) == logged[-1] < len(expected[1]),
          f"stop: step {newest_checkpoint(out)} was saved, {logged[-1]} was logged")
    runs.finish(out, resume=True)
    found = differences(expected, (model_files(out), losses(out)))
    check(not found, "the interrupted run ended otherwise: " + "; ".join(found))


def run(program, num_kills, seed, folder):
    rng = random.Random(seed)
    steps = num_kills * STEPS_PER_KILL
    runs = Runs(program, folder, steps, ["gradient_accumulation_steps=2", "checkpoint_period=1",
                                         "max_num_checkpoints_to_keep=2", "tensorboard=false"])

    whole = folder / "whole"
    check(runs.finish(whole, resume=False) == list(range(1, steps + 1)),
          "the uninterrupted run did not log every step once")
    expected = (model_files(whole), losses(whole))
    check([step for step, _ in expected[1]] == list(range(1, steps + 1)),
          "metrics.jsonl of the uninterrupted run does not hold every step once")
    check_negative_controls(runs, whole, expected)
    check_stops(runs, folder, expected)

    out = folder / "killed"
    kills = starts_over = in_save = 0
    finished = False
    while kills < num_kills and not finished:
        resume = newest_checkpoint(out) > 0
        if not resume and out.exists():
            # Killed before the first checkpoint: there is nothing to continue.
            shutil.rmtree(out)
            starts_over += 1
        if rng.random() < 0.2:
            where = (0, rng.uniform(0, 2.0))
        else:
            where = (rng.randrange(1, 2 * STEPS_PER_KILL - 2), rng.uniform(0, 0.15))
        _, finished = kill_once(runs, out, f"kill {kills} {where}", resume, where)
        kills += not finished
        in_save += any(".tmp-" in path.name for path in out.glob("checkpoints/*"))
    check(kills >= num_kills // 2, f"the run finished after {kills} kills: train for more steps")
    print(f"{kills} kills of {steps} steps, {in_save} of them while a checkpoint was written, "
          f"{starts_over} before there was one; step {newest_checkpoint(out)} reached", flush=True)

    done = newest_checkpoint(out)
    if not finished:
        logged = runs.finish(out, resume=done > 0)
        check(logged == list(range(done + 1, steps + 1)), f"the end was logged as {logged}")
    check(runs.finish(out, resume=True) == [], "a finished run did not resume to nothing more to do")
    found = differences(expected, (model_files(out), losses(out)))
    check(not found, "the killed run ended otherwise: " + "; ".join(found))
    left = sorted(path.name for path in (out / "checkpoints").iterdir())
    check(left == sorted([str(steps - 1), str(steps), "latest"]), f"left behind: {left}")
    print("weights, optimizer state and logged losses are those of the uninterrupted run")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshwright", required=True, help="the program to test")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="leave the folder of a failed run")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kill_resume."))
    try:
        run(str(pathlib.Path(options.meshwright).resolve()), options.kills, options.seed, folder)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        if options.keep:
            print(f"the runs are in {folder}", file=sys.stderr)
            return 1
        shutil.rmtree(folder)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
