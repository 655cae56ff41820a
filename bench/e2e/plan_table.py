#!/usr/bin/env python3
"""What steps of qwen3-0.6b and llama3.1-8b take on TPU7x, by layout: the tables of docs/sharding.md.

    ./dev bench plan_table [--only REGEX] [--costs none,declared] [--out FILE]

Plans each row with `meshwright plan --json` for tpu7x:2x2x1 (8 devices), without and with the cost
that kernels declare (--kernel-costs): other engines' kernels declare none, and are compared with the first.
A step of GA=1 is first_kernel and update_kernel of the same plan. --costs none leaves the declared
columns empty and takes half the time. Nothing is run.

A row takes ten to twenty minutes of two cores; what was compiled once is remembered by the program.
Result: a Markdown table; JSON of all plans in --out. Python 3.11, standard library only; libtpu.
"""

import json
import re
import sys

import planned

QWEN = ("--model qwen3-0.6b batch_size=8 max_target_length=1024 gradient_accumulation_steps=8 "
        "remat_policy=full").split()
LLAMA = ("--model llama3.1-8b batch_size=8 max_target_length=1024 gradient_accumulation_steps=4 "
         "scan_layers=true dtype=bf16").split()
FSDP = ["--mesh", "fsdp=8", "--rules", "fsdp-vocab"]
ONCE_AN_UPDATE = ["gather_parameters=update", "reduce_gradients=fsdp=update"]
LAYOUTS = {
    "data=8": ["--mesh", "data=8"],
    "data=8, summed in each micro-batch": ["--mesh", "data=8",
                                           "reduce_gradients=data=micro_batch"],
    "data=8, summed layer by layer": ["--mesh", "data=8", "reduce_gradients=data=layer"],
    "data=8, one micro-batch in one program, summed layer by layer": [
        "--mesh", "data=8", "reduce_gradients=data=layer", "--entry", "train_step",
        "gradient_accumulation_steps=1"],
    "data=8, Zero-1": ["--mesh", "data=8", "shard_optimizer_over_data=true"],
    "fsdp=8": FSDP,
    "fsdp=8, once an update": FSDP + ONCE_AN_UPDATE,
}


def rows():
    for scan, scanned in (("true", "scanned"), ("false", "unscanned")):
        for dtype in ("bf16", "f32"):
            for layout, flags in LAYOUTS.items():
                if scan == "false" and "layer by layer" in layout:
                    continue  # needs the loop
                yield (f"qwen3-0.6b, {dtype}, {scanned}, {layout}",
                       QWEN + flags + [f"dtype={dtype}", f"scan_layers={scan}"])
    yield ("llama3.1-8b, bf16, scanned, fsdp=8, remat full, prefetched",
           LLAMA + FSDP + ["remat_policy=full", "fsdp_prefetch=true"])
    yield ("llama3.1-8b, bf16, scanned, fsdp=8, remat minimal, once an update",
           LLAMA + FSDP + ["remat_policy=minimal"] + ONCE_AN_UPDATE)


def plan(program, flags, costs):
    done = planned.plan(program, ["--topology", "tpu7x:2x2x1", "--kernel-costs", costs, *flags])
    if done.returncode != 0:
        sys.exit(f"{' '.join(flags)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def figures(of):
    """ms of the programs, of the step and of one of a single micro-batch; GiB of the two steps."""
    kernels = of["kernels"]
    if not all("device_bytes" in kernel for kernel in kernels.values()):
        return None
    ms = {name.removesuffix("_kernel"): kernel["modelled_ms"] for name, kernel in kernels.items()}
    single = [kernels[name] for name in ("first_kernel", "update_kernel", "train_step_kernel")
              if name in kernels]
    return {"ms": ms, "step_ms": of["modelled_ms_per_step"],
            "single_ms": sum(k["modelled_ms"] for k in single),
            "timeline_ms": of["timeline_ms_per_step"],
            "gib": of["device_peak_gib"],
            "single_gib": max(k["device_bytes"] for k in single) / 2**30,
            "sent_gib": of["sent_bytes_per_step"] / 2**30}


def main():
    parser = planned.parser(__doc__, "plan_table")
    parser.add_argument("--only", default="", help="rows whose name it matches")
    parser.add_argument("--costs", default="none,declared", choices=["none", "none,declared"])
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    plans = {}
    print("| row | first, accum, update: ms | step: ms | declared | in turn | GiB | GA=1: ms | "
          "declared | GiB | sent GiB |\n|---|---|---|---|---|---|---|---|---|---|")
    for name, flags in rows():
        if not re.search(args.only, name):
            continue
        plans[name] = {costs: plan(args.program, flags, costs) for costs in args.costs.split(",")}
        by_costs = {costs: figures(found) for costs, found in plans[name].items()}
        if None in by_costs.values():
            print(f"| {name} | does not fit | | | | | | | | |", flush=True)
            continue
        free, declared = by_costs["none"], by_costs.get("declared")

        def column(key):
            return f"{declared[key]:.1f}" if declared else ""

        print(f"| {name} | {', '.join(f'{ms:.1f}' for ms in free['ms'].values())} | "
              f"{free['step_ms']:.1f} | {column('step_ms')} | {column('timeline_ms')} | "
              f"{free['gib']:.2f} | {free['single_ms']:.1f} | {column('single_ms')} | "
              f"{free['single_gib']:.2f} | {free['sent_gib']:.1f} |", flush=True)
        args.out.write_text(json.dumps(plans))


if __name__ == "__main__":
    main()
