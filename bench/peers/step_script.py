"""What the peers' scripts share: arguments, a preset's numbers, and a process's own clock."""

import argparse
import os
import pathlib
import re
import resource

PRESETS = pathlib.Path(__file__).resolve().parents[2] / "configs/models"


def process_age_seconds():
    """Seconds since this process started, imports included."""
    fields = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    """CPU time of all threads of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def read_preset(name, families):
    """The flat numbers of configs/models/NAME.yaml and its rope theta."""
    text = (PRESETS / f"{name}.yaml").read_text()
    fields = dict(re.findall(r"^(\w+): *([^#{\n]+?) *$", text, re.M))
    if fields["family"] not in families:
        raise SystemExit(f"error: preset {name} is not of the families {', '.join(families)}")
    if re.search(r"rope:.*type:", text):
        raise SystemExit(f"error: preset {name} has scaled rotary positions; choose one without")
    fields["theta"] = re.search(r"theta: *([0-9.e+]+)", text)[1]
    return fields


def step_parser(doc):
    """The arguments of a script that trains for some steps; `doc` is its own."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--preset", default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="of the computation")
    return parser
