#!/usr/bin/env python3
"""Checks a converted model with transformers.

Run:  pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 gguf==0.19.0 accelerate==1.15.0
      meshwright convert --model MODEL.gguf --out DIR --dtype f32
      python3 tests/oracle/check_export.py MODEL.gguf DIR

Loads both with transformers (which dequantizes and un-permutes the GGUF file itself) and
compares weights, tied head, token ids and chat template. Exit status 1 on a difference.
"""

import json
import os
import sys
import warnings

import torch
import transformers

TEXTS = ["Hello, world!", "  x = 12345\n\tif x: pass", "Καλημέρα κόσμε 你好 🙂",
         "<|im_start|>user\nHi<|im_end|>\n"]


def main(gguf, folder):
    ok = True

    def check(what, good):
        nonlocal ok
        ok &= bool(good)
        print(f"{'ok  ' if good else 'FAIL'} {what}")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True)
    print("loading info:", json.dumps({k: sorted(map(str, v)) for k, v in info.items() if v}))
    check(f"no warning ({[str(w.message) for w in caught]})", not caught)
    check("no missing, unexpected or mismatched key", not any(info.values()))
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    check("head is the embedding", head.data_ptr() == embedding.data_ptr())

    where, name = os.path.split(gguf)
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        where, gguf_file=name, dtype=torch.float32)
    ours, theirs = model.state_dict(), reference.state_dict()
    check("same names", ours.keys() == theirs.keys())
    worst = max((ours[k] - theirs[k]).abs().max().item() for k in ours)
    check(f"{len(ours)} tensors equal (largest difference {worst})", worst == 0)
    ids = torch.tensor([[1, 4093, 198, 28120, 2]])
    with torch.no_grad():
        worst = (model(ids).logits - reference(ids).logits).abs().max().item()
    check(f"logits equal (largest difference {worst})", worst == 0)
    del reference, theirs

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    reference = transformers.AutoTokenizer.from_pretrained(where, gguf_file=name)
    for text in TEXTS:
        a, b = (t(text, add_special_tokens=False)["input_ids"] for t in (tokenizer, reference))
        check(f"{len(a)} ids of {text!r} ({a[:6]} …, {b[:6]} …)", a == b)
    chat = [{"role": "user", "content": "Hi"}]
    check("chat template", tokenizer.apply_chat_template(chat, tokenize=False)
          == reference.apply_chat_template(chat, tokenize=False))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
