"""What the benchmarks of plans have in common: `meshwright plan --json` and their arguments."""

import argparse
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parser(doc, name):
    """Of a benchmark's own description, with --program and --out."""
    made = argparse.ArgumentParser(description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--program", default=str(ROOT / "build/release/meshwright"))
    made.add_argument("--out", type=pathlib.Path, default=ROOT / f"build/bench/{name}.json")
    return made


def plan(program, words):
    """The finished process; JSON is on its stdout where it succeeded."""
    environment = {"MW_PLUGIN_PATH": str(ROOT / ".deps")} | os.environ
    return subprocess.run([program, "plan", "--json", "--quiet", *words], capture_output=True,
                          text=True, env=environment)
