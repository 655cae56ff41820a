#!/usr/bin/env python3
"""`meshwright plan` as users call it: its process that compiles, what it remembers, what it says.

    tests/integration/plan.py --meshwright build/release/meshwright \
        [--faults build/release/libfailing_file_system.so]

Without --faults no disk gets full.
Python 3.11, standard library only.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def fail(message):
    raise SystemExit(f"FAILED: {message}")


class Planner:
    def __init__(self, program, folder):
        self.program, self.cache = program, pathlib.Path(folder) / "cache"
        self.environment = {**os.environ, "MW_CACHE_DIR": str(self.cache)}
        self.base = ["plan", "--model", "tiny-llama", "batch_size=4", "max_target_length=32"]

    def command(self, words):
        return [self.program, *self.base, *words]

    def run(self, *words, **environment):
        return subprocess.run(self.command(words), capture_output=True, text=True,
                              env={**self.environment, **environment})

    def left_over(self):
        folder = self.cache / "plan"
        return [p for p in folder.iterdir() if p.suffix != ".json"] if folder.exists() else []


def children(parent):
    """(process, its words) of each child."""
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(folder.name), (folder / "cmdline").read_text().split("\0")
        except OSError:  # gone meanwhile
            continue


def expect(run, status, text):
    lines = run.stderr.strip().splitlines()
    if run.returncode != status or not lines or text not in lines[-1]:
        fail(f"{run.args[2:]} ended with {run.returncode}, not {status}, or does not say "
             f"'{text}':\n{run.stderr}")
    if sum(line.startswith("error: ") for line in lines) != (status != 0):
        fail(f"{run.args[2:]}: not one error:\n{run.stderr}")


def check_gpu(planner):
    """A plan for GPUs, none of which is there; the plugin is where `./dev setup gpu` was run."""
    gpu = ["--topology", "h200:8", "batch_size=8", "sharding_fallback=replicate"]
    run = planner.run(*gpu, "--mesh", "fsdp=8", "--json")
    if run.returncode == 2 and "./dev setup gpu" in run.stderr:
        print("a plan for GPUs is not tested: ./dev setup gpu was not run")
        return
    if run.returncode != 0:
        fail(run.stderr)
    plan = json.loads(run.stdout)
    if (plan["device_kind"], plan["fits"], plan["modelled_ms_per_step"]) != ("NVIDIA H200", True, None):
        fail(f"another plan: {run.stdout}")
    if not plan["estimated_ms_per_step"] > 0 or not 139 < plan["hbm_gib"] < 141:
        fail(f"another estimate or memory: {run.stdout}")
    for name, kernel in plan["kernels"].items():
        if not kernel["census"] or not kernel["live_tensors"] or not kernel["fingerprint"]:
            fail(f"{name} lacks census, largest tensors or fingerprint: {run.stdout}")
    expect(planner.run(*gpu, "--mesh", "fsdp=4"), 2, "4 devices")
    expect(planner.run(*gpu, "--mesh", "fsdp=8", "compile_xla_flags=xla_gpu_nothing=1"), 2,
           "xla_gpu_nothing")
    text = planner.run(*gpu, "--mesh", "fsdp=8")
    if "the compiler says no times for such devices; by estimate" not in text.stdout:
        fail(f"no estimate: {text.stdout}{text.stderr}")


def check_compare(planner, plan, folder):
    """`--compare` of `plan`, what was printed, with others of which something is wrong."""
    sound, other = pathlib.Path(folder) / "sound.json", pathlib.Path(folder) / "other.json"
    sound.write_text(json.dumps(plan))

    def compare(text):
        other.write_text(text)
        return subprocess.run([planner.program, "plan", "--compare", sound, other],
                              capture_output=True, text=True, env=planner.environment)

    same = compare(json.dumps(plan, indent=2))
    if same.returncode != 0 or "update_kernel: alike" not in same.stdout:
        fail(f"a plan compared with itself: {same.stdout}{same.stderr}")
    kernels = {name: kernel for name, kernel in plan["kernels"].items() if name != "update_kernel"}
    for text, says in ((json.dumps(plan)[:-40], "not valid JSON"),
                       ("", "not valid JSON"),
                       ("{}", "is no plan"),
                       (json.dumps({**plan, "kernels": kernels}), "has 1 kernels, not 2"),
                       (json.dumps({**plan, "mesh": 3}), "mesh is 3, not text"),
                       (json.dumps({**plan, "format": "meshwright-plan-0"}), "plan it again")):
        expect(compare(text), 2, says)


def check_html(planner, faults, folder):
    """A page that cannot be written: told at once where that is known, else after the plan."""
    cpu = ["--topology", "cpu:2", "--mesh", "data=-1"]
    expect(planner.run(*cpu, "--html", "steps=3"), 2, "steps=3 is a setting")
    expect(planner.run(*cpu, "--html", "--json"), 2, "--json is a flag")
    for path in (folder, "/dev/null", f"{folder}/none/page.html"):
        run = planner.run(*cpu, "--html", path)
        if run.returncode != 2 or run.stdout:
            fail(f"--html {path}: status {run.returncode}: {run.stdout}{run.stderr}")
    page = pathlib.Path(folder) / "page.html"
    run = planner.run(*cpu, "--html", str(page))
    if run.returncode != 0 or "<html" not in page.read_text():
        fail(f"no page: {run.stderr}")
    if not faults:
        return
    full = pathlib.Path(folder) / "full"
    full.mkdir()
    for form, expected in ([], "DEVICE PEAK"), (["--json"], '"device_peak_gib"'):
        run = planner.run(*cpu, *form, "--html", str(full / "page.html"), LD_PRELOAD=faults,
                          MW_FAULT_UNDER=str(full), MW_FAULT_CALLS="write", MW_FAULT_NTH="1",
                          MW_FAULT_STAYS="1", MW_FAULT_ERRNO="28")
        expect(run, 1, "the disk is full")
        if expected not in run.stdout:
            fail(f"a full disk took the plan: {run.stdout}")
    if list(full.iterdir()):
        fail(f"left behind: {list(full.iterdir())}")


def check_damaged_cache(planner, plan):
    """A figure that changed on the disk is told, compiled again and kept."""
    cpu = ["--topology", "cpu:2", "--mesh", "data=-1", "--json"]
    for entry in (planner.cache / "plan").iterdir():
        entry.write_text(entry.read_text().replace('"argument_bytes":', '"argument_bytes":1'))
    run = planner.run(*cpu)
    again = json.loads(run.stdout)
    told = [line for line in run.stderr.splitlines() if "has a wrong checksum" in line]
    if again["device_peak_gib"] != plan["device_peak_gib"] or len(told) != 2:
        fail(f"a damaged cache: {run.stdout}{run.stderr}")
    if planner.run(*cpu).stderr.count("checksum"):
        fail("it is not kept")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meshwright", required=True)
    parser.add_argument("--faults", help="the library failing_file_system")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(args.meshwright, folder)
        cpu = ["--topology", "cpu:2", "--mesh", "data=-1", "--json"]
        first = planner.run(*cpu)
        if first.returncode != 0:
            fail(first.stderr)
        plan = json.loads(first.stdout)
        if list(plan["kernels"]) != ["first_kernel", "update_kernel"] or plan["mesh"] != "data=2":
            fail(f"another plan: {first.stdout}")
        if "WARNING" in first.stderr or "I0000" in first.stderr:
            fail(f"what plugins say is on stderr: {first.stderr}")
        start = time.monotonic()
        again = planner.run(*cpu)
        if json.loads(again.stdout) != plan:
            fail("a second plan is another one")
        print(f"planned again in {time.monotonic() - start:.1f} s")

        check_compare(planner, plan, folder)
        check_html(planner, args.faults, folder)
        check_damaged_cache(planner, plan)
        # What `grpo` would run: all samples in one update, and rows that they share or not.
        for setting, shared in (("packing=true", "up to 16 samples share a row"),
                                ("packing=false", "each sample has a row of its own")):
            run = planner.run("--topology", "cpu:1", "--json", "loss.name=grpo", "prompts_per_step=2",
                              "num_generations=8", setting)
            plan = json.loads(run.stdout) if run.returncode == 0 else fail(run.stderr)
            if plan["kernels"]["accum_kernel"]["count"] != 3 or shared not in "".join(plan["notes"]):
                fail(f"not what grpo runs with {setting}: {run.stdout}")

        expect(planner.run("--topology", "tpu9:2x2"), 2, "there are b200, cpu, ")
        expect(planner.run("--topology", "cpu:0"), 2, "cpu:0")
        expect(planner.run("--topology", "h200:0"), 2, "'0' is not an integer in 1..4096")
        expect(planner.run("--topology", "h200:abc"), 2, "'abc' is not an integer in 1..4096")
        expect(planner.run("--topology", "h200:9"), 2, "a multiple of 8")
        expect(planner.run("--topology", "cpu:2", "--mesh", "data=3"), 2, "3 devices")
        expect(planner.run("--topology", "cpu:2", "--mesh", "data=2", "batch_size=3"), 2, "3")
        expect(planner.run("--topology", "cpu:1", "--entry", "call"), 2, "there are calls")
        expect(planner.run("--topology", "cpu:1", "--hbm-gib", "-1"), 2, "--hbm-gib")
        expect(planner.run("--topology", "cpu:1", "compile_xla_flags=x"), 2, "NAME=VALUE")
        expect(planner.run("--topology", "cpu:1", "--compiler-flag", "x"), 2, "NAME=VALUE")
        expect(planner.run("--topology", "cpu:1", "--compiler-flag", "xla_a=1",
                           "compile_xla_flags=xla_a=2"), 2, "twice")
        expect(planner.run("--topology", "cpu:1", "compile_xla_flags=xla_nothing=1"), 2,
               "xla_nothing")
        expect(planner.run("--topology", "cpu:1", "--compiler-flag", "xla_dump_to=/tmp"), 2,
               "sets it itself")
        expect(planner.run("--topology", "cpu:1", "max_target_length=4096"), 2, "4096")
        run = subprocess.run([args.meshwright, "plan", "--model", "tiny-lama", "--topology",
                              "cpu:1"], capture_output=True, text=True, env=planner.environment)
        expect(run, 2, "the nearest preset is random:tiny-llama")
        # A plugin is searched beside the program too: a link elsewhere is another program.
        lonely = pathlib.Path(folder) / "lonely"
        lonely.mkdir()
        (lonely / "meshwright").write_bytes(pathlib.Path(args.meshwright).read_bytes())
        (lonely / "meshwright").chmod(0o755)
        planner.program = str(lonely / "meshwright")
        expect(planner.run("--topology", "tpu7x:2x2x1", MW_PLUGIN_PATH=str(lonely)), 2, "tpu")
        expect(planner.run("--topology", "h200:8", MW_PLUGIN_PATH=str(lonely)), 2,
               "./dev setup gpu")
        planner.program = args.meshwright

        check_gpu(planner)

        # A compiler that is killed is an error, and leaves nothing that is taken for a result.
        words = ["--topology", "cpu:2", "--mesh", "data=2", "max_target_length=64"]
        process = subprocess.Popen(planner.command(words), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=planner.environment)
        killed = False
        while not killed and process.poll() is None:
            for pid, words_of in children(process.pid):
                # The first one only describes the devices.
                if "plan-kernel" in words_of and not any("describe" in w for w in words_of):
                    os.kill(pid, 9)
                    killed = True
            time.sleep(0.002)
        _, error = process.communicate()
        if not killed:
            fail("no compilation was seen to be killed")
        if process.returncode != 1 or "ended with signal 9" not in error:
            fail(f"a killed compiler: status {process.returncode}: {error}")
        if planner.left_over():
            fail(f"left behind: {planner.left_over()}")
        if planner.run(*words).returncode != 0:
            fail("the plan after it fails")
    print("all as it should be")


if __name__ == "__main__":
    sys.exit(main())
