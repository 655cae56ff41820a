#!/usr/bin/env python3
"""Checks an adapter of a run, and the model it was merged into, with peft.

Run:  pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors==0.8.0
      meshwright sft --model BASE --data FILE --out RUN lora.rank=16 …
      meshwright convert --model RUN --merge --out MERGED --dtype f32
      meshwright inspect forward --model RUN --batch BATCH --out LOGITS matmul_precision=highest
      python3 tests/oracle/check_adapter.py BASE RUN/checkpoints/latest MERGED BATCH LOGITS

BASE is a Hugging Face folder, BATCH a safetensors file with tokens, i32 [rows, tokens]. Loads
the adapter with peft, beside BASE and by itself (AutoPeftModelForCausalLM), and compares logits
with LOGITS, those of MERGED, and those of peft's own merge. Exit status 1 on a difference or a
warning of peft's.
"""

import sys
import warnings

import peft
import safetensors.torch
import torch
import transformers


def main(base, adapter, merged, batch, logits):
    ok = True

    def check(what, good):
        nonlocal ok
        ok &= bool(good)
        print(f"{'ok  ' if good else 'FAIL'} {what}")

    tokens = safetensors.torch.load_file(batch)["tokens"].long()
    ours = safetensors.torch.load_file(logits)["logits"]

    def load(folder):
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def compare(what, model):
        with torch.no_grad():
            theirs = model.eval()(input_ids=tokens).logits
        worst = (ours - theirs).abs().max().item()
        check(f"{what}: largest difference {worst:.3g} of {theirs.abs().max().item():.3g}",
              worst < 2e-5 * theirs.abs().max().item())
        return theirs

    plain = load(base)
    with torch.no_grad():
        before = plain(input_ids=tokens).logits
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = peft.PeftModel.from_pretrained(plain, adapter)
    # Deprecations are between peft and transformers.
    caught = [str(w.message) for w in caught if not issubclass(w.category, FutureWarning)]
    check(f"no warning ({caught})", not caught)
    after = compare("beside its base model", model)
    difference = (after - before).abs().max().item()
    check(f"the adapter changes logits by {difference:.3g}", difference > 0.1)
    compare("merged by peft", model.merge_and_unload())
    compare("by itself", peft.AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32))
    compare("merged", load(merged))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
