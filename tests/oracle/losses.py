#!/usr/bin/env python3
"""Writes src/meshwright/train/testdata/losses.safetensors: DPO and distillation in torch.

Run:  pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0
      python3 tests/oracle/losses.py

For the tiny models of src/meshwright/models/testdata/, in float64 on the CPU, with a second
model (the same weights with noise) as reference and teacher:

  tokens, targets, positions, segment_ids  i32 [8, 12];  loss_mask, weights  f32 [8, 12]
  <model>/ref_logprobs                     f32 [8, 12]; -inf where loss_mask is 0
  <model>/teacher_ids, teacher_logprobs    [8, 12, 5]; 9999 and NaN where loss_mask is 0
  <model>/<case>/<metric>                  f32 []: of CASES, metrics as Meshwright names them
  <model>/<case>/gradient/<HF name>        of the loss; every 61st element of larger tensors

Rows 2i are chosen and 2i + 1 rejected, with prompts and completions of all lengths; the last
pair's rejected row has no token to learn, so three pairs count. The distillation cases weigh
tokens by `weights`, which is loss_mask with fractions in it.

DPO is written down as TRL's DPOTrainer has it (concatenated_forward and dpo_loss); distillation
from torch's kl_div over the renormalized tokens.
"""

import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers

HERE = pathlib.Path(__file__).resolve().parents[2]
MODELS = HERE / "src/meshwright/models/testdata"
OUT = HERE / "src/meshwright/train/testdata/losses.safetensors"
SEED = 20240911
LENGTH = 12
# Tokens of the prompt (shared by a pair) and of chosen and rejected.
PAIRS = [(4, 8, 3), (1, 2, 9), (7, 1, 5), (3, 6, 0)]
TOP_K = 5
NOISE = 0.03
STRIDE = 61
STORED_WHOLE = 64
CASES = {
    "sigmoid": dict(beta=0.1),
    "smoothed": dict(beta=0.5, label_smoothing=0.2),
    "hinge": dict(beta=0.3, loss="hinge"),
    "ipo": dict(beta=0.2, loss="ipo"),
    "reference_free": dict(beta=0.1, reference_free=True),
    "forward": dict(kl="forward"),
    "forward_mixed": dict(kl="forward", temperature=2.0, alpha=0.7),
    "reverse": dict(kl="reverse", temperature=1.5),
}


def make_batch(vocab):
    shape = (2 * len(PAIRS), LENGTH)
    batch = {k: torch.zeros(shape, dtype=torch.int32)
             for k in ("tokens", "targets", "positions", "segment_ids")}
    batch["loss_mask"] = torch.zeros(shape)
    for pair, (prompt_length, *lengths) in enumerate(PAIRS):
        prompt = torch.randint(3, vocab, (prompt_length,))
        for side, length in enumerate(lengths):
            ids = torch.cat([prompt, torch.randint(3, vocab, (length,))]).int()
            row, n = 2 * pair + side, len(ids)
            batch["tokens"][row, :n] = ids
            batch["targets"][row, :n - 1] = ids[1:]
            batch["positions"][row, :n] = torch.arange(n).int()
            batch["segment_ids"][row, :n] = 1
            batch["loss_mask"][row, prompt_length - 1:n - 1] = 1
    fractions = torch.tensor([1.0, 0.5, 0.25])[torch.randint(0, 3, shape)]
    batch["weights"] = batch["loss_mask"] * fractions
    return batch


def log_probs(model, batch):
    """Of all tokens [B, T, V], row by row without its padding."""
    out = []
    for tokens, segments in zip(batch["tokens"], batch["segment_ids"]):
        n = int(segments.sum())
        logits = model(input_ids=tokens[None, :n].long()).logits[0]
        out.append(F.pad(torch.log_softmax(logits, -1), (0, 0, 0, LENGTH - n)))
    return torch.stack(out)


def of_targets(every, batch):
    return every.gather(-1, batch["targets"].long()[..., None])[..., 0]


def dpo(model, reference, batch, beta, loss="sigmoid", label_smoothing=0.0, reference_free=False):
    mask = batch["loss_mask"].bool()

    def sequences(per_token):
        per_token = per_token.clone()
        per_token[~mask] = 0
        sums = per_token.sum(-1)
        return sums / mask.sum(-1).clamp(min=1) if loss == "ipo" else sums

    counted = (mask.sum(-1)[0::2] > 0) & (mask.sum(-1)[1::2] > 0)
    all_logps = sequences(of_targets(log_probs(model, batch), batch))
    chosen, rejected = all_logps[0::2][counted], all_logps[1::2][counted]
    ref = torch.zeros_like(all_logps) if reference_free else sequences(reference)
    ref_chosen, ref_rejected = ref[0::2][counted], ref[1::2][counted]
    logits = (chosen - rejected) - (ref_chosen - ref_rejected)
    if loss == "sigmoid":
        losses = (-F.logsigmoid(beta * logits) * (1 - label_smoothing)
                  - F.logsigmoid(-beta * logits) * label_smoothing)
    elif loss == "hinge":
        losses = torch.relu(1 - beta * logits)
    else:
        losses = (logits - 1 / (2 * beta)) ** 2
    chosen_rewards = beta * (chosen - ref_chosen).detach()
    rejected_rewards = beta * (rejected - ref_rejected).detach()
    return {
        "loss": losses.mean(),
        "rewards/chosen": chosen_rewards.mean(),
        "rewards/rejected": rejected_rewards.mean(),
        "rewards/accuracies": (chosen_rewards > rejected_rewards).double().mean(),
        "rewards/margins": (chosen_rewards - rejected_rewards).mean(),
        "logps/chosen": chosen.detach().mean(),
        "logps/rejected": rejected.detach().mean(),
    }


def distill(model, ids, teacher, batch, kl, temperature=1.0, alpha=1.0):
    mask = batch["loss_mask"].bool()
    weights = batch["weights"][mask].double()
    every = log_probs(model, batch)
    nll = -of_targets(every, batch)[mask]
    student = every[mask].gather(-1, ids[mask].long())
    teacher = teacher[mask]
    log_p = torch.log_softmax(teacher / temperature, -1)
    log_q = torch.log_softmax(student / temperature, -1)
    source, target = (log_p, log_q) if kl == "forward" else (log_q, log_p)
    divergence = F.kl_div(target, source, log_target=True, reduction="none").sum(-1)

    def mean(per_token):
        return (weights * per_token).sum() / weights.sum()

    return {
        "loss": mean(alpha * temperature ** 2 * divergence + (1 - alpha) * nll),
        "nll": mean(nll),
        "distill/kl": mean(divergence),
        "distill/teacher_mass": mean(teacher.exp().sum(-1)),
        "distill/student_mass": mean(student.exp().sum(-1)),
    }


def thin(tensor):
    flat = tensor.detach().reshape(-1)
    return (flat if flat.numel() <= STORED_WHOLE else flat[::STRIDE]).float().clone()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    out = {}
    for name in ("tiny-llama", "tiny-qwen3"):
        load = transformers.AutoModelForCausalLM.from_pretrained
        model = load(MODELS / name, dtype=torch.float64)
        other = load(MODELS / name, dtype=torch.float64)
        if not out:
            out = make_batch(model.config.vocab_size)
        batch = {k: v for k, v in out.items() if "/" not in k}
        masked = batch["loss_mask"] == 0
        with torch.no_grad():
            for parameter in other.parameters():
                parameter += NOISE * torch.randn_like(parameter)
            every = log_probs(other, batch)
            # As they are stored, so that both sides get the same.
            reference = of_targets(every, batch).float()
            reference[masked] = -torch.inf
            teacher, ids = every.float().topk(TOP_K, -1)
            ids, teacher = ids.int(), teacher.clone()
            ids[masked] = 9999
            teacher[masked] = torch.nan
        out[name + "/ref_logprobs"] = reference
        out[name + "/teacher_ids"], out[name + "/teacher_logprobs"] = ids, teacher
        for case, settings in CASES.items():
            model.zero_grad(set_to_none=True)
            if "kl" in settings:
                metrics = distill(model, ids, teacher.double(), batch, **settings)
            else:
                metrics = dpo(model, reference.double(), batch, **settings)
            metrics["loss"].backward()
            for key, value in metrics.items():
                out[f"{name}/{case}/{key}"] = value.detach().float()
            for key, parameter in model.named_parameters():
                out[f"{name}/{case}/gradient/{key}"] = thin(parameter.grad)
            print(name, case, {k: round(v.item(), 6) for k, v in metrics.items()})
    versions = dict(command="python3 tests/oracle/losses.py", seed=str(SEED),
                    torch=torch.__version__, transformers=transformers.__version__)
    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(out.items())}, OUT,
                                metadata=versions)
    print(versions, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
