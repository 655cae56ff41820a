#!/usr/bin/env python3
"""How the time and memory of a fine-tuning step grow with what it is of.

    ./dev bench scaling [--only tokens,layers,micro-batches,devices] [--dtype bf16] [--steps 3]

SmolLM2-135M's widths, random weights and rows, one process a point: one row of 512 to 8,192 tokens; 1 to 32
layers (4 x 512 tokens); 1 to 32 micro-batches of one row of 512; one row of 512 each for 8 rows on 1, 2,
4 and 8 virtual devices of this machine, by `data` with the optimizer's state sharded (Zero-1), and by `fsdp`.
A step is the median of those after the first.

Result: Markdown tables on stdout. Python 3.11, standard library only.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCAB = 49152


def layers_of(name):
    """The number of the layer that a tensor is of, or None."""
    return int(name.split(".")[2]) if name.startswith("model.layers.") else None


def write_model(source, folder, num_layers):
    """The model of folder `source` with so many of its layers, the first ones again after the last."""
    config = json.loads((source / "config.json").read_text())
    had = config["num_hidden_layers"]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": num_layers}))
    with open(source / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
        header.pop("__metadata__", None)
        parts, at = {}, 0
        for name, info in header.items():
            layer = layers_of(name)
            for new in [None] if layer is None else range(layer, num_layers, had):
                own = name if new is None else name.replace(f".{layer}.", f".{new}.", 1)
                size = info["data_offsets"][1] - info["data_offsets"][0]
                parts[own] = (info | {"data_offsets": [at, at + size]}, info["data_offsets"])
                at += size
        text = json.dumps({name: info for name, (info, _) in parts.items()}).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / "model.safetensors", "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for _, (begin, end) in parts.values():
                file.seek(start + begin)
                out.write(file.read(end - begin))


class Runs:
    def __init__(self, folder, options):
        self.folder, self.options = folder, options
        self.environment = {"MW_PLUGIN_PATH": str(ROOT / ".deps")} | os.environ
        ids = random.Random(0)
        with open(folder / "rows.jsonl", "w", encoding="utf-8") as file:
            for _ in range(32 * (options.steps + 1)):
                file.write(json.dumps({"input_ids": [ids.randrange(VOCAB) for _ in range(512)]}) + "\n")
        with open(folder / "long.jsonl", "w", encoding="utf-8") as file:
            for _ in range(options.steps + 1):
                file.write(json.dumps({"input_ids": [ids.randrange(VOCAB) for _ in range(8192)]}) + "\n")

    def program(self, *words):
        subprocess.run([self.options.meshwright, *map(str, words), "--quiet"], env=self.environment,
                       check=True, stdout=subprocess.DEVNULL)

    def step(self, model, settings, data="rows.jsonl", flags=()):
        """(seconds of a step, peak resident GB)."""
        out = self.folder / "run"
        subprocess.run(["rm", "-rf", out], check=True)
        command = [self.options.meshwright, "sft", "--model", model, "--data", self.folder / data,
                   "--out", out, "--quiet", *flags, f"steps={self.options.steps + 1}",
                   f"dtype={self.options.dtype}", "enable_checkpointing=false", "tensorboard=false",
                   *settings]
        process = subprocess.Popen([str(word) for word in command], env=self.environment,
                                   stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"error: exit status {process.returncode} of {' '.join(map(str, command))}")
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        times = [record["perf/step_time_seconds"] for record in records[1:]]
        return statistics.median(times), usage.ru_maxrss / 1e6


def table(title, column, unit, points):
    """`points`: (label, how much of the unit, seconds, GB)."""
    print(f"\n{title}\n\n| {column} | s a step | ms a {unit} | peak resident, GB |\n|---:|---:|---:|---:|")
    for label, amount, seconds, peak in points:
        print(f"| {label} | {seconds:.2f} | {1e3 * seconds / amount:.3g} | {peak:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshwright", default=str(ROOT / "build/release/meshwright"))
    parser.add_argument("--only", default="tokens,layers,micro-batches,devices")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--steps", type=int, default=3, help="after the first")
    options = parser.parse_args()
    preset = "random:smollm2-135m"
    with tempfile.TemporaryDirectory(prefix="scaling.") as name:
        folder = pathlib.Path(name)
        runs = Runs(folder, options)
        print(f"load average {os.getloadavg()[0]:.1f} before; {options.dtype}")
        if "tokens" in options.only:
            table("Tokens of one row", "tokens", "token",
                  [(n, n, *runs.step(preset, ["batch_size=1", f"max_target_length={n}"], "long.jsonl"))
                   for n in (512, 1024, 2048, 4096, 8192)])
        if "layers" in options.only:
            runs.program("convert", "--model", preset, "--out", folder / "whole", "--dtype", "f32")
            points = []
            for n in (1, 2, 4, 8, 16, 32):
                write_model(folder / "whole", folder / f"layers{n}", n)
                points.append((n, n, *runs.step(folder / f"layers{n}",
                                                ["batch_size=4", "max_target_length=512"])))
            table("Layers, 4 x 512 tokens", "layers", "layer", points)
        if "micro-batches" in options.only:
            table("Micro-batches of 512 tokens", "micro-batches", "micro-batch",
                  [(n, n, *runs.step(preset, ["batch_size=1", "max_target_length=512",
                                              f"gradient_accumulation_steps={n}"]))
                   for n in (1, 2, 4, 8, 16, 32)])
        if "devices" in options.only:
            points = [("1", 8, *runs.step(preset, ["batch_size=8", "max_target_length=512"]))]
            for n in (2, 4, 8):
                for mesh, more in ((f"data={n}", ["shard_optimizer_over_data=true"]), (f"fsdp={n}", [])):
                    points.append((mesh, 8, *runs.step(
                        preset, ["batch_size=8", "max_target_length=512", *more],
                        flags=["--device", f"cpu:{n}", "--mesh", mesh])))
            table("Virtual devices, 8 rows of 512 tokens", "mesh", "row", points)


if __name__ == "__main__":
    main()
