"""What the peers' scripts share: a preset's numbers, and a process's own clock."""

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
