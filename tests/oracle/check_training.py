#!/usr/bin/env python3
"""Compares `inspect grad` and `inspect step` with transformers and torch, end to end.

Run:  pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 gguf==0.19.0 accelerate==1.15.0
      python3 tests/oracle/check_training.py MESHWRIGHT [MODEL.gguf]

MESHWRIGHT is the built program. For the tiny models of src/meshwright/models/testdata/ it checks,
on packed rows with ragged masks, everything in float32 on the CPU:

  - every gradient: relative 2-norm of the difference at most 1e-4
  - the same cut into micro-batches of 2, 1 and 1 rows: the whole gradient at most 1e-6 from
    the uncut one (2-norm), and no tensor farther from torch's float64 gradient than 1.5 times
    what the uncut one is at worst. A tensor whose gradient nearly cancels differs by more
    than 1e-6 between any two orders of float32 sums, torch's included.
  - the weights after ten steps of AdamW with clipping: the difference relative to the change
    at most 1e-3 (2-norm, per tensor)
  - that a wrong mask, a wrong decay and no clipping are seen

With a GGUF file the gradients of that model too, on real text: on random tokens a trained
model's gradients are so ill-conditioned that torch's own float32 ones are up to 3e-3 from its
float64 ones. Its micro-batches are only held against float64. Exit status 1 on a difference.
"""

import copy
import os
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

import training

SEED = 20240903
PARTS_TOLERANCE = 1e-6
TEXT = pathlib.Path(__file__).resolve().parents[2] / "docs/architecture.md"
ok = True


def check(what, good):
    global ok
    ok &= bool(good)
    print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)


def worst(ours, theirs, scale=None):
    """The largest relative 2-norm of a difference over all tensors, and its tensor."""
    if missing := theirs.keys() - ours.keys():
        return float("inf"), f"missing {sorted(missing)[:3]}"
    result = (0.0, "")
    for name, value in theirs.items():
        norm = (value if scale is None else scale[name]).double().norm()
        error = ((ours[name].double() - value.double()).norm() / norm).item()
        result = max(result, (error if error == error else float("inf"), name))
    return result


def whole_error(ours, theirs):
    """The relative 2-norm of the difference of two gradients, all tensors as one vector."""
    square = lambda x: x.double().square().sum().item()
    difference = sum(square(ours[k].double() - theirs[k].double()) for k in theirs)
    return (difference / sum(square(v) for v in theirs.values())) ** 0.5


def double_gradients(model, batch):
    """Those of training.gradients in float64, which transformers' norms would round."""
    def norm(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (x * scale)

    classes = (modeling_llama.LlamaRMSNorm, modeling_qwen3.Qwen3RMSNorm)
    rounding = [c.forward for c in classes]
    # Not model.double(), which models from GGUF files refuse.
    model = torch.nn.Module.double(copy.deepcopy(model))
    try:
        for c in classes:
            c.forward = norm
        return training.gradients(model, batch, dtype=torch.float64)[1]
    finally:
        for c, forward in zip(classes, rounding):
            c.forward = forward


class Program:
    def __init__(self, binary, model, folder):
        self.binary, self.model, self.folder = binary, model, folder
        self.count = 0

    def run(self, command, batch, *arguments):
        self.count += 1
        batch_file, out = f"{self.folder}/batch.safetensors", f"{self.folder}/out{self.count}"
        safetensors.torch.save_file(batch, batch_file)
        subprocess.run([self.binary, "inspect", command, "--model", self.model, "--batch",
                        batch_file, "--out", out, "matmul_precision=highest", *arguments],
                       check=True, stdout=subprocess.DEVNULL)
        return safetensors.torch.load_file(
            out if command == "grad" else f"{out}/model.safetensors")


def check_gradients(program, model, batch, name, published=False):
    _, theirs = training.gradients(model, batch)
    ours = program.run("grad", batch)
    error, tensor = worst(ours, theirs)
    check(f"{name}: {len(theirs)} gradients, largest relative difference {error:.1e} ({tensor})",
          error <= 1e-4 and ours.keys() == theirs.keys())
    parts = program.run("grad", batch, "--micro-batches", "2,1,1")
    error, tensor = worst(parts, ours)
    whole = whole_error(parts, ours)
    check(f"{name}: micro-batches 2,1,1 against one batch, the whole gradient {whole:.1e}, at "
          f"worst {error:.1e} ({tensor})", published or whole <= PARTS_TOLERANCE)
    truth = double_gradients(model, batch)
    (one, _), (cut, _), (torchs, _) = (worst(g, truth) for g in (ours, parts, theirs))
    check(f"{name}: against float64 {one:.1e} in one batch, {cut:.1e} cut, torch's float32 "
          f"{torchs:.1e}", cut <= 1.5 * one)
    changed = dict(batch, loss_mask=batch["loss_mask"].clone())
    changed["loss_mask"][0, 0] = 1 - changed["loss_mask"][0, 0]
    error, _ = worst(program.run("grad", changed), theirs)
    check(f"{name}: one more or less token is seen ({error:.1e})", error > 1e-3)


def check_steps(program, model, batch, name):
    start = {k: p.detach().clone() for k, p in model.named_parameters()}
    losses, norms = training.train(model, batch)
    after = {k: p.detach().clone() for k, p in model.named_parameters()}
    change = {k: after[k] - start[k] for k in after}
    settings = ["--steps", str(training.STEPS), "lr_schedule=constant", "learning_rate=1e-2",
                "adam_b1=0.9", "adam_b2=0.95", "adam_eps=1e-8", "adam_weight_decay=0.1",
                "gradient_clipping_threshold=1"]
    error, tensor = worst(program.run("step", batch, *settings), after, change)
    check(f"{name}: weights after {training.STEPS} steps, relative to their change {error:.1e} "
          f"({tensor}); losses {losses[0]:.3f} to {losses[-1]:.3f}, norms {norms.max():.2f} to "
          f"{norms.min():.2f}", error <= 1e-3)
    error, tensor = worst(program.run("step", batch, *settings, "--micro-batches", "2,1,1"),
                          after, change)
    check(f"{name}: the same in micro-batches 2,1,1 {error:.1e} ({tensor})", error <= 1e-3)
    for wrong in ("adam_weight_decay=0.2", "gradient_clipping_threshold=0"):
        error, _ = worst(program.run("step", batch, *settings, wrong), after, change)
        check(f"{name}: {wrong} is seen ({error:.1e})", error > 1e-3)


def main(binary, gguf=None):
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tiny-llama", "tiny-qwen3"):
            path = training.MODELS / name
            model = training.load(path)
            batch = training.make_batch(training.ROWS, training.KEEP, 16, model.config.vocab_size)
            program = Program(binary, str(path), tempfile.mkdtemp(dir=folder))
            check_gradients(program, model, batch, name)
            check_steps(program, model, batch, name)
        if gguf:
            where, file = os.path.split(gguf)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                where, gguf_file=file, dtype=torch.float32).train()
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=file)
            text = tokenizer(TEXT.read_text(), return_tensors="pt")["input_ids"][0]
            batch = training.make_batch([[40, 20], [64], [17, 9, 30], [5]], [0.7, 0.1, 0.5, 1.0],
                                        64, model.config.vocab_size, text)
            check_gradients(Program(binary, gguf, tempfile.mkdtemp(dir=folder)), model, batch, file,
                            published=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
