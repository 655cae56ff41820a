#!/usr/bin/env python3
"""Disturbs fine-tuning runs in every way that loses files; none may lose a run.

    tests/integration/fault_injection.py --meshwright build/release/meshwright \\
        --faults build/release/libfailing_file_system.so [--injections 100] [--seed 0] [--only 7]

Each injection takes a run of a tiny random model, fresh or stopped (after a whole update, or
inside one), and does one of these to it, at a random moment or call:
  kill     SIGKILL
  stop     SIGINT
  full     the disk is full from one call on, often after half of a write
  error    one call fails: write, fsync, rename, open, mkdir or symlink, with EIO, ENOSPC, EROFS
           or EDQUOT
  damage   a file of the newest checkpoint is changed, cut, emptied, removed or replaced by the
           same file of an older one

Afterwards every checkpoint in its place is whole, none that was there before is lost but to a newer one,
and a failure was told in one sentence with the file and the reason, with exit status 1 or 2.
`--resume` continues at the newest checkpoint, or refuses and says what to do, never starts afresh;
done as told, the run ends with the bytes of weights and optimizer state of one that nobody disturbed,
and with its losses.

Python 3.11, standard library only.
"""

import argparse
import errno
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from sft_runs import Failure, Runs, check, differences, losses, model_files, newest_checkpoint

STEPS = 60
KINDS = ("kill", "full", "damage", "error", "stop", "damage", "error")
ERRORS = {errno.EIO: "(EIO)", errno.ENOSPC: "(ENOSPC)", errno.EROFS: "(EROFS)", errno.EDQUOT: "(EDQUOT)"}
LOST_METRICS = "metrics are no longer written"
LOST_IN_THE_END = "the log of the run is not whole"


def checkpoints(out):
    """The folders of checkpoints, of ascending steps."""
    found = [path for path in (out / "checkpoints").glob("*") if path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name))


def error_line(runs):
    lines = [line for line in runs.errors().splitlines() if line.startswith("error: ")]
    check(len(lines) == 1, f"not one sentence of error: {runs.errors()!r}")
    return lines[0]


class Disturbance:
    """One injection, and the end of its run."""

    def __init__(self, runs, faults, templates, calls, name, kind, rng):
        self.runs, self.faults, self.templates, self.calls = runs, faults, templates, calls
        self.kind, self.rng = kind, rng
        self.out = runs.folder / name
        self.log = runs.folder / f"{name}.log"
        self.says = [kind]
        self.metrics_are_whole = True
        # So that both ways of saving are disturbed.
        self.more = ["async_checkpointing=false"] if rng.random() < 0.25 else []

    def begin(self):
        """Puts a run to disturb in place; returns whether there is one to resume."""
        names = list(self.templates) if self.kind == "damage" else ["fresh", *self.templates]
        name = self.rng.choice(names)
        self.says += [name, *self.more]
        if name == "fresh":
            return False
        shutil.copytree(self.templates[name], self.out, symlinks=True)
        return True

    def note_errors(self):
        if LOST_METRICS in self.runs.errors():
            self.metrics_are_whole = False

    def signal(self, resume, number):
        lines, delay_s = self.rng.randrange(0, 25), self.rng.uniform(0, 0.2)
        self.says.append(f"after {lines} lines and {delay_s:.2f} s")
        process = self.runs.start(self.out, resume, self.more)
        for _ in range(lines):
            if not process.stdout.readline():
                break
        try:
            process.wait(timeout=delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        process.stdout.read()
        process.stdout.close()
        process.wait()
        check(process.returncode in (0, -number if number == signal.SIGKILL else 0),
              f"exit status {process.returncode}: {self.runs.errors()}")

    def fail_calls(self, resume):
        number = self.rng.choice(list(ERRORS))
        nth = self.rng.randrange(1, self.calls if not resume else self.calls // 2)
        variables = {"LD_PRELOAD": str(self.faults), "MW_FAULT_UNDER": str(self.out),
                     "MW_FAULT_NTH": str(nth), "MW_FAULT_LOG": str(self.log)}
        if self.kind == "full":
            number = self.rng.choice([errno.ENOSPC, errno.EDQUOT])
            variables |= {"MW_FAULT_STAYS": "1", "MW_FAULT_SHORT": self.rng.choice("01")}
        variables["MW_FAULT_ERRNO"] = str(number)
        process = self.runs.start(self.out, resume, self.more, variables)
        process.communicate()
        self.note_errors()
        failed = [line.split()[1:3] for line in self.log.read_text().splitlines()
                  if line.endswith(" FAILED")] if self.log.exists() else []
        self.says.append(f"call {nth} with {errno.errorcode[number]}: " + (
            f"{failed[0][0]} of {os.path.relpath(failed[0][1], self.out)}" if failed else "not reached"))
        if process.returncode == 0:
            check(not failed, f"a failure was not told: {failed}")
            return
        line = error_line(self.runs)
        if LOST_IN_THE_END in line:
            # Training outlives its log.
            check(all("/metrics.jsonl" in path or "/tensorboard" in path for _, path in failed),
                  f"more than a log has failed: {failed}")
            check(LOST_METRICS in self.runs.errors() and newest_checkpoint(self.out) == STEPS,
                  f"lost metrics were not told, or ended the run: {self.runs.errors()!r}")
        check(process.returncode == (1 if "ready after" in self.runs.errors() else 2),
              f"exit status {process.returncode}: {line}")
        check(failed, f"failed by itself: {line}")
        check(str(self.out) in line and ERRORS[number] in line, f"no file or no reason: {line}")
        left = [path.name for path in self.out.glob("checkpoints/*.tmp-*")]
        check(not left, f"half a checkpoint was left: {left}")

    def damage(self):
        """Damages the newest checkpoint, and does what the refusal says."""
        runs, rng = self.runs, self.rng
        older, newest = checkpoints(self.out)[-2:]
        path = rng.choice(sorted(newest.iterdir()))
        how = rng.choice(["flip", "cut", "empty", "remove", "swap"])
        self.says.append(f"{how} {path.name}")
        before = path.read_bytes()
        after = bytearray(before)
        if how == "flip":
            after[rng.randrange(len(after))] ^= 1 << rng.randrange(8)
        elif how == "cut":
            del after[rng.randrange(len(after)):]
        elif how == "empty":
            after.clear()
        elif how == "swap" and (older / path.name).exists():
            after = (older / path.name).read_bytes()
        if how == "remove":
            path.unlink()
        else:
            path.write_bytes(after)
            if bytes(after) == before:
                self.says.append("no change")
                return
        inspected = self.inspect(newest)
        check(inspected.returncode == 2 and str(newest) in inspected.stderr,
              f"inspect: exit status {inspected.returncode}, {inspected.stderr!r}")
        if (how, path.name) == ("remove", "manifest.json"):
            process = runs.start(self.out, True)
            logged = [json.loads(line)["step"] for line in process.communicate()[0].splitlines()]
            check(process.returncode == 0 and f"{newest} was passed over" in runs.errors() and
                  logged[0] == int(older.name) + 1,
                  f"without a manifest: exit status {process.returncode}, {runs.errors()!r}")
            return
        process = runs.start(self.out, True)
        stdout, _ = process.communicate()
        line = error_line(runs)
        check(process.returncode in (1, 2) and not stdout and str(newest) in line,
              f"exit status {process.returncode}: {line}")
        if "give --restart-update with --resume" in line:
            check(path.name == "accumulator.safetensors", f"more than the sum is damaged: {line}")
            self.more.append("--restart-update")
        else:
            check(f"checkpoint {older.name} of the run is whole: remove {newest} to resume" in line,
                  f"no way out: {line}")
            shutil.rmtree(newest)

    def inspect(self, folder):
        return subprocess.run([self.runs.program, "inspect", "checkpoint", str(folder), "--json"],
                              capture_output=True, text=True, check=False)

    def end(self, expected):
        """Continues the run to its end, which must be the expected one."""
        runs, out = self.runs, self.out
        reached = newest_checkpoint(out)
        if self.kind != "damage":
            for folder in checkpoints(out):
                inspected = self.inspect(folder)
                check(inspected.returncode == 0, f"{folder} is not whole: {inspected.stderr}")
        if reached == 0:
            refused = runs.start(out, True)
            refused.communicate()
            check(refused.returncode == 2 and "no checkpoint to resume" in error_line(runs),
                  f"--resume without a checkpoint: {refused.returncode}, {runs.errors()!r}")
            shutil.rmtree(out, ignore_errors=True)
            self.metrics_are_whole = True
        process = runs.start(out, reached > 0, self.more)
        stdout, _ = process.communicate()
        check(process.returncode == 0, f"exit status {process.returncode}: {runs.errors()}")
        logged = [json.loads(line)["step"] for line in stdout.splitlines()]
        check(logged == list(range(reached + 1, STEPS + 1)),
              f"continued at {logged[:1]} with the newest checkpoint at {reached}")
        found = differences(expected,
                            (model_files(out), losses(out) if self.metrics_are_whole else expected[1]))
        check(not found, "the run ended otherwise: " + "; ".join(found))
        left = [path.name for path in out.glob("checkpoints/*") if ".tmp-" in path.name]
        check(not left, f"left behind: {left}")

    def run(self, expected):
        resume = self.begin()
        before = newest_checkpoint(self.out)
        if self.kind == "kill":
            self.signal(resume, signal.SIGKILL)
        elif self.kind == "stop":
            self.signal(resume, signal.SIGINT)
        elif self.kind == "damage":
            self.damage()
        else:
            self.fail_calls(resume)
        if self.kind != "damage":
            check(newest_checkpoint(self.out) >= before, "the newest checkpoint is gone")
        self.end(expected)
        shutil.rmtree(self.out)


def make_templates(runs):
    """Stopped runs with several checkpoints: one stopped after an update, one inside."""
    templates = {}
    for attempt in range(60):
        out = runs.folder / f"template{attempt}"
        process = runs.start(out, False)
        for _ in range(11 + attempt % 7):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()
        check(process.returncode == 0, f"stop: exit status {process.returncode}: {runs.errors()}")
        found = checkpoints(out)
        if len(found) < 2 or int(found[-1].name) == STEPS:
            continue
        inside = (found[-1] / "accumulator.safetensors").exists()
        templates["stopped inside an update" if inside else "stopped after an update"] = out
        if len(templates) == 2:
            # In a fixed order, whichever came first.
            return dict(sorted(templates.items()))
    raise Failure(f"60 stops gave only {list(templates)}")


def count_calls(runs, faults):
    """How many calls a whole run makes that may be made to fail."""
    out, log = runs.folder / "counted", runs.folder / "counted.log"
    process = runs.start(out, False, (), {"LD_PRELOAD": str(faults), "MW_FAULT_UNDER": str(out),
                                          "MW_FAULT_LOG": str(log)})
    process.communicate()
    check(process.returncode == 0, f"exit status {process.returncode}: {runs.errors()}")
    calls = [(line.split()[1], os.path.relpath(line.split()[2], out))
             for line in log.read_text().splitlines()]
    kinds = {call for call, _ in calls}
    check({"write", "fsync", "rename", "open", "mkdir", "symlink"} == kinds,
          f"the library sees only {kinds}")
    check_durable(calls)
    lost = calls.index(next(call for call in calls if call[0] == "fsync" and "config.json" in call[1]))
    try:
        check_durable(calls[:lost] + calls[lost + 1:])
    except Failure:
        return len(calls)
    raise Failure("control: a file that was not flushed to the disk was not seen")


def check_durable(calls):
    """What a checkpoint consists of is on the disk before it appears, and that before `latest` moves."""
    appeared = 0
    for at, (call, path) in enumerate(calls):
        if call != "rename" or not re.fullmatch(r"checkpoints/[0-9]+", path):
            continue
        appeared += 1
        flushed = {}  # by path: whether its newest bytes or entries are on the disk
        for earlier, inner in calls[:at]:
            if not inner.startswith(path + ".tmp-"):
                continue
            if earlier in ("write", "open"):
                flushed[inner] = False
            elif earlier == "fsync":
                flushed[inner] = True
            if earlier != "fsync" and "/" in inner[len(path):]:
                flushed[os.path.dirname(inner)] = False
        check(len(flushed) > 4 and all(flushed.values()), f"{path} appeared with {flushed}")
        following = [call for call in calls[at:] if call[1].split("/")[-1].split(".")[0] in
                     ("checkpoints", "latest")]
        check(following[0] == ("fsync", "checkpoints"), f"{path} is not flushed: {following[:2]}")
    check(appeared == STEPS / 3, f"{appeared} checkpoints appeared")


def check_steps_go_on(runs, faults):
    """Steps end while a save is stuck in the disk, and not when saves are not asynchronous."""
    for is_async in (True, False):
        out = runs.folder / f"slow{is_async}"
        process = runs.start(out, False,
                             ["checkpoint_period=20", f"async_checkpointing={str(is_async).lower()}"],
                             {"LD_PRELOAD": str(faults), "MW_FAULT_UNDER": str(out / "checkpoints"),
                              "MW_FAULT_CALLS": "fsync", "MW_FAULT_NTH": "1", "MW_FAULT_DELAY_MS": "3000"})
        records = [json.loads(line) for line in process.communicate()[0].splitlines()]
        check(process.returncode == 0, f"exit status {process.returncode}: {runs.errors()}")
        next_record = records[20]
        check("checkpoint/blocked_seconds" in next_record, f"no checkpoint before {next_record}")
        check(("checkpoint/save_seconds" in next_record) != is_async,
              f"async_checkpointing={is_async}: {next_record}")
        stuck = next(record for record in records if "checkpoint/save_seconds" in record)
        check(stuck["checkpoint/save_seconds"] >= 3, f"the delay did nothing: {stuck}")


def run(options, folder):
    program = str(pathlib.Path(options.meshwright).resolve())
    faults = pathlib.Path(options.faults).resolve()
    check(faults.exists(), f"{faults} is not there")
    runs = Runs(program, folder, STEPS, ["gradient_accumulation_steps=3", "checkpoint_period=3",
                                         "max_num_checkpoints_to_keep=3"])
    whole = folder / "whole"
    check(runs.finish(whole, resume=False) == list(range(1, STEPS + 1)),
          "the undisturbed run did not log every step once")
    expected = (model_files(whole), losses(whole))
    check_steps_go_on(runs, faults)
    calls = count_calls(runs, faults)
    templates = make_templates(runs)
    numbers = range(options.injections) if options.only is None else [options.only]
    for number in numbers:
        # Each has numbers of its own, so that one can be made again without the others.
        rng = random.Random(f"{options.seed}/{number}")
        disturbance = Disturbance(runs, faults, templates, calls, f"run{number}",
                                  KINDS[number % len(KINDS)], rng)
        try:
            disturbance.run(expected)
        except Failure as failure:
            raise Failure(f"injection {number} (--seed {options.seed} --only {number}): "
                          f"{', '.join(disturbance.says)}: {failure}") from failure
        print(f"{number}: {', '.join(disturbance.says)}", flush=True)
    print(f"{len(numbers)} injections; every run ended as the undisturbed one")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshwright", required=True, help="the program to test")
    parser.add_argument("--faults", required=True, help="the library failing_file_system")
    parser.add_argument("--injections", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the one injection to make")
    parser.add_argument("--keep", action="store_true", help="leave the folder of a failed test")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fault_injection."))
    try:
        run(options, folder)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        if options.keep:
            print(f"the runs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
