#!/usr/bin/env python3
"""Installs the build into a new folder, builds examples/custom_loss and the program of docs/serve.md
against that alone, and trains.

Python 3.11, standard library only.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                 f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def fence(text, language):
    """What stands between the one ```language and its end."""
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    if len(found) != 1:
        sys.exit(f"docs/serve.md has {len(found)} programs in {language}")
    return found[0]


def check_service(folder, prefix):
    text = (ROOT / "docs/serve.md").read_text()
    source, build = folder / "service", folder / "service_build"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(fence(text, "cmake"))
    (source / "main.cc").write_text(fence(text, "cpp"))
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    text = run(build / "worker", env=dict(os.environ, MW_CACHE_DIR=str(folder / "cache")))
    losses = [float(value) for value in re.findall(r"step \d: loss ([0-9.]+)", text)]
    if len(losses) != 3 or losses[2] >= losses[0]:
        sys.exit(f"three steps with the loss falling were expected:\n{text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", required=True, type=Path)
    arguments = parser.parse_args()
    lines = (ROOT / "examples/custom_loss/main.cc").read_text().count("\n")
    if lines >= 60:
        sys.exit(f"the example has {lines} lines; it is to stay below 60")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix, build, out = folder / "prefix", folder / "build", folder / "out"
        run("cmake", "--install", arguments.build_dir, "--prefix", prefix)
        run("cmake", "-G", "Ninja", "-S", ROOT / "examples/custom_loss", "-B", build,
            f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", build)
        # No file of the source tree may have been used.
        includes = run("ninja", "-C", build, "-t", "deps")
        if str(ROOT / "src") in includes or str(prefix / "include/meshwright") not in includes:
            sys.exit(f"the example includes headers that are not installed:\n{includes[-4000:]}")
        ids = random.Random(1)
        data = folder / "data.jsonl"
        data.write_text("".join(
            json.dumps({"input_ids": [ids.randrange(3, 40) for _ in range(48)]}) + "\n"
            for _ in range(32)))
        text = run(build / "custom_loss", "random:tiny-llama", data, out,
                   env=dict(os.environ, MW_CACHE_DIR=str(folder / "cache")))
        losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", text)]
        if len(losses) != 10 or losses[-1] > 0.97 * losses[0]:
            sys.exit(f"ten steps with the loss falling were expected:\n{text}")
        checkpoint = json.loads(run(prefix / "bin/meshwright", "inspect", "checkpoint",
                                    out / "checkpoints/10", "--json"))
        if checkpoint["step"] != 10:
            sys.exit(f"the checkpoint is not of step 10: {checkpoint}")
        check_service(folder, prefix)


if __name__ == "__main__":
    main()
