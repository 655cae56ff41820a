#!/usr/bin/env python3
"""What steps of qwen3-0.6b and llama3.1-8b take on TPU7x, by layout: the tables of docs/sharding.md.

    ./dev bench plan_table [--only REGEX] [--out FILE]

Plans each row with `meshwright plan --json` for tpu7x:2x2x1 (8 devices), without and with the cost
that kernels declare (--kernel-costs): other engines' kernels declare none, and are compared with the first.
A step of GA=1 is first_kernel and update_kernel of the same plan. Nothing is run.

A row takes ten to twenty minutes of two cores; what was compiled once is remembered by the program.
Result: a Markdown table; JSON of all plans in --out. Python 3.11, standard library only; libtpu.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
QWEN = ("--model qwen3-0.6b batch_size=8 max_target_length=1024 gradient_accumulation_steps=8 "
        "remat_policy=full").split()
LLAMA = ("--model llama3.1-8b --mesh fsdp=8 --rules fsdp-vocab batch_size=8 max_target_length=1024 "
         "gradient_accumulation_steps=4 scan_layers=true dtype=bf16").split()
LAYOUTS = {
    "data=8": ["--mesh", "data=8"],
    "data=8, summed in each micro-batch": ["--mesh", "data=8",
                                           "reduce_gradients=data=micro_batch"],
    "data=8, Zero-1": ["--mesh", "data=8", "shard_optimizer_over_data=true"],
    "fsdp=8": ["--mesh", "fsdp=8", "--rules", "fsdp-vocab"],
    "fsdp=8, once an update": ["--mesh", "fsdp=8", "--rules", "fsdp-vocab",
                               "gather_parameters=update", "reduce_gradients=fsdp=update"],
}


def rows():
    for scan in ("true", "false"):
        for dtype in ("bf16", "f32"):
            for layout, flags in LAYOUTS.items():
                name = f"qwen3-0.6b, {dtype}, {'scanned' if scan == 'true' else 'unscanned'}, {layout}"
                yield name, QWEN + flags + [f"dtype={dtype}", f"scan_layers={scan}"]
    for remat in ("full", "minimal"):
        yield f"llama3.1-8b, bf16, remat {remat}, fsdp=8", LLAMA + [f"remat_policy={remat}"]
        yield (f"llama3.1-8b, bf16, remat {remat}, fsdp=8, once an update",
               LLAMA + [f"remat_policy={remat}"] + LAYOUTS["fsdp=8, once an update"][4:])


def plan(program, flags, costs):
    command = [program, "plan", "--json", "--quiet", "--topology", "tpu7x:2x2x1", "--kernel-costs",
               costs, *flags]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {
        "MW_PLUGIN_PATH": os.environ.get("MW_PLUGIN_PATH", str(ROOT / ".deps"))})
    if done.returncode != 0:
        sys.exit(f"{' '.join(flags)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def figures(planned):
    """ms of the programs, of the step and of one of a single micro-batch; GiB of the two steps."""
    kernels = planned["kernels"]
    if not all("device_bytes" in kernel for kernel in kernels.values()):
        return None
    ms = {name.removesuffix("_kernel"): kernel["modelled_ms"] for name, kernel in kernels.items()}
    single = [kernels["first_kernel"], kernels["update_kernel"]]
    return {"ms": ms, "step_ms": planned["modelled_ms_per_step"],
            "single_ms": sum(k["modelled_ms"] for k in single),
            "timeline_ms": planned["timeline_ms_per_step"],
            "gib": planned["device_peak_gib"],
            "single_gib": max(k["device_bytes"] for k in single) / 2**30,
            "sent_gib": planned["sent_bytes_per_step"] / 2**30}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name it matches")
    parser.add_argument("--program", default=str(ROOT / "build/release/meshwright"))
    parser.add_argument("--out", default=str(ROOT / "build/bench/plan_table.json"))
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    plans = {}
    print("| row | first, accum, update: ms | step: ms | declared | in turn | GiB | GA=1: ms | "
          "declared | GiB | sent GiB |\n|---|---|---|---|---|---|---|---|---|---|")
    for name, flags in rows():
        if not re.search(args.only, name):
            continue
        both = {costs: plan(args.program, flags, costs) for costs in ("none", "declared")}
        plans[name] = both
        free, declared = figures(both["none"]), figures(both["declared"])
        if free is None or declared is None:
            print(f"| {name} | does not fit | | | | | | | | |", flush=True)
            continue
        print(f"| {name} | {', '.join(f'{ms:.1f}' for ms in free['ms'].values())} | "
              f"{free['step_ms']:.1f} | {declared['step_ms']:.1f} | {declared['timeline_ms']:.0f} | "
              f"{declared['gib']:.2f} | {free['single_ms']:.1f} | {declared['single_ms']:.1f} | "
              f"{declared['single_gib']:.2f} | {declared['sent_gib']:.1f} |", flush=True)
        out.write_text(json.dumps(plans))


if __name__ == "__main__":
    main()
