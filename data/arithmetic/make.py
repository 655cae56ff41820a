#!/usr/bin/env python3
"""Writes train.jsonl and heldout.jsonl of this folder: sums of two numbers as chats.

  data/arithmetic/make.py [FOLDER]

Every pair of numbers from 1 to 12 is in one of the files, once; which one, and the order, come from
a seed, so that the files come out the same.
"""
import json
import pathlib
import random
import sys

NUM_HELDOUT = 32
QUESTION = "What is {a} + {b}? Reply with the number only."


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    pairs = [(a, b) for a in range(1, 13) for b in range(1, 13)]
    random.Random(12).shuffle(pairs)
    for name, part in (("heldout", pairs[:NUM_HELDOUT]), ("train", pairs[NUM_HELDOUT:])):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for a, b in part:
                row = {
                    "id": f"{a}+{b}",
                    "messages": [{"role": "user", "content": QUESTION.format(a=a, b=b)}],
                    "answer": a + b,
                }
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
