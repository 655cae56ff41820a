"""Computes what every op case must give, with JAX instead of our lowering.

    pip install jax==0.10.2
    MW_EXPORT_OP_CASES=/tmp/cases.json build/dev/autodiff_test --gtest_filter='OpRegistryTest.*'
    python tests/oracle/ops.py /tmp/cases.json src/meshwright/ops/testdata/op_reference.json

The input holds the graphs of src/meshwright/graph_testing/op_cases*.cc and their
inputs. Each op is interpreted here by the jax.numpy or jax.lax function of that
meaning, so a wrong shape rule, attribute or lowering of ours shows as a difference.
"""

import json
import platform
import sys

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

DTYPES = {
    "pred": np.bool_, "s8": np.int8, "s32": np.int32, "s64": np.int64, "u8": np.uint8,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f32": np.float32, "f64": np.float64,
}
NAMES = {np.dtype(v): k for k, v in DTYPES.items()}


def dtype_of(node):
    return DTYPES[node["types"][0]["dtype"]]


def dims_of(node):
    return tuple(node["types"][0]["dims"])


def reduce(attrs, x):
    axes = tuple(attrs["dims"])
    kind = attrs["kind"]
    if kind == "add":
        return jnp.sum(x, axes, dtype=x.dtype)
    if kind == "mul":
        return jnp.prod(x, axes, dtype=x.dtype)
    if kind in ("and", "or"):
        return (jnp.all if kind == "and" else jnp.any)(x, axes)
    info = jnp.finfo(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype)
    if kind == "max":
        return jnp.max(x, axes, initial=info.min)
    return jnp.min(x, axes, initial=info.max)


def dot_general(node, a, b):
    attrs = node["attrs"]
    dims = ((attrs["lhs_contract"], attrs["rhs_contract"]), (attrs["lhs_batch"], attrs["rhs_batch"]))
    return lax.dot_general(a, b, dims, precision="highest", preferred_element_type=dtype_of(node))


def cumsum(attrs, x):
    dim = attrs["dim"]
    if attrs["reverse"]:
        x = jnp.flip(x, dim)
    y = jnp.cumsum(x, dim, dtype=x.dtype)
    if attrs["exclusive"]:
        y = y - x
    return jnp.flip(y, dim) if attrs["reverse"] else y


def sort(attrs, *operands):
    order = jnp.argsort(operands[0], axis=attrs["dim"], stable=True, descending=attrs["descending"])
    return [jnp.take_along_axis(x, order, attrs["dim"]) for x in operands]


def scatter_add_rows(attrs, x, ids, updates):
    ids = ids.astype(np.int64)
    if attrs["clamp"]:
        ids = jnp.clip(ids, 0, x.shape[0] - 1)
    # A negative index would count from the end in JAX.
    ids = jnp.where(ids < 0, x.shape[0], ids)
    return x.at[ids].add(updates, mode="drop")


def philox(*words):
    mask = 0xFFFFFFFF
    shape = words[0].shape
    words = [np.asarray(w, dtype=object).reshape(-1) for w in words]
    out = [[], [], [], []]
    for c0, c1, c2, c3, k0, k1 in zip(*words):
        c0, c1, c2, c3, k0, k1 = (int(w) for w in (c0, c1, c2, c3, k0, k1))
        for _ in range(10):
            p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
            c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
            k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
        for words_i, word in zip(out, (c0, c1, c2, c3)):
            words_i.append(word)
    return [np.array(w, dtype=np.uint32).reshape(shape) for w in out]


def sample_token(attrs, logits, ids, steps, seed, temperature, log_prob_temperature):
    """Gumbel noise of philox's words, element w * Q + b of a row being word w of its block b."""
    rows, vocab = logits.shape
    blocks = -(-vocab // 4)
    full = lambda x: np.broadcast_to(np.asarray(x), (rows, blocks))
    words = philox(full(np.arange(blocks)), full(np.asarray(ids)[:, None]),
                   full(np.asarray(steps)[:, None]), full(attrs["site"]), full(seed[0]), full(seed[1]))
    bits = np.concatenate(words, 1)[:, :vocab].astype(np.float64)
    noise = -np.log(-np.log((np.floor(bits / 512) + 0.5) * 2.0 ** -23))
    tokens = np.argmax(logits / temperature + noise, 1)
    log_probs = jax.nn.log_softmax(logits / log_prob_temperature)
    return [tokens.astype(np.int32), log_probs[np.arange(rows), tokens].astype(np.float32)]


def scan(node, args):
    attrs = node["attrs"]
    num_carry, num_xs, sinks = attrs["num_carry"], attrs["num_xs"], attrs["y_sinks"]
    num_sinks = sum(s >= 0 for s in sinks)
    carry, xs = args[:num_carry], args[num_carry:num_carry + num_xs]
    captures = args[num_carry + num_xs + num_sinks:]
    ys = [[None] * attrs["length"] for _ in sinks]
    steps = range(attrs["length"])
    for i in reversed(steps) if attrs["reverse"] else steps:
        out = run(node["regions"][0], [*carry, *(x[i] for x in xs), *captures])
        carry = out[:num_carry]
        for y, value in zip(ys, out[num_carry:]):
            y[i] = value
    stacked = []
    for sink, y in zip(sinks, ys):
        value = jnp.stack(y)
        stacked.append(value if sink < 0 else args[num_carry + num_xs + sink] + value)
    return [*carry, *stacked]


def attention_mask(q, segments):
    tokens = jnp.arange(q.shape[3])
    same = segments[:, :, None] == segments[:, None, :]
    return (same & (tokens[:, None] >= tokens))[:, None, None]


def attention(node, q, k, v, segments):
    """Query by query, each over the keys that it sees."""
    scale = node["attrs"]["scale"]
    out, lse = np.zeros(q.shape, q.dtype), np.zeros(q.shape[:4], np.float32)
    for b, kv, g, t in np.ndindex(*q.shape[:4]):
        seen = [s for s in range(t + 1) if segments[b, s] == segments[b, t]]
        s = jnp.array([jnp.dot(q[b, kv, g, t].astype(np.float32), k[b, kv, i].astype(np.float32))
                       for i in seen]) * np.float32(scale)
        lse[b, kv, g, t] = jax.nn.logsumexp(s)
        p = jax.nn.softmax(s).astype(q.dtype).astype(np.float32)
        rows = jnp.stack([v[b, kv, i] for i in seen]).astype(np.float32)
        out[b, kv, g, t] = (p @ rows).astype(q.dtype)
    return [out, lse]


def attention_grad(node, q, k, v, segments, lse, delta, dout):
    """With the given lse and delta, which need not be those of the operands."""
    scale = node["attrs"]["scale"]
    s = jnp.einsum("bkgth,bksh->bkgts", q, k, precision="highest") * scale
    p = jnp.where(attention_mask(q, segments), jnp.exp(s - lse[..., None]), 0)
    dp = jnp.einsum("bkgth,bksh->bkgts", dout, v, precision="highest")
    ds = p * (dp - delta[..., None])
    return [jnp.einsum("bkgts,bksh->bkgth", ds, k, precision="highest") * scale,
            jnp.einsum("bkgts,bkgth->bksh", ds, q, precision="highest") * scale,
            jnp.einsum("bkgts,bkgth->bksh", p, dout, precision="highest")]


def cached_attention(node, q, k, v, k_cache, v_cache, layer, start):
    """Token by token, each over the slots that are filled when it is in."""
    scale = node["attrs"]["scale"]
    k_cache, v_cache = np.array(k_cache), np.array(v_cache)
    out = np.zeros(q.shape, q.dtype)
    for b, t, kv in np.ndindex(*q.shape[:3]):
        k_cache[layer, b, start[b] + t, kv] = k[b, t, kv].astype(k_cache.dtype)
        v_cache[layer, b, start[b] + t, kv] = v[b, t, kv].astype(v_cache.dtype)
        keys = k_cache[layer, b, :start[b] + t + 1, kv].astype(q.dtype).astype(np.float32)
        values = v_cache[layer, b, :start[b] + t + 1, kv].astype(q.dtype).astype(np.float32)
        for g in range(q.shape[3]):
            s = keys @ q[b, t, kv, g].astype(np.float32) * np.float32(scale)
            p = np.asarray(jax.nn.softmax(s)).astype(q.dtype).astype(np.float32)
            out[b, t, kv, g] = (p @ values).astype(q.dtype)
    return [out, k_cache, v_cache]


def scaled_gradient(grad, scale, dtype):
    return (grad * scale).astype(DTYPES[dtype]).astype(jnp.float32)


def adamw(attrs, p, m, v, grad, rate, m_correction, v_correction, scale, shrink, apply):
    """As optax.adamw has it, with corrections that are given."""
    if not bool(apply):
        return [p, m, v]
    b1, b2 = np.float32(attrs["b1"]), np.float32(attrs["b2"])
    g = scaled_gradient(grad, scale, attrs["grad_dtype"]) * shrink
    new_m, new_v = m + (1 - b1) * (g - m), v + (1 - b2) * (g * g - v)
    step = new_m / m_correction / (jnp.sqrt(new_v / v_correction) + np.float32(attrs["eps"]))
    wide = p.astype(np.float32)
    step = step + np.float32(attrs["decay"]) * wide
    return [(wide - rate * step).astype(p.dtype), new_m, new_v]


UNARY = {
    "abs": jnp.abs, "cos": jnp.cos, "exp": jnp.exp, "expm1": jnp.expm1, "floor": jnp.floor,
    "is_finite": jnp.isfinite, "log": jnp.log, "log1p": jnp.log1p, "logistic": jax.nn.sigmoid,
    "neg": jnp.negative, "not": jnp.invert, "rsqrt": lax.rsqrt, "sign": jnp.sign, "sin": jnp.sin,
    "sqrt": jnp.sqrt, "tanh": jnp.tanh, "constrain": lambda x: x, "name": lambda x: x, "materialize": lambda x: x,
    "stop_gradient": lambda x: x,
}
BINARY = {
    "add": jnp.add, "and": jnp.bitwise_and, "div": lax.div, "max": jnp.maximum, "min": jnp.minimum,
    "mul": jnp.multiply, "or": jnp.bitwise_or, "pow": jnp.power, "rem": lax.rem,
    "shift_left": jnp.left_shift, "shift_right_logical": lax.shift_right_logical,
    "sub": jnp.subtract, "xor": jnp.bitwise_xor,
}
COMPARE = {
    "EQ": jnp.equal, "NE": jnp.not_equal, "LT": jnp.less, "LE": jnp.less_equal,
    "GT": jnp.greater, "GE": jnp.greater_equal,
}


def apply(node, args):
    op, attrs = node["op"], node["attrs"]
    if op in UNARY:
        return UNARY[op](*args)
    if op in BINARY:
        return BINARY[op](*args)
    if op == "adamw":
        return adamw(attrs, *args)
    if op == "sum_of_squares":
        return jnp.sum(jnp.square(scaled_gradient(*args, attrs["dtype"])))
    if op == "attention":
        return attention(node, *args)
    if op == "attention_grad":
        return [x.astype(np.float32) for x in attention_grad(node, *args)]
    if op == "cached_attention":
        return cached_attention(node, *(np.asarray(a) for a in args))
    if op == "quantized_dot":
        x, data, scales = args
        blocks = data.astype(jnp.float32).reshape(*scales.shape, -1)
        w = (blocks * scales[..., None]).reshape(data.shape).astype(x.dtype)
        return lax.dot_general(x, w, (((x.ndim - 1,), (1,)), ((), ())), precision="highest",
                               preferred_element_type=DTYPES[attrs["out_dtype"]])
    if op == "broadcast_in_dim":
        shape = [1] * len(attrs["dims"])
        for size, dim in zip(args[0].shape, attrs["broadcast_dimensions"]):
            shape[dim] = size
        return jnp.broadcast_to(args[0].reshape(shape), attrs["dims"])
    if op == "compare":
        return COMPARE[attrs["direction"]](*args)
    if op == "concatenate":
        return jnp.concatenate(args, attrs["dim"])
    if op == "constant":
        values = np.array([float(v) for v in attrs["values"]])
        return jnp.asarray(np.broadcast_to(values, (int(np.prod(dims_of(node))),)).reshape(
            dims_of(node)).astype(dtype_of(node)))
    if op == "convert":
        return args[0].astype(DTYPES[attrs["dtype"]])
    if op == "cumsum":
        return cumsum(attrs, *args)
    if op == "dot_general":
        return dot_general(node, *args)
    if op == "dynamic_slice":
        return lax.dynamic_slice(args[0], _starts(args[0], args[1:], attrs["sizes"]), attrs["sizes"])
    if op == "dynamic_update_slice":
        starts = _starts(args[0], args[2:], args[1].shape)
        return lax.dynamic_update_slice(args[0], args[1], starts)
    if op == "iota":
        return lax.broadcasted_iota(dtype_of(node), dims_of(node), attrs["dim"])
    if op == "optimization_barrier":
        return list(args)
    if op == "pad":
        config = list(zip(attrs["low"], attrs["high"], attrs["interior"]))
        return lax.pad(args[0], args[1], config)
    if op == "philox":
        return philox(*args)
    if op == "reduce":
        return reduce(attrs, *args)
    if op == "remat":
        return run(node["regions"][0], args)
    if op == "reshape":
        return args[0].reshape(attrs["dims"])
    if op == "reverse":
        return jnp.flip(args[0], attrs["dims"])
    if op == "sample_token":
        return sample_token(attrs, *args)
    if op == "scan":
        return scan(node, args)
    if op == "scatter_add_rows":
        return scatter_add_rows(attrs, *args)
    if op == "select":
        return jnp.where(*args)
    if op == "slice":
        return lax.slice(args[0], attrs["starts"], attrs["limits"], attrs["strides"])
    if op == "sort":
        return sort(attrs, *args)
    if op == "take_rows":
        return jnp.take(args[0], jnp.clip(args[1].astype(np.int64), 0, args[0].shape[0] - 1), axis=0)
    if op == "top_k":
        return lax.top_k(args[0], attrs["k"])
    if op == "transpose":
        return jnp.transpose(args[0], attrs["permutation"])
    raise KeyError(f"tests/oracle/ops.py does not know the op '{op}'")


def _starts(x, starts, sizes):
    # lax counts negative starts from the end; StableHLO clamps them to 0.
    return [int(np.clip(int(s), 0, n - k)) for s, n, k in zip(starts, x.shape, sizes)]


def run(graph, inputs):
    values = {(p, 0): x for p, x in zip(graph["parameters"], inputs)}
    for node in graph["nodes"]:
        results = apply(node, [values[tuple(v)] for v in node["operands"]])
        if not isinstance(results, (list, tuple)):
            results = [results]
        for i, (result, kind) in enumerate(zip(results, node["types"], strict=True)):
            result = jnp.asarray(result)
            if list(result.shape) != kind["dims"] or NAMES[result.dtype] != kind["dtype"]:
                raise ValueError(f"{node['op']}: JAX gives {result.dtype}{result.shape}, the shape "
                                 f"rule says {kind}")
            values[node["id"], i] = result
    return [values[tuple(v)] for v in graph["outputs"]]


def decode(tensor):
    values = [float(v) if isinstance(v, str) else v for v in tensor["values"]]
    wide = np.float64 if tensor["dtype"] in ("f16", "bf16", "f32", "f64") else np.int64
    if tensor["dtype"] == "u64":
        wide = np.uint64
    return jnp.asarray(np.array(values, dtype=wide).astype(DTYPES[tensor["dtype"]]).reshape(
        tensor["dims"]))


def encode(value):
    def number(v):
        v = v.item()
        if isinstance(v, bool):
            return int(v)
        if isinstance(v, float) and not np.isfinite(v):
            return "nan" if np.isnan(v) else ("inf" if v > 0 else "-inf")
        return v

    value = np.asarray(value)
    wide = value.astype(np.float64) if value.dtype == ml_dtypes.bfloat16 else value
    return {"dtype": NAMES[value.dtype], "dims": list(value.shape),
            "values": [number(v) for v in wide.reshape(-1)]}


def main():
    cases_path, out_path = sys.argv[1:]
    with open(cases_path) as f:
        cases = json.load(f)
    lines = []
    for name, case in sorted(cases.items()):
        outputs = run(case["graph"], [decode(t) for t in case["inputs"]])
        entry = {"inputs": case["inputs"], "outputs": [encode(v) for v in outputs]}
        lines.append(f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}")
    about = {
        "made by": "tests/oracle/ops.py", "seed": "the case's name",
        "versions": f"jax {jax.__version__}, numpy {np.__version__}, Python "
                    f"{platform.python_version()}",
    }
    with open(out_path, "w") as f:
        f.write('{"about": ' + json.dumps(about) + ',\n"cases": {\n' + ",\n".join(lines) + "\n}}\n")
    print(f"{len(lines)} cases")


if __name__ == "__main__":
    main()
