#!/usr/bin/env python3
"""Writes src/meshwright/rl/testdata/rollout_metrics.json: what records say of samples, and advantages.

Run:  pip install torch==2.15.0
      python3 tests/oracle/rollout_metrics.py

For each of CASES, prompts x samples: rewards of two kinds, lengths and which were cut, drawn from the
seed, and in float64 by torch's own mean, std and masks

  metrics      the rl/ and eval/ values as Meshwright names them
  advantages   of each mode, with std of both normalizations; exactly 0 in groups of one reward
"""

import json
import pathlib

import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/meshwright/rl/testdata/rollout_metrics.json"
SEED = 20240921
CASES = [(1, 2), (3, 4), (5, 8)]  # prompts, samples of each
NAMES = ["numeric", "length"]
EPS = 1e-6


def advantages(rewards):
    """By group (rows); torch's std is the one of n - correction."""
    same = (rewards == rewards[:, :1]).all(dim=1, keepdim=True)
    centered = rewards - rewards.mean(dim=1, keepdim=True)
    size = rewards.shape[1]
    others = (rewards.sum(dim=1, keepdim=True) - rewards) / (size - 1)
    modes = {
        "std_ddof1": centered / (rewards.std(dim=1, correction=1, keepdim=True) + EPS),
        "std_ddof0": centered / (rewards.std(dim=1, correction=0, keepdim=True) + EPS),
        "none": centered,
        "rloo": rewards - others,
    }
    return {k: torch.where(same, 0.0, v).flatten().tolist() for k, v in modes.items()}


def main():
    generator = torch.Generator().manual_seed(SEED)
    cases = []
    for prompts, samples in CASES:
        shape = (prompts, samples)
        right = torch.randint(0, 2, shape, generator=generator).double()
        right[0] = 1.0  # a group that agrees
        overlong = -torch.rand(shape, generator=generator, dtype=torch.float64)
        overlong[0] = -0.25
        rewards = right + 0.5 * overlong
        lengths = torch.randint(1, 33, shape, generator=generator)
        cut = torch.rand(shape, generator=generator) < 0.3
        parts = {NAMES[0]: right, NAMES[1]: overlong}
        zero_std = rewards.std(dim=1, correction=0) == 0
        metrics = {
            "rl/reward_mean": rewards.mean(),
            "rl/reward_std": rewards.flatten().std(correction=1),
            "rl/completion_length_mean": lengths.double().mean(),
            "rl/completion_length_min": lengths.min(),
            "rl/completion_length_max": lengths.max(),
            "rl/truncated_fraction": cut.double().mean(),
            "rl/num_samples": torch.tensor(rewards.numel()),
            "rl/frac_reward_zero_std": zero_std.double().mean(),
            "eval/reward": rewards.mean(),
            "eval/reward_stderr": rewards.flatten().std(correction=1) / rewards.numel() ** 0.5,
            "eval/num_samples": torch.tensor(rewards.numel()),
            "eval/completion_length_mean": lengths.double().mean(),
            "eval/truncated_fraction": cut.double().mean(),
            **{f"{group}/reward/{name}": part.mean()
               for group in ("rl", "eval") for name, part in parts.items()},
        }
        cases.append(dict(
            groups=[g for g in range(prompts) for _ in range(samples)],
            rewards=rewards.flatten().tolist(),
            parts={k: v.flatten().tolist() for k, v in parts.items()},
            lengths=lengths.flatten().tolist(), truncated=cut.flatten().tolist(),
            metrics={k: v.item() for k, v in metrics.items()}, advantages=advantages(rewards)))
    out = dict(command="python3 tests/oracle/rollout_metrics.py", seed=SEED,
               torch=torch.__version__, eps=EPS, names=NAMES, cases=cases)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(out, separators=(",", ":")) + "\n")
    print(OUT, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
