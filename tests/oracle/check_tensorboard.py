#!/usr/bin/env python3
"""Reads event files with TensorBoard's own reader.

Run:  pip install tensorboard==2.21.0
      MW_TEST_TENSORBOARD_DIR=DIR build/release/train_test --gtest_filter='TensorBoardSinkTest.*'
      python3 tests/oracle/check_tensorboard.py DIR [METRICS.jsonl]

Without METRICS.jsonl, DIR holds what that test writes: steps 1 to 5 with a loss of 10/step and,
resumed after step 3, steps 4 to 6 with 20/step. With it, DIR is a run's tensorboard folder: tags,
steps and values must be those of metrics.jsonl. Either way each step must be there once. Exit
status 1 on a difference.
"""

import json
import sys

import numpy
from tensorboard.backend.event_processing import event_accumulator


def main(folder, metrics=None):
    if metrics:
        records = [json.loads(line) for line in open(metrics, encoding="utf-8")]
    else:
        records = [{"step": s, "learning/loss": (10 if s <= 3 else 20) / s,
                    "learning/total_weights": 12, "learning/step_skipped": 0} for s in range(1, 7)]
    events = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
    expected = {}
    for record in records:
        for tag, value in record.items():
            if tag != "step" and value is not None:
                expected.setdefault(tag, []).append((record["step"], float(numpy.float32(value))))
    ok = set(events.Tags()["scalars"]) == set(expected)
    print("ok  " if ok else "FAIL", len(expected), "tags equal")
    for tag, values in expected.items():
        known = tag in events.Tags()["scalars"]
        read = [(e.step, e.value) for e in events.Scalars(tag)] if known else []
        if read != values:
            ok = False
            print("FAIL", tag, "read", read, "expected", values)
    print("ok  " if ok else "FAIL", len(records), "steps, each once, with the values written")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
