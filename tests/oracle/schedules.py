#!/usr/bin/env python3
"""Writes src/meshwright/train/testdata/schedules.safetensors: optax's learning rates.

Run:  pip install jax==0.10.2 optax==0.2.8 safetensors==0.8.0
      python3 tests/oracle/schedules.py

  linear, cosine, wsd    f32 [24]: the rate of updates 0 ... 23 of a run of 20 whose warm-up
                         takes 4; 3e-4 at the highest, a tenth of it at the end, a wsd that
                         falls over the last 6

optax's own warm-up begins at 0. Joined here is its linear schedule from 1/4 of the rate over 3
transitions, which is 4/4 for update 3.
"""

import pathlib

import jax
import numpy as np
import optax
import safetensors.numpy

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/meshwright/train/testdata"
RATE, FINAL, WARMUP, STEPS, WSD = 3e-4, 0.1, 4, 20, 6


def main():
    jax.config.update("jax_enable_x64", True)
    warmup = optax.linear_schedule(RATE / WARMUP, RATE, WARMUP - 1)
    after = {
        "linear": optax.linear_schedule(RATE, FINAL * RATE, STEPS - WARMUP),
        "cosine": optax.cosine_decay_schedule(RATE, STEPS - WARMUP, alpha=FINAL),
        "wsd": optax.linear_schedule(RATE, FINAL * RATE, WSD, STEPS - WSD - WARMUP),
    }
    out = {}
    for name, schedule in after.items():
        joined = optax.join_schedules([warmup, schedule], [WARMUP])
        out[name] = np.array([joined(n) for n in range(STEPS + 4)], dtype=np.float32)
    versions = dict(command="python3 tests/oracle/schedules.py", jax=jax.__version__,
                    optax=optax.__version__, safetensors=safetensors.__version__)
    safetensors.numpy.save_file(out, OUT / "schedules.safetensors", metadata=versions)
    print(versions, out)


if __name__ == "__main__":
    main()
