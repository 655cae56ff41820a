#!/usr/bin/env python3
"""Writes src/meshwright/train/testdata/training.safetensors: training steps in torch.

Run:  pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0
      python3 tests/oracle/training.py

For the tiny models of src/meshwright/models/testdata/,
everything in float32 on the CPU:

  tokens, targets, positions, segment_ids  i32 [4, 16];  loss_mask  f32 [4, 16]
  <model>/loss                    f32 []: with the z-loss, per token
  <model>/gradient/<HF name>      of that loss, z-loss coefficient 0.01
  <model>/after/<HF name>         weights after ten steps of AdamW with clipping (SETTINGS)
  <model>/losses, norms           f32 [10]: of each of those steps, without z-loss

A row packs up to three documents; the masks are ragged: the rows have 10, 1, 8 and 1 tokens
to learn. Each document is run on its own, so that nothing here depends on how
transformers treats packed rows. Elements are stored whole for the smallest tensors and as
every 7th element for the others.
"""

import pathlib

import safetensors
import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parents[2]
MODELS = HERE / "src/meshwright/models/testdata"
OUT = HERE / "src/meshwright/train/testdata"
SEED = 20240902
ROWS = [[7, 5, 3], [11], [4, 10, 2], [16]]
KEEP = [0.8, 0.1, 0.6, 0.0]  # of each row's targets; each document keeps its first
Z_LOSS = 0.01
STEPS = 10
SETTINGS = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
CLIP = 1.0
STRIDE = 7  # of the elements of a tensor of more than STORED_WHOLE
STORED_WHOLE = 64


def make_batch(rows, keep, length, vocab, text=None):
    """A packed batch with ragged masks; draws from torch's generator.

    The documents follow each other in `text`, token ids of which there must be enough, or
    are random without it.
    """
    begin = 0
    shape = (len(rows), length)
    batch = {k: torch.zeros(shape, dtype=torch.int32)
             for k in ("tokens", "targets", "positions", "segment_ids")}
    batch["loss_mask"] = torch.zeros(shape)
    for row, lengths in enumerate(rows):
        at = 0
        for segment, n in enumerate(lengths, 1):
            tokens = torch.randint(3, vocab, (n,)) if text is None else text[begin:begin + n]
            begin += n
            mask = torch.rand(n - 1) < keep[row]
            mask[0] = True
            batch["tokens"][row, at:at + n] = tokens.int()
            batch["targets"][row, at:at + n - 1] = tokens[1:].int()
            batch["positions"][row, at:at + n] = torch.arange(n).int()
            batch["segment_ids"][row, at:at + n] = segment
            batch["loss_mask"][row, at:at + n - 1] = mask.float()
            at += n
    return batch


def loss_of(model, batch, z_loss=0.0, dtype=torch.float32):
    """sum(mask * (nll + z_loss * log_sum_exp^2)) / sum(mask), document by document."""
    total = torch.zeros((), dtype=dtype)
    for row in range(batch["tokens"].shape[0]):
        for segment in range(1, int(batch["segment_ids"][row].max()) + 1):
            where = batch["segment_ids"][row] == segment
            tokens = batch["tokens"][row][where].long()
            logits = model(input_ids=tokens[None]).logits[0].to(dtype)
            log_sum_exp = torch.logsumexp(logits, -1)
            targets = batch["targets"][row][where].long()
            nll = log_sum_exp - logits.gather(-1, targets[:, None])[:, 0]
            mask = batch["loss_mask"][row][where]
            total = total + (mask * (nll + z_loss * log_sum_exp ** 2)).sum()
    return total / batch["loss_mask"].sum()


def gradients(model, batch, z_loss=0.0, dtype=torch.float32):
    model.zero_grad(set_to_none=True)
    loss = loss_of(model, batch, z_loss, dtype)
    loss.backward()
    return loss.detach(), {k: p.grad.detach().clone() for k, p in model.named_parameters()}


def train(model, batch, steps=STEPS, settings=None, clip=CLIP):
    """AdamW with clipping on the same batch; returns losses and norms before clipping."""
    settings = dict(SETTINGS if settings is None else settings)
    decay = settings.pop("weight_decay")
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [dict(params=[p for k, p in named if "norm" not in k], weight_decay=decay),
         dict(params=[p for k, p in named if "norm" in k], weight_decay=0.0)], **settings)
    losses, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).detach())
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.train()


def thin(tensor):
    flat = tensor.detach().reshape(-1)
    return (flat if flat.numel() <= STORED_WHOLE else flat[::STRIDE]).clone()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    out = {}
    for name in ("tiny-llama", "tiny-qwen3"):
        model = load(MODELS / name)
        if not out:
            out = make_batch(ROWS, KEEP, 16, model.config.vocab_size)
        batch = {k: out[k] for k in ("tokens", "targets", "positions", "segment_ids", "loss_mask")}
        out[name + "/loss"], grads = gradients(model, batch, Z_LOSS)
        for key, gradient in grads.items():
            out[f"{name}/gradient/{key}"] = thin(gradient)
        out[name + "/losses"], out[name + "/norms"] = train(model, batch)
        for key, weight in model.named_parameters():
            out[f"{name}/after/{key}"] = thin(weight)
        print(name, "loss", float(out[name + "/loss"]), "losses", out[name + "/losses"].tolist(),
              "norms", out[name + "/norms"].tolist())
    OUT.mkdir(parents=True, exist_ok=True)
    versions = dict(command="python3 tests/oracle/training.py", seed=str(SEED),
                    torch=torch.__version__, transformers=transformers.__version__,
                    safetensors=safetensors.__version__)
    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(out.items())},
                                OUT / "training.safetensors", metadata=versions)
    print(versions, "tokens of each row", out["loss_mask"].sum(-1).tolist())


if __name__ == "__main__":
    main()
