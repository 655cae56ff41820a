#!/usr/bin/env python3
"""Reference specs for src/meshwright/spmd: logical axes through flax's own rules.

Run from the repository root, in an environment with flax 0.12.8 and jax 0.10.2:
    python tests/oracle/logical_rules.py
Writes src/meshwright/spmd/testdata/logical_rules_reference.json.

Axes that the mesh does not have are taken out of the rules before flax sees them: flax
has no mesh to look at, and MaxText, whose rules these are, gives its mesh every axis.
"""
import importlib.metadata
import json
import platform
import random

from flax.linen import logical_to_mesh_axes

SEED = 11
NUM_CASES = 150
AXES = ["data", "stage", "fsdp", "fsdp_transpose", "context", "tensor", "expert"]
LOGICAL = ["batch", "length", "embed", "mlp", "heads", "vocab"]


def spec(rules, mesh, axes):
    present = [(name, tuple(a for a in mesh_axes if a in mesh)) for name, mesh_axes in rules]
    dims = []
    for dim in logical_to_mesh_axes(axes, present):
        dims.append([] if dim is None else [dim] if isinstance(dim, str) else list(dim))
    # PartitionSpec of some versions strips trailing dims.
    return dims + [[]] * (len(axes) - len(dims))


def main():
    rng = random.Random(SEED)
    cases = []
    for _ in range(NUM_CASES):
        # Few axes in many rules: most cases have a conflict.
        axes = rng.sample(AXES, rng.randint(2, 5))
        mesh = {a: rng.choice([1, 2, 4]) for a in rng.sample(axes, rng.randint(1, len(axes)))}
        rules = [[rng.choice(LOGICAL), rng.sample(axes, min(len(axes), rng.choice([0, 1, 1, 2, 3])))]
                 for _ in range(rng.randint(1, 10))]
        names = rng.sample(LOGICAL, rng.randint(1, 4))
        tensor = [None if rng.random() < 0.15 else name for name in names]
        cases.append({"mesh": mesh, "rules": rules, "axes": tensor,
                      "spec": spec(rules, mesh, tensor)})
    out = {"command": "python tests/oracle/logical_rules.py", "seed": SEED,
           "versions": {"python": platform.python_version(),
                        "flax": importlib.metadata.version("flax"),
                        "jax": importlib.metadata.version("jax")},
           "cases": cases}
    with open("src/meshwright/spmd/testdata/logical_rules_reference.json", "w") as f:
        head = json.dumps({k: v for k, v in out.items() if k != "cases"})
        f.write(head[:-1] + ', "cases": [\n')
        f.write(",\n".join(json.dumps(c) for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
