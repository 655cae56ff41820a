"""Python with pinned packages of other people, for the tests that need them.

Python 3.11, standard library only.
"""

import os
import pathlib
import subprocess
import sys


def cache_folder():
    base = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return base.resolve() / "meshwright"


def pinned_python(name, wheels):
    """The interpreter that has `wheels`, lines of a pip requirements file with hashes.

    It lies in the virtual environment `name` below the cache folder ($XDG_CACHE_HOME/meshwright,
    else ~/.cache/meshwright), and is installed if it is not there: that needs a network, Python
    3.11 and x86-64. Raises RuntimeError where it cannot be.
    """
    folder = cache_folder() / name
    python = folder / "bin/python"
    done = folder / "installed.txt"  # written last
    if done.exists() and done.read_text() == wheels:
        return str(python)
    print(f"installing {name} into {folder}", file=sys.stderr, flush=True)
    requirements = folder / "wheels.txt"
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        requirements.write_text(wheels)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--no-deps", "--require-hashes", "--only-binary=:all:",
                        "--requirement", requirements], check=True, stdout=sys.stderr)
        requirements.rename(done)
    except (subprocess.CalledProcessError, OSError) as error:
        raise RuntimeError(f"{name} could not be installed (no network, or another Python than 3.11 "
                           f"on x86-64?): {error}") from None
    return str(python)
