#!/usr/bin/env python3
"""Writes src/meshwright/train/testdata/optimizers.safetensors: ten steps of torch's optimizers.

Run:  pip install torch==2.15.0 safetensors==0.8.0
      python3 tests/oracle/optimizers.py

Per case (adamw, sgd, sgd_momentum) a matrix [6, 5], which decays, and a norm [7], which does
not, are given ten random gradients at ten different rates:

  rates                        f32 [10]
  gradients/<parameter>        f32 [10, ...]
  start/<parameter>            f32 [...]
  <case>/<parameter>           f32 [10, ...]: the parameter after each step
  <case>/<slot>/<parameter>    f32 [...]: the optimizer's state after the last

The gradients span six orders of magnitude, and one element of each is always zero.
"""

import pathlib

import safetensors
import safetensors.torch
import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/meshwright/train/testdata"
SEED = 20240901
STEPS = 10
SHAPES = {"matrix": (6, 5), "norm": (7,)}
WEIGHT_DECAY = 0.1
CASES = {
    "adamw": lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8),
    "sgd": lambda groups: torch.optim.SGD(groups),
    "sgd_momentum": lambda groups: torch.optim.SGD(groups, momentum=0.9),
}
SLOTS = {"adamw": {"m": "exp_avg", "v": "exp_avg_sq"}, "sgd": {},
         "sgd_momentum": {"m": "momentum_buffer"}}


def main():
    torch.manual_seed(SEED)
    out = {"rates": 1e-2 * (0.5 + torch.rand(STEPS))}
    for name, shape in SHAPES.items():
        scale = 10.0 ** (-6 * torch.rand(shape))
        gradients = torch.randn(STEPS, *shape) * scale
        gradients.view(STEPS, -1)[:, 0] = 0
        out["gradients/" + name] = gradients
        out["start/" + name] = torch.randn(shape)
    for case, make in CASES.items():
        params = {n: torch.nn.Parameter(out["start/" + n].clone()) for n in SHAPES}
        decay = WEIGHT_DECAY if case == "adamw" else 0.0
        optimizer = make([dict(params=[params["matrix"]], weight_decay=decay, lr=0.0),
                          dict(params=[params["norm"]], weight_decay=0.0, lr=0.0)])
        history = {n: [] for n in SHAPES}
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = float(out["rates"][step])
            for n, p in params.items():
                p.grad = out["gradients/" + n][step].clone()
            optimizer.step()
            for n, p in params.items():
                history[n].append(p.detach().clone())
        for n, p in params.items():
            out[f"{case}/{n}"] = torch.stack(history[n])
            for slot, theirs in SLOTS[case].items():
                out[f"{case}/{slot}/{n}"] = optimizer.state[p][theirs].clone()
    OUT.mkdir(parents=True, exist_ok=True)
    versions = dict(command="python3 tests/oracle/optimizers.py", seed=str(SEED),
                    torch=torch.__version__, safetensors=safetensors.__version__)
    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(out.items())},
                                OUT / "optimizers.safetensors", metadata=versions)
    print(versions, {k: tuple(v.shape) for k, v in out.items()})


if __name__ == "__main__":
    main()
