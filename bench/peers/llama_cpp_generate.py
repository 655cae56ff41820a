#!/usr/bin/env python3
"""Times llama.cpp's decoding of one row with the weights of a GGUF file.

    python llama_cpp_generate.py --model FILE --new-tokens 128 --repeats 2

By the Python package cyllama, which brings llama.cpp and takes its number of threads; greedy, the
prompt is read in the time too. Prints one JSON object: {"tokens_per_s": of the fastest, …}.
"""

import argparse
import json
import time

import cyllama


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    model = cyllama.LLM(args.model, n_gpu_layers=0, n_ctx=512, temperature=0.0, penalty_last_n=0,
                        max_tokens=args.new_tokens)
    prompt = "Once upon a time there was a house by the sea, and in it lived"
    best = 0.0
    for _ in range(args.repeats + 1):
        start = time.perf_counter()
        pieces = sum(1 for _ in model(prompt, stream=True))
        best = max(best, pieces / (time.perf_counter() - start))
    print(json.dumps({"tokens_per_s": best, "version": cyllama.__version__}))


if __name__ == "__main__":
    main()
