#!/usr/bin/env python3
"""Checks `meshwright inspect forward` against transformers on real text.

Run:  pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0 safetensors==0.8.0
      python3 tests/oracle/check_forward.py build/release/meshwright MODEL.gguf [--text FILE]

Both compute the float32 logits of the text's first 500 positions. Exits with 1 when a logit
differs by more than 2e-3, or the most likely token differs where the gap between the two
largest logits is more than that.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

TOLERANCE = 2e-3
TEXT = pathlib.Path(__file__).resolve().parents[2] / "docs/architecture.md"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("meshwright")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    parser.add_argument("--positions", type=int, default=500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder, name = str(args.model.parent), args.model.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32).eval()
    ids = tokenizer(args.text.read_text(), return_tensors="pt")["input_ids"]
    ids = ids[:, : args.positions]
    if ids.shape[1] < args.positions:
        sys.exit(f"{args.text} has only {ids.shape[1]} tokens")
    with torch.no_grad():
        expected = model(input_ids=ids).logits[0].float()
    with tempfile.TemporaryDirectory() as work:
        batch, out = f"{work}/batch.safetensors", f"{work}/logits.safetensors"
        safetensors.torch.save_file({"tokens": ids.to(torch.int32)}, batch)
        subprocess.run([args.meshwright, "inspect", "forward", "--model", str(args.model),
                        "--batch", batch, "--out", out, "--quiet"], check=True)
        actual = safetensors.torch.load_file(out)["logits"][0]
    difference = (actual - expected).abs()
    top = expected.topk(2, -1).values
    gap = top[:, 0] - top[:, 1]
    other = actual.argmax(-1) != expected.argmax(-1)
    wrong = int((other & (gap > TOLERANCE)).sum())
    print(f"{args.positions} positions of {args.text.name}, {expected.shape[1]} logits each: "
          f"largest difference {difference.max():.3g} (logits up to {expected.abs().max():.3g}), "
          f"mean {difference.mean():.3g}; another argmax at {int(other.sum())} positions, "
          f"{wrong} of them with a gap above {TOLERANCE}; smallest gap {gap.min():.3g}")
    sys.exit(bool(wrong or difference.max() > TOLERANCE))


if __name__ == "__main__":
    main()
