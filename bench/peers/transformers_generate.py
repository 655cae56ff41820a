#!/usr/bin/env python3
"""Times transformers' generate on a model's shape with random weights.

    python transformers_generate.py --rows 8 --prompt 32 --new-tokens 128 --repeats 2

SmolLM2-135M's architecture, float32, sampling at temperature 1 without filters, as many threads as
there are cores. One call to warm up, then `repeats` timed ones. Prints one JSON object:
{"tokens_per_s": of the fastest, "versions": …}.
"""

import argparse
import json
import os
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, intermediate_size=1536, tie_word_embeddings=True,
        eos_token_id=None, pad_token_id=0, bos_token_id=1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model = model.to(getattr(torch, args.dtype)).eval()
    prompts = torch.randint(2, config.vocab_size, (args.rows, args.prompt))
    seconds = []
    for _ in range(args.repeats + 1):
        start = time.perf_counter()
        out = model.generate(prompts, attention_mask=torch.ones_like(prompts),
                             max_new_tokens=args.new_tokens, min_new_tokens=args.new_tokens,
                             do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
        seconds.append(time.perf_counter() - start)
        assert out.shape == (args.rows, args.prompt + args.new_tokens)
    print(json.dumps({"tokens_per_s": args.rows * args.new_tokens / min(seconds[1:]),
                      "versions": {"torch": torch.__version__,
                                   "transformers": transformers.__version__}}))


if __name__ == "__main__":
    main()
