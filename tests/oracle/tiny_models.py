#!/usr/bin/env python3
"""Writes the tiny models and reference values of src/meshwright/models/testdata/.

Run:  pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0
      python3 tests/oracle/tiny_models.py tiny-llama

Only the families that are named are written: a new one leaves the bytes of the others
as they are, whatever versions made them.

Per family a Hugging Face folder tiny-<family>/ (config.json, model.safetensors) and
tiny-<family>-reference.safetensors with a packed batch and what transformers computes
for it in float32 on the CPU:

  tokens, targets, positions, segment_ids  i32 [B, T];  loss_mask  f32 [B, T]
  logits            f32 [B, T, V]
  nll_sum           f32 []: sum of the masked negative log-likelihoods
  grad/<HF name>    gradient of nll_sum / sum(loss_mask) by that weight
  generated         i32 [1, 8]: greedy continuation of prompt i32 [1, 5]
  inv_freq          f32 [H/2]

Each document is run on its own, so that nothing here depends on how transformers
treats packed rows. Padding positions hold 0 in logits.
"""

import argparse
import json
import pathlib

import safetensors
import safetensors.torch
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/meshwright/models/testdata"
SEED = 20240817
VOCAB = 131

COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.15,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)
# Lengths of the documents of each row; the rest is padding.
ROWS = [[7, 5, 3], [11], [4, 10, 2]]
LENGTH = 16


def tiny_llama():
    config = transformers.LlamaConfig(
        **COMMON,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32),
    )
    return transformers.LlamaForCausalLM(config)


def tiny_qwen3():
    config = transformers.Qwen3Config(
        **COMMON,
        head_dim=12,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
    )
    return transformers.Qwen3ForCausalLM(config)


FAMILIES = {"tiny-llama": tiny_llama, "tiny-qwen3": tiny_qwen3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", nargs="+", choices=sorted(FAMILIES))
    names = parser.parse_args().family
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in names:
        build = FAMILIES[name]
        torch.manual_seed(SEED)
        model = build().float().eval()
        with torch.no_grad():
            for key, weight in model.named_parameters():
                if "norm" in key:  # norms that are not all ones
                    weight.copy_(1.0 + 0.3 * torch.randn_like(weight))
        shape = (len(ROWS), LENGTH)
        batch = {k: torch.zeros(shape, dtype=torch.int32)
                 for k in ("tokens", "targets", "positions", "segment_ids")}
        batch["loss_mask"] = torch.zeros(shape)
        logits = torch.zeros(*shape, VOCAB)
        total = torch.zeros(())
        for row, lengths in enumerate(ROWS):
            at = 0
            for segment, n in enumerate(lengths, 1):
                tokens = torch.randint(3, VOCAB, (n,))
                out = model(input_ids=tokens[None]).logits[0]
                where = slice(at, at + n)
                batch["tokens"][row, where] = tokens.int()
                batch["targets"][row, at:at + n - 1] = tokens[1:].int()
                batch["positions"][row, where] = torch.arange(n).int()
                batch["segment_ids"][row, where] = segment
                mask = torch.rand(n - 1) < 0.7
                mask[0] = True
                batch["loss_mask"][row, at:at + n - 1] = mask.float()
                logits[row, where] = out.detach()
                nll = torch.nn.functional.cross_entropy(out[:-1], tokens[1:], reduction="none")
                total = total + nll[mask].sum()
                at += n
        count = batch["loss_mask"].sum()
        (total / count).backward()
        tensors = dict(batch, logits=logits, nll_sum=total.detach())
        for key, weight in model.named_parameters():
            tensors["grad/" + key] = weight.grad.detach().clone()
        prompt = torch.randint(3, VOCAB, (1, 5))
        sequence = prompt
        with torch.no_grad():
            for _ in range(8):
                last = model(input_ids=sequence).logits[:, -1]
                sequence = torch.cat([sequence, last.argmax(-1, keepdim=True)], 1)
        tensors["prompt"] = prompt.int()
        tensors["generated"] = sequence[:, 5:].int().clone()
        tensors["inv_freq"] = model.model.rotary_emb.inv_freq.float().clone()
        folder = OUT / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        versions = dict(command=f"python3 tests/oracle/tiny_models.py {name}", seed=str(SEED),
                        torch=torch.__version__, transformers=transformers.__version__,
                        safetensors=safetensors.__version__)
        safetensors.torch.save_file(
            {k: v.contiguous() for k, v in sorted(tensors.items())},
            OUT / f"{name}-reference.safetensors", metadata=versions)
        print(name, json.dumps(versions), "nll_sum", float(total.detach()), "tokens", int(count),
              "grad names", len([k for k in tensors if k.startswith("grad/")]))


if __name__ == "__main__":
    main()
