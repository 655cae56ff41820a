#!/usr/bin/env python3
"""A training step of the Llama or Qwen3 shape in plain JAX: a peer of bench/e2e/peers.py.

    pip install jax==0.10.2
    python bench/peers/jax_step.py --preset smollm2-135m --rows 4 --length 512 --steps 5

Written as somebody who knows JAX would: one jitted function from (weights, moments,
batch) to (loss, weights, moments), its state donated, `lax.scan` over stacked
layers and over micro-batches, `jax.nn.dot_product_attention`, AdamW with decoupled decay and clipping by the
global norm, as in `meshwright sft`'s defaults. Weights are random and float32; --dtype bf16
computes layers and logits in bfloat16 with them.

Prints {start_seconds, start_cpu_seconds} when weights and moments are there and the
step is compiled, just before its first call; then one JSON object a step, when its loss
has arrived on the host: {step, loss, seconds, cpu_seconds}; and at the end
{peak_rss_bytes, compile_seconds, start_to_first_step_seconds}. Starts count from the
start of the process, imports included; CPU seconds are those of all its threads.
"""

import functools
import json
import resource
import time

from step_script import cpu_seconds, process_age_seconds, read_preset, step_parser


def main():
    parser = step_parser(__doc__)
    parser.add_argument("--compilation-cache", help="folder of JAX's persistent compilation cache")
    options = parser.parse_args()

    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_platforms", "cpu")
    if options.compilation_cache:
        jax.config.update("jax_compilation_cache_dir", options.compilation_cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    preset = read_preset(options.preset, ("llama", "qwen3"))
    has_qk_norm = preset["family"] == "qwen3"
    dtype = jnp.bfloat16 if options.dtype == "bf16" else jnp.float32
    layers, width, heads, kv_heads, head_dim, mlp, vocab = (
        int(preset[key]) for key in ("num_layers", "hidden_size", "num_heads", "num_kv_heads",
                                     "head_dim", "mlp_size", "vocab_size"))
    eps, theta = float(preset["rms_norm_eps"]), float(preset["theta"])
    tied = preset["tie_word_embeddings"] == "true"
    rows, length = options.rows, options.length

    def init(key):
        keys = iter(jax.random.split(key, 9))

        def normal(*shape):
            return 0.02 * jax.random.normal(next(keys), shape, jnp.float32)

        params = {
            "embed": normal(vocab, width),
            "norm": jnp.ones(width),
            "layers": {
                "norm1": jnp.ones((layers, width)),
                "q": normal(layers, width, heads * head_dim),
                "k": normal(layers, width, kv_heads * head_dim),
                "v": normal(layers, width, kv_heads * head_dim),
                "o": normal(layers, heads * head_dim, width),
                "norm2": jnp.ones((layers, width)),
                "gate": normal(layers, width, mlp),
                "up": normal(layers, width, mlp),
                "down": normal(layers, mlp, width),
            },
        }
        if has_qk_norm:
            params["layers"] |= {"q_norm": jnp.ones((layers, head_dim)),
                                 "k_norm": jnp.ones((layers, head_dim))}
        if not tied:
            params["head"] = normal(vocab, width)
        return params

    def rms_norm(x, scale):
        x = x.astype(jnp.float32)
        return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * scale).astype(dtype)

    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]

    def rotate(x_BTNH):
        a, b = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(dtype)

    def layer(x, stored):
        p = {k: w if "norm" in k else w.astype(dtype) for k, w in stored.items()}
        h = rms_norm(x, p["norm1"])
        q = (h @ p["q"]).reshape(rows, length, heads, head_dim)
        k = (h @ p["k"]).reshape(rows, length, kv_heads, head_dim)
        v = (h @ p["v"]).reshape(rows, length, kv_heads, head_dim)
        if has_qk_norm:
            q, k = rms_norm(q, p["q_norm"]), rms_norm(k, p["k_norm"])
        out = jax.nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + out.reshape(rows, length, heads * head_dim) @ p["o"]
        h = rms_norm(x, p["norm2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"], None

    def loss_of(params, tokens, targets):
        x, _ = jax.lax.scan(layer, params["embed"][tokens].astype(dtype), params["layers"])
        head = params["embed" if tied else "head"].astype(dtype)
        logits = jnp.matmul(rms_norm(x, params["norm"]), head.T,
                            preferred_element_type=jnp.float32)
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    rate, b1, b2, adam_eps, decay, clip = 1e-4, 0.9, 0.95, 1e-8, 0.1, 1.0

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
    def step(params, m, v, count, tokens, targets):
        def micro_batch(sums, batch):
            return jax.tree.map(jnp.add, sums, jax.value_and_grad(loss_of)(params, *batch)), None

        if options.accumulate == 1:
            loss, grads = jax.value_and_grad(loss_of)(params, tokens[0], targets[0])
        else:
            zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
            sums, _ = jax.lax.scan(micro_batch, zeros, (tokens, targets))
            loss, grads = jax.tree.map(lambda x: x / options.accumulate, sums)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / norm), grads)
        count = count + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)

        def updated(path, p, m, v):
            is_norm = "norm" in jax.tree_util.keystr(path)
            change = m / (1 - b1**count) / (jnp.sqrt(v / (1 - b2**count)) + adam_eps)
            return p - rate * (change + (0.0 if is_norm else decay) * p)

        return loss, jax.tree_util.tree_map_with_path(updated, params, m, v), m, v, count

    params = jax.jit(init)(jax.random.key(0))
    zeros = jax.jit(lambda p: jax.tree.map(jnp.zeros_like, p))
    m, v, count = zeros(params), zeros(params), jnp.float32(0)
    generator = np.random.default_rng(0)

    def batch():
        shape = (options.accumulate, rows, length + 1)
        ids = generator.integers(0, vocab, shape, dtype=np.int32)
        return jnp.asarray(ids[..., :-1]), jnp.asarray(ids[..., 1:])

    start = time.perf_counter()
    compiled = step.lower(params, m, v, count, *batch()).compile()
    compile_seconds = time.perf_counter() - start
    first = None
    tokens, targets = batch()
    # The weights are drawn while the step is traced and compiled.
    jax.block_until_ready((params, m, v, tokens, targets))
    print(json.dumps({"start_seconds": process_age_seconds(), "start_cpu_seconds": cpu_seconds()}),
          flush=True)
    for i in range(options.steps):
        if i > 0:
            tokens, targets = batch()
        start, cpu = time.perf_counter(), cpu_seconds()
        loss, params, m, v, count = compiled(params, m, v, count, tokens, targets)
        loss = float(loss)
        # The loss may be there before the update is.
        jax.block_until_ready(count)
        jax.block_until_ready(params)
        record = {"step": i + 1, "loss": round(loss, 4),
                  "seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - cpu}
        if first is None:
            first = process_age_seconds()
        print(json.dumps(record), flush=True)
    memory = compiled.memory_analysis()
    print(json.dumps({
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "compile_seconds": compile_seconds,
        "start_to_first_step_seconds": first,
        "temp_bytes": memory.temp_size_in_bytes if memory else None,
        "jax": jax.__version__,
    }), flush=True)


if __name__ == "__main__":
    main()
