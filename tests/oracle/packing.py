#!/usr/bin/env python3
"""Reference batches for src/meshwright/data: first-fit packing in its plainest form.

Run from the repository root (Python's standard library only):
    python tests/oracle/packing.py
Writes src/meshwright/data/testdata/packing_reference.json.
"""
import json
import platform
import random

SEED = 7


def pack(lengths, row_length):
    rows, room = [], []
    for index, length in enumerate(lengths):
        for row in range(len(rows)):
            if room[row] >= length:
                break
        else:
            row = len(rows)
            rows.append([])
            room.append(row_length)
        rows[row].append(index)
        room[row] -= length
    return rows


def batch(docs, masks, rows, row_length, pad_first):
    out = {k: [] for k in ("tokens", "targets", "loss_mask", "segment_ids", "positions")}
    for row in rows:
        line = {k: [] for k in out}
        for segment, index in enumerate(row, 1):
            doc, mask = docs[index], masks[index]
            n = len(doc)
            line["tokens"] += doc
            line["targets"] += doc[1:] + [0]
            line["loss_mask"] += mask[1:] + [0]
            line["segment_ids"] += [segment] * n
            line["positions"] += list(range(n))
        for k in out:
            pad = [0] * (row_length - len(line[k]))
            out[k].append(pad + line[k] if pad_first else line[k] + pad)
    return out


def main():
    rng = random.Random(SEED)
    cases = [{"docs": [[10, 11, 12], [20, 21]], "masks": [[0, 1, 1], [0, 1]], "row_length": 5}]
    for _ in range(12):
        row_length = rng.choice([2, 7, 16, 33])
        docs = [[rng.randrange(1, 1000) for _ in range(rng.randint(1, row_length))]
                for _ in range(rng.randint(1, 40))]
        masks = [[0] + [rng.randint(0, 1) for _ in doc[1:]] for doc in docs]
        cases.append({"docs": docs, "masks": masks, "row_length": row_length})
    for case in cases:
        case["rows"] = pack([len(d) for d in case["docs"]], case["row_length"])
        for name, pad_first in (("pad_last", False), ("pad_first", True)):
            case[name] = batch(case["docs"], case["masks"], case["rows"], case["row_length"], pad_first)
    with open("src/meshwright/data/testdata/packing_reference.json", "w") as f:
        json.dump({"command": "python tests/oracle/packing.py", "seed": SEED,
                   "versions": {"python": platform.python_version()}, "cases": cases}, f)
        f.write("\n")


if __name__ == "__main__":
    main()
