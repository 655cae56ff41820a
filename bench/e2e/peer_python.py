"""Interpreters with the packages of peers, for the benchmarks that run them."""

import os
import pathlib
import subprocess
import sys


def cache_folder():
    if os.environ.get("MW_CACHE_DIR"):
        return pathlib.Path(os.environ["MW_CACHE_DIR"])
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "meshwright"


def python_with(packages):
    """An interpreter with these packages, NAME==VERSION each, installed if it is not there."""
    folder = cache_folder() / ("venv-" + "-".join(packages).replace("==", "-"))
    python = folder / "bin/python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing {' '.join(packages)} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True,
                       stdout=sys.stderr)
        done.write_text("\n".join(packages))
    return str(python)
