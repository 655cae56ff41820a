#!/usr/bin/env python3
"""Trains the same model on one device and over meshes of four, strategy by strategy.

    ./dev bench mesh_vs_one_device [--layers 2] [--only NAME,…] [--set key=value]…

Qwen3-0.6B at full width with fewer layers and random weights, float32, updates of two
micro-batches of four ragged rows of 64 tokens. Each strategy is a `meshwright sft` of its own on
virtual CPU devices. Told of each: the loss of every step and the norm of its gradient, how far they
are from one device's, seconds of the last step (the first ones load pages) and peak resident memory
of the process. All devices share the machine's cores and memory: a time says what the virtual
devices cost each other, not what parallelism is worth. With --limit-gib a run that grows larger is
stopped and said to be.

Result: a Markdown table on stdout. Python 3.11, standard library only.
"""

import argparse
import array
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
    "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    "max_position_embeddings": 40960, "rope_theta": 1000000.0, "hidden_act": "silu",
    "attention_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 151643,
    "eos_token_id": 151645,
}

STRATEGIES = {
    "one device": [],
    "data=4": ["mesh=data=4"],
    "data=4, Zero-1": ["mesh=data=4", "shard_optimizer_over_data=true"],
    "fsdp=4": ["mesh=fsdp=4"],
    "data=2, fsdp=2": ["mesh=data=2,fsdp=2", "reduce_gradients=data=update"],
    "tensor=4": ["mesh=tensor=4"],
    "tensor=4, sequence sharded": ["mesh=tensor=4", "custom_mesh_and_rule=tp-sequence"],
    "fsdp=2, tensor=2": ["mesh=fsdp=2,tensor=2"],
    "fsdp=4, gather and reduce once an update":
        ["mesh=fsdp=4", "gather_parameters=update", "reduce_gradients=fsdp=update"],
}


def write_safetensors(path, tensors):
    """{name: (dtype, dims, bytes)}."""
    header, offset = {}, 0
    for name, (dtype, dims, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


# bfloat16 of random bits whose high byte is 0x3C or 0xBC: 2^-7 … 2^-5 of both signs.
HIGH_BYTES = bytes(0x3C | (i & 1) << 7 for i in range(256))


def random_bf16(count, bits):
    data = bytearray(2 * count)
    data[0::2] = bits.randbytes(count)
    data[1::2] = bits.randbytes(count).translate(HIGH_BYTES)
    return bytes(data)


def write_model(folder, layers):
    bits = random.Random(0)
    c = CONFIG
    width, mlp, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    dims = {"model.embed_tokens.weight": [c["vocab_size"], width], "model.norm.weight": [width]}
    for i in range(layers):
        layer = f"model.layers.{i}."
        dims |= {layer + "input_layernorm.weight": [width],
                 layer + "self_attn.q_proj.weight": [q, width],
                 layer + "self_attn.k_proj.weight": [kv, width],
                 layer + "self_attn.v_proj.weight": [kv, width],
                 layer + "self_attn.o_proj.weight": [width, q],
                 layer + "self_attn.q_norm.weight": [head],
                 layer + "self_attn.k_norm.weight": [head],
                 layer + "post_attention_layernorm.weight": [width],
                 layer + "mlp.gate_proj.weight": [mlp, width],
                 layer + "mlp.up_proj.weight": [mlp, width],
                 layer + "mlp.down_proj.weight": [width, mlp]}
    tensors = {}
    for name, shape in dims.items():
        if len(shape) == 1:
            data = array.array("H", [0x3F80] * shape[0]).tobytes()  # ones
        else:
            data = random_bf16(shape[0] * shape[1], bits)
        tensors[name] = ("BF16", shape, data)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))


def write_rows(path, count, length):
    """Rows of random ids, of lengths from a quarter of `length` to all of it."""
    ids = random.Random(1)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            size = ids.randrange(length // 4, length + 1)
            row = [ids.randrange(CONFIG["vocab_size"]) for _ in range(size)]
            file.write(json.dumps({"input_ids": row}) + "\n")


def resident_bytes(pid, key):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def train(command, environment, limit_bytes):
    """{records, peak_bytes, stopped}."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment, cwd=ROOT)
    result = {"peak_bytes": 0, "stopped": False}

    def watch():
        while process.poll() is None:
            result["peak_bytes"] = max(result["peak_bytes"], resident_bytes(process.pid, "VmHWM"))
            if limit_bytes and resident_bytes(process.pid, "VmRSS") > limit_bytes:
                result["stopped"] = True
                process.kill()
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, errors = process.communicate()
    watcher.join()
    if process.returncode and not result["stopped"]:
        raise SystemExit(f"error: {' '.join(command)}: exit status {process.returncode}\n{errors}")
    lines = [json.loads(line) for line in out.splitlines()]
    result["records"] = [line for line in lines if "learning/loss" in line]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rows", type=int, default=4, help="of a micro-batch")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--only", help="names of strategies, separated by ;")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--limit-gib", type=float, default=0)
    parser.add_argument("--meshwright", default=str(ROOT / "build/release/meshwright"))
    options = parser.parse_args()
    names = options.only.split(";") if options.only else list(STRATEGIES)
    if "one device" not in names:
        names.insert(0, "one device")

    environment = dict(os.environ)
    environment.setdefault("MW_PLUGIN_PATH", str(ROOT / ".deps"))
    print("| strategy | loss of each step | gradient norm | relative difference | seconds a step | "
          "peak GiB |\n|---|---|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_model(folder / "model", options.layers)
        write_rows(folder / "rows.jsonl", 2 * options.rows * options.steps, options.length)
        single = None
        for i, name in enumerate(names):
            command = [options.meshwright, "sft", "--model", str(folder / "model"), "--data",
                       str(folder / "rows.jsonl"), "--out", str(folder / f"run-{i}"), "--json",
                       f"steps={options.steps}", f"batch_size={options.rows}",
                       f"max_target_length={options.length}", "gradient_accumulation_steps=2",
                       "learning_rate=1e-4", "lr_schedule=constant", "enable_checkpointing=false",
                       "tensorboard=false", "matmul_precision=highest", *STRATEGIES[name],
                       *options.set]
            result = train(command, environment, int(options.limit_gib * 2**30))
            peak = f"{result['peak_bytes'] / 2**30:.2f}"
            if result["stopped"]:
                print(f"| {name} | stopped above {options.limit_gib:g} GiB | | | | {peak} |",
                      flush=True)
                continue
            records = result["records"]
            numbers = [[r["learning/loss"], r["learning/grad_norm"]] for r in records]
            single = single or numbers
            worst = max(abs(a - b) / abs(b) for ours, theirs in zip(numbers, single)
                        for a, b in zip(ours, theirs))
            print(f"| {name} | {', '.join(f'{n[0]:.6f}' for n in numbers)} "
                  f"| {', '.join(f'{n[1]:.6f}' for n in numbers)} "
                  f"| {'' if numbers is single else f'{worst:.1e}'} "
                  f"| {records[-1]['perf/step_time_seconds']:.2f} | {peak} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
