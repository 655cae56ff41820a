#!/usr/bin/env python3
"""Compares what `plan --search` estimates without a compiler with what the compiler says.

    ./dev bench plan_accuracy [--seed 1] [--cells 30] [--skip 0] [--out FILE]

Draws random legal cells (model, target, mesh, rules, micro-batches, row length, dtypes,
recomputation, optimizer, when weights are gathered and gradients reduced), plans each with
`meshwright plan --json`, and compares by program the estimated memory of a device, the estimated
time, and the bytes that the census says are reduced and gathered over each group of devices, with
the compiled. Draws that the program refuses as illegal are left out, and counted. The same seed
draws the same cells; --skip leaves out the first ones, such as those that an estimate was tuned on.

A compiler may combine collectives, send operands of float32 products as bf16, and do a small or
narrow reduce-scatter as an all-reduce: `same`, `narrowed` and `+AR` in the table. Anything else
`differs`, and is told on stderr.

A cell takes two to five minutes of two cores; what was compiled once is remembered by the program,
so a second run of the same cells, after a change of the estimate, takes seconds. One that does not
fit takes longer: the program then compiles what would make it fit.

Result: a Markdown table, the median and the worst relative error of the device's peak, and of the
time of a step; JSON in --out. Python 3.11, standard library only; libtpu.
"""

import json
import random
import statistics
import sys

import planned

TARGETS = {"tpu7x:2x2x1": 8, "tpu7x:2x2x2": 16, "v6e:2x4": 8, "v5p:2x2x1": 4}
# Heads of keys and values, which tensor must divide.
MODELS = {"smollm2-135m": 3, "smollm2-360m": 5, "qwen3-0.6b": 8, "llama3.2-1b": 8,
          "qwen3-1.7b": 8, "smollm2-1.7b": 32, "qwen3-4b": 8, "llama3.1-8b": 8}


def draw(rng):
    """The flags and settings of a cell; it may turn out illegal."""
    topology = rng.choice(list(TARGETS))
    # The large ones less often.
    model = rng.choices(list(MODELS), weights=[3, 3, 4, 4, 3, 3, 1, 1])[0]
    devices = TARGETS[topology]
    tensor = rng.choice([t for t in (1, 1, 1, 2, 4)
                         if devices % t == 0 and MODELS[model] % t == 0])
    fsdp = rng.choice([f for f in (1, 2, 4, 8, 16) if devices // tensor % f == 0])
    data = devices // tensor // fsdp
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
    mesh = ",".join(f"{axis}={size}" for axis, size in sizes.items() if size > 1)
    rules = ["default"]
    if fsdp > 1:
        rules.append("fsdp-vocab")
    if tensor > 1:
        rules.append("tp-sequence")
    settings = {
        "batch_size": data * fsdp * rng.choice([1, 2]),
        "max_target_length": rng.choice([512, 1024, 2048]),
        "gradient_accumulation_steps": rng.choice([1, 2, 4, 8]),
        "dtype": rng.choice(["bf16", "bf16", "f32"]),
        "remat_policy": rng.choice(["none", "full", "full", "minimal"]),
        "attention": rng.choice(["auto", "plain"]),
        "opt_type": rng.choice(["adamw", "adamw", "adamw", "sgd", "adafactor"]),
        "scan_layers": "true",
    }
    strategies = [{}]
    if fsdp > 1:
        strategies.append({"gather_parameters": "update", "reduce_gradients": "fsdp=update"})
    if data > 1 and fsdp == 1 and settings["opt_type"] == "adamw":
        strategies.append({"shard_optimizer_over_data": "true"})
    settings.update(rng.choice(strategies))
    return ["--model", model, "--topology", topology, "--mesh", mesh, "--rules",
            rng.choice(rules)] + [f"{key}={value}" for key, value in settings.items()]


def plan(program, cell):
    """(plan, "") of a legal cell, (None, reason) of another."""
    done = planned.plan(program, cell)
    if done.returncode == 2:
        return None, done.stderr.strip()
    if done.returncode != 0:
        sys.exit(f"{' '.join(cell)}: {done.stderr.strip()}")
    return json.loads(done.stdout), ""


def first_group(mesh, axes):
    """The devices that differ from device 0 along `axes` alone; mesh is "data=2,fsdp=4"."""
    sizes = [axis.split("=") for axis in mesh.split(",")] if mesh else []
    group, stride = [0], 1
    for axis, size in reversed(sizes):
        if axis in axes:
            group = [device + stride * i for device in group for i in range(int(size))]
        stride *= int(size)
    return tuple(sorted(group))


def collectives(plan_of_cell):
    """(verdict, differences) of the census against what the compiled programs hold."""
    verdicts, differences = set(), []
    for name, kernel in plan_of_cell["kernels"].items():
        ours, compiled = {}, {}
        for row in kernel["census"]:
            sent = ours.setdefault(first_group(plan_of_cell["mesh"], row["axes"]), {})
            sent[row["kind"]] = sent.get(row["kind"], 0) + row["bytes"] * row["trips"]
        for row in kernel["compiled_collectives"]:
            if row["kind"] == "collective_permute":  # of the halves of a gather: no more is sent
                continue
            sent = compiled.setdefault(tuple(sorted(row["first_group"])), {})
            sent[row["kind"]] = sent.get(row["kind"], 0) + row["bytes"]
        for group in sorted(ours.keys() | compiled.keys()):
            mine, theirs = ours.get(group, {}), compiled.get(group, {})
            # An all-reduce sends as much as a reduce-scatter and a gather of the same.
            more = max(0, theirs.get("all_reduce", 0) - mine.get("all_reduce", 0)) / 2
            for kind in ("reduce_scatter", "all_gather"):
                want = mine.get(kind, 0) + mine.get("all_reduce", 0) / 2
                have = theirs.get(kind, 0) + theirs.get("all_reduce", 0) / 2
                if kind == "all_gather" and more > 1e4:
                    have -= more
                    verdicts.add("+AR")
                if abs(have - want) <= 5e-3 * want + 64:
                    continue
                if 0.499 * want <= have < want:
                    verdicts.add("narrowed")
                else:
                    differences.append(f"{name} {kind} over {group}: {want:.0f} by census, "
                                       f"{have:.0f} compiled")
    return "differs" if differences else " ".join(sorted(verdicts)) or "same", differences


def row_of(cell, plan_of_cell):
    """Peaks in GiB and times in ms, estimated and compiled; None where nothing was compiled."""
    kernels = plan_of_cell["kernels"].values()
    if not all("device_bytes" in kernel for kernel in kernels):
        return None
    estimated = max(k["device_bytes"] - k["memory"]["working_bytes"] -
                    k["memory"]["other_bytes"] + k["estimated"]["working_bytes"] for k in kernels)
    verdict, differences = collectives(plan_of_cell)
    for difference in differences:
        print(difference, file=sys.stderr)
    return {
        "cell": " ".join(cell),
        "collectives": verdict,
        "compiled_gib": plan_of_cell["device_peak_gib"],
        "estimated_gib": estimated / 2**30,
        "modelled_ms": plan_of_cell["modelled_ms_per_step"],
        "estimated_ms": plan_of_cell["estimated_ms_per_step"],
        "kernels": {name: {"compiled_bytes": k["device_bytes"],
                           "working_bytes": k["memory"]["working_bytes"],
                           "other_bytes": k["memory"]["other_bytes"],
                           "estimated_working_bytes": k["estimated"]["working_bytes"],
                           "modelled_ms": k["modelled_ms"],
                           "estimated_ms": k["estimated"]["ms"]}
                    for name, k in plan_of_cell["kernels"].items()},
    }


def main():
    parser = planned.parser(__doc__, "plan_accuracy")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=int, default=30)
    parser.add_argument("--skip", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    rows, refused, too_large = [], [], []
    drawn = 0
    while drawn < args.cells:
        cell = draw(rng)
        found, reason = plan(args.program, cell)
        if reason:
            refused.append({"cell": " ".join(cell), "reason": reason})
            continue
        drawn += 1
        if drawn <= args.skip:
            continue
        row = row_of(cell, found)
        if row is None:
            too_large.append({"cell": " ".join(cell), "smaller": found.get("smaller")})
        else:
            rows.append(row)
        print(f"{drawn}: {' '.join(cell)}", file=sys.stderr)

    def errors(estimated, compiled):
        return [abs(row[estimated] / row[compiled] - 1) for row in rows if row[compiled]]

    memory = errors("estimated_gib", "compiled_gib")
    time = errors("estimated_ms", "modelled_ms")
    print("| cell | GiB | estimated | error | ms | estimated | error | collectives |\n"
          "|---|---|---|---|---|---|---|---|")
    for row in rows:
        ms = row["modelled_ms"]
        print(f"| {row['cell']} | {row['compiled_gib']:.2f} | {row['estimated_gib']:.2f} | "
              f"{100 * (row['estimated_gib'] / row['compiled_gib'] - 1):+.0f} % | "
              f"{ms or 0:.1f} | {row['estimated_ms']:.1f} | "
              f"{100 * (row['estimated_ms'] / ms - 1) if ms else 0:+.0f} % | "
              f"{row['collectives']} |")
    if memory:
        print(f"\nmemory: median {100 * statistics.median(memory):.1f} %, worst "
              f"{100 * max(memory):.1f} %", end="")
    if time:
        print(f"; time: median {100 * statistics.median(time):.1f} %, worst "
              f"{100 * max(time):.1f} %", end="")
    print(f"; {len(rows)} cells, {len(too_large)} more do not fit, {len(refused)} draws are not "
          "legal")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"seed": args.seed, "rows": rows, "too_large": too_large,
                                    "refused": refused}, indent=1))


if __name__ == "__main__":
    main()
