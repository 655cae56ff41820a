#!/usr/bin/env python3
"""Runs examples/trainer_client/client.py, as docs/serve.md says, against `meshwright serve`.

    tests/integration/trainer_client.py --meshwright build/release/meshwright

Its gRPC is somebody else's implementation of the protocol and of protobuf: pinned by sha256, in a
virtual environment below the cache folder; the first run needs a network, Python 3.11 and x86-64.
The losses and the weights that the client saw are compared with the same steps by
`meshwright inspect step`.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from pinned_python import pinned_python  # noqa: E402

WHEELS = """
grpcio==1.80.0 --hash=sha256:09e5e478b3d14afd23f12e49e8b44c8684ac3c5f08561c43a5b9691c54d136ab
grpcio-tools==1.80.0 --hash=sha256:1872a867eb6217de19edb70a4ce4a374ced9d94293533dfd42fa649713f55bf4
numpy==2.4.6 --hash=sha256:89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93
protobuf==6.33.6 --hash=sha256:e9db7e292e0ab79dd108d7f1a94fe31601ce1ee3f7b79e0692043423020b0593
setuptools==84.2.1 --hash=sha256:ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2
typing-extensions==4.16.0 --hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8
"""
MODEL = "random:tiny-llama:5"
SETTINGS = ["learning_rate=1e-2", "lr_schedule=constant", "steps=10"]
STEPS = 10


def fail(message):
    raise SystemExit(f"FAILED: {message}")


def run(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} and the metadata."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length:]
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])])
            for name, e in header.items()}, metadata


def write_batch(path):
    """The four rows of the client as a batch file."""
    rows = [[(17 * r + t) % 29 for t in range(17)] for r in range(4)]
    tensors = {"loss_mask": ("F32", struct.pack("<64f", *[1.0] * 64)),
               "targets": ("I32", struct.pack("<64i", *[x for row in rows for x in row[1:]])),
               "tokens": ("I32", struct.pack("<64i", *[x for row in rows for x in row[:-1]]))}
    header, body = {}, b""
    for name, (dtype, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [4, 16], "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meshwright", required=True)
    program = pathlib.Path(parser.parse_args().meshwright).resolve()
    client = ROOT / "examples/trainer_client/client.py"
    if len(client.read_text().splitlines()) >= 40:
        fail("the example is to stay below 40 lines")
    try:
        python = pinned_python("venv-grpc-1.80.0", WHEELS)
    except RuntimeError as error:
        fail(error)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, "MW_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder)}
        run([python, "-m", "grpc_tools.protoc", "-I", ROOT / "proto", "--python_out", folder,
             "--grpc_python_out", folder, "meshwright/v1/trainer.proto"])
        server = subprocess.Popen([program, "serve", "--model", MODEL, "--quiet", *SETTINGS],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=environment)
        try:
            line = server.stdout.readline()
            if not line:
                fail(server.stderr.read())
            weights_file = folder / "weights.safetensors"
            text = run([python, client, json.loads(line)["address"], weights_file], env=environment)
        finally:
            server.send_signal(signal.SIGTERM)
            last, error = server.communicate()
        if server.returncode != 0 or json.loads(last) != {"event": "stopped", "policy_version": STEPS}:
            fail(f"serve ended with {server.returncode}: {last}{error}")
        losses = [float(x) for x in re.findall(r"step \d+: loss ([0-9.]+)", text)]
        print(text)

        # The same rows in the same two parts, ten times, without a service.
        write_batch(folder / "batch.safetensors")
        lines = run([program, "inspect", "step", "--model", MODEL, "--batch",
                     folder / "batch.safetensors", "--steps", STEPS, "--micro-batches", 2, "--out",
                     folder / "steps", "--json", *SETTINGS], env=environment).splitlines()
        expected = [json.loads(each)["learning/loss"] for each in lines if "learning/loss" in each]
        if len(losses) != STEPS or any(abs(a - b) > 1e-4 for a, b in zip(losses, expected, strict=True)):
            fail(f"other losses than those of inspect step: {losses}, {expected}")
        if losses[-1] > 0.8 * losses[0]:
            fail(f"nothing was learned: {losses}")
        served, metadata = read_safetensors(weights_file)
        alone, _ = read_safetensors(folder / "steps/model.safetensors")
        if metadata.get("policy_version") != str(STEPS):
            fail(f"the weights are of another version: {metadata}")
        if served != alone:
            different = sorted(name for name in served.keys() | alone.keys()
                               if served.get(name) != alone.get(name))
            fail(f"other bits than after inspect step: {different}")
    print(f"{len(served)} tensors are the same bits as without the service")


if __name__ == "__main__":
    sys.exit(main())
