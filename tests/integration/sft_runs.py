"""What the tests that disturb fine-tuning runs share: starting them, and comparing their ends.

Python 3.11, standard library only.
"""

import json
import os
import random
import subprocess


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


class Runs:
    """Starts `meshwright sft` with one set of settings."""

    def __init__(self, program, folder, steps, settings):
        self.program = program
        self.folder = folder
        self.environment = dict(os.environ, MW_CACHE_DIR=str(folder / "cache"))
        data = folder / "data.jsonl"
        ids = random.Random(1)
        data.write_text("".join(
            json.dumps({"input_ids": [ids.randrange(3, 131) for _ in range(ids.randrange(4, 24))]})
            + "\n" for _ in range(97)))
        self.command = [
            program, "sft", "--model", "random:tiny-llama", "--data", str(data), "--json",
            f"steps={steps}", "batch_size=2", "max_target_length=32", "learning_rate=1e-2",
            "lr_schedule=cosine", "warmup_steps=3", "seed=7", *settings]

    def start(self, out, resume, more=(), environment=()):
        command = [*self.command, "--out", str(out), *(["--resume"] if resume else []), *more]
        with open(self.folder / "stderr", "w", encoding="utf-8") as errors:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                    env=dict(self.environment, **dict(environment)))

    def errors(self):
        """What the last process wrote to stderr."""
        return (self.folder / "stderr").read_text().strip()

    def finish(self, out, resume):
        """Runs to the end; returns the steps that were logged."""
        process = self.start(out, resume)
        stdout, _ = process.communicate()
        check(process.returncode == 0, f"exit status {process.returncode}: {self.errors()}")
        return [json.loads(line)["step"] for line in stdout.splitlines()]


def newest_checkpoint(out):
    """The step of the newest checkpoint with a manifest, which is written last; 0 = none."""
    steps = [int(path.parent.name) for path in out.glob("checkpoints/*/manifest.json")
             if path.parent.name.isdigit()]
    return max(steps, default=0)


def model_files(out):
    folder = out / "checkpoints/latest"
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    check("optimizer.safetensors" in names and len(names) > 1, f"{folder} holds {names}")
    return {name: (folder / name).read_bytes() for name in names}


def losses(out):
    """(step, what training computed) of metrics.jsonl; times and memory differ by nature."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(record["step"],
             {key: value for key, value in record.items() if key.startswith("learning/")})
            for record in records]


def differences(expected, actual):
    """Sentences on how two finished runs differ."""
    result = []
    files, other_files = expected[0], actual[0]
    if files.keys() != other_files.keys():
        result.append(f"files {sorted(files)} and {sorted(other_files)}")
    result += [f"{name} differs" for name in files.keys() & other_files.keys()
               if files[name] != other_files[name]]
    if expected[1] != actual[1]:
        for a, b in zip(expected[1], actual[1]):
            if a != b:
                result.append(f"the metrics differ first at step {a[0]}: {a} and {b}")
                break
        else:
            result.append(f"{len(expected[1])} and {len(actual[1])} records of metrics")
    return result
