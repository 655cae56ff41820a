#!/usr/bin/env python3
"""A training step in PyTorch: a peer of bench/e2e/peers.py.

    pip install torch==2.15.0 transformers==5.24.0
    python bench/peers/torch_step.py --preset smollm2-135m --rows 4 --length 512 --steps 5

Written as somebody who knows PyTorch would: transformers' model with random weights and scaled
dot-product attention, torch.optim.AdamW (fused), clipping by the global norm, as in `meshwright
sft`'s defaults; --dtype bf16 computes under autocast, --compile compiles the forward pass with its
loss. As many threads as there are cores; OMP_WAIT_POLICY=active, which is the faster one here, is
set unless the environment has another.

Prints the same lines as jax_step.py: {start_seconds, start_cpu_seconds} when weights are there,
before the first step; then one JSON object a step, {step, loss, seconds, cpu_seconds}; and at the
end {peak_rss_bytes, start_to_first_step_seconds, versions}.
"""

import json
import os
import resource
import time

from step_script import cpu_seconds, process_age_seconds, read_preset, step_parser

os.environ.setdefault("OMP_WAIT_POLICY", "active")


def make_model(preset, transformers):
    """transformers' model of a preset's shape; its weights are random."""
    common = dict(
        vocab_size=int(preset["vocab_size"]), hidden_size=int(preset["hidden_size"]),
        num_hidden_layers=int(preset["num_layers"]), num_attention_heads=int(preset["num_heads"]),
        num_key_value_heads=int(preset["num_kv_heads"]), head_dim=int(preset["head_dim"]),
        intermediate_size=int(preset["mlp_size"]), rms_norm_eps=float(preset["rms_norm_eps"]),
        rope_parameters={"rope_type": "default", "rope_theta": float(preset["theta"])},
        tie_word_embeddings=preset["tie_word_embeddings"] == "true", use_cache=False,
        max_position_embeddings=8192, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    kinds = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}
    config = kinds[preset["family"]](**common)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def main():
    parser = step_parser(__doc__)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()

    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    preset = read_preset(options.preset, ("llama", "qwen3"))
    vocab = int(preset["vocab_size"])
    model = make_model(preset, transformers).train()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def loss_of(tokens, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16"):
            logits = model(tokens).logits
            return torch.nn.functional.cross_entropy(logits.float().view(-1, vocab),
                                                     targets.reshape(-1))

    if options.compile:
        loss_of = torch.compile(loss_of)

    def step():
        total = 0.0
        for _ in range(options.accumulate):
            ids = torch.randint(0, vocab, (options.rows, options.length + 1))
            loss = loss_of(ids[:, :-1].contiguous(), ids[:, 1:]) / options.accumulate
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    print(json.dumps({"start_seconds": process_age_seconds(), "start_cpu_seconds": cpu_seconds()}),
          flush=True)
    first = None
    for i in range(options.steps):
        start, cpu = time.perf_counter(), cpu_seconds()
        loss = step()
        record = {"step": i + 1, "loss": round(loss, 4), "seconds": time.perf_counter() - start,
                  "cpu_seconds": cpu_seconds() - cpu}
        first = first or process_age_seconds()
        print(json.dumps(record), flush=True)
    print(json.dumps({
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "start_to_first_step_seconds": first,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }), flush=True)


if __name__ == "__main__":
    main()
