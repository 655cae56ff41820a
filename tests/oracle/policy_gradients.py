#!/usr/bin/env python3
"""Writes src/meshwright/train/testdata/policy_gradients.safetensors: GRPO and its relatives in torch.

Run:  pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0
      python3 tests/oracle/policy_gradients.py

For tiny-llama of src/meshwright/models/testdata/, in float64 on the CPU, four rows of which the
third has no token to learn:

  tokens, targets, positions, segment_ids  i32 [4, 12];  loss_mask  f32 [4, 12]
  advantages  f32 [4]; token_advantages, old_logprobs, ref_logprobs, sampler_logprobs  f32 [4, 12];
                                           nan, inf and -inf where loss_mask is 0
  <case>/<metric>                          f32 []: of CASES, metrics as Meshwright names them
  <case>/gradient/<HF name>                of the loss; every 251st element of larger tensors

The surrogates are written down as their papers have them, with min and clamp and as means over
lists of rows; no ratio is within 1e-3 of a bound, and each bound holds somewhere.
"""

import pathlib

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parents[2]
MODEL = HERE / "src/meshwright/models/testdata/tiny-llama"
OUT = HERE / "src/meshwright/train/testdata/policy_gradients.safetensors"
SEED = 20240917
LENGTH = 12
ROWS = [(4, 8), (1, 3), (5, 0), (2, 10)]  # tokens of prompt and completion
STRIDE = 251
STORED_WHOLE = 64
ALGORITHMS = ("grpo", "gspo", "gspo-token", "cispo", "reinforce")
AGGREGATIONS = ("token-mean", "sequence-mean", "sequence-sum", "constant")
DEFAULTS = dict(algorithm="grpo", aggregation="token-mean", clip_low=0.2, clip_high=0.2,
                dual_clip=0.0, kl_coef=0.0, kl_estimator="k3", kl_in="loss", importance="none",
                importance_cap=2.0, temperature=1.0, norm_length=16, token_advantages=False,
                old=True, sampler=False)
NARROW = dict(clip_low=0.03, clip_high=0.04)  # means over rows are nearer to 1
CASES = {
    **{f"{algorithm}_{aggregation}": dict(algorithm=algorithm, aggregation=aggregation,
                                          **(NARROW if "gspo" in algorithm else {}))
       for algorithm in ALGORITHMS for aggregation in AGGREGATIONS},
    "clip_higher": dict(clip_high=0.5),
    "dual_clip": dict(dual_clip=1.3),
    "kl_k1": dict(kl_coef=0.2, kl_estimator="k1"),
    "kl_k2": dict(kl_coef=0.2, kl_estimator="k2", aggregation="sequence-mean"),
    "kl_k3": dict(kl_coef=0.2),
    "kl_reward": dict(kl_coef=0.2, kl_in="reward"),
    "importance_token": dict(importance="token", importance_cap=1.2, kl_coef=0.1),
    "importance_sequence": dict(importance="sequence", importance_cap=1.5, sampler=True),
    "importance_on_policy": dict(importance="token", old=False, algorithm="reinforce"),
    "mismatch": dict(sampler=True, old=False),
    "temperature": dict(temperature=0.7),
    "token_advantages": dict(token_advantages=True),
    "gspo_token_advantages": dict(token_advantages=True, algorithm="gspo-token", **NARROW),
    "on_policy": dict(old=False),
}


def make_batch(vocab):
    shape = (len(ROWS), LENGTH)
    batch = {k: torch.zeros(shape, dtype=torch.int32)
             for k in ("tokens", "targets", "positions", "segment_ids")}
    batch["loss_mask"] = torch.zeros(shape)
    for row, (prompt, completion) in enumerate(ROWS):
        n = prompt + completion
        ids = torch.randint(3, vocab, (n,)).int()
        batch["tokens"][row, :n] = ids
        batch["targets"][row, :n - 1] = ids[1:]
        batch["positions"][row, :n] = torch.arange(n).int()
        batch["segment_ids"][row, :n] = 1
        batch["loss_mask"][row, prompt - 1:n - 1] = float(completion > 0)
    return batch


def logits_of(model, batch):
    """Row by row without its padding: lists of [tokens that count, V]."""
    out = []
    for tokens, segments, mask in zip(batch["tokens"], batch["segment_ids"], batch["loss_mask"]):
        n = int(segments.sum())
        logits = model(input_ids=tokens[None, :n].long()).logits[0]
        out.append(logits[mask[:n].bool()])
    return out


def rows_of(batch, name):
    return [v[m.bool()].double() for v, m in zip(batch[name], batch["loss_mask"])]


def policy_gradient(model, batch, s):
    targets = [v.long() for v in rows_of(batch, "targets")]
    logits = [v / s["temperature"] for v in logits_of(model, batch)]
    every = [torch.log_softmax(v, -1) for v in logits]
    lp = [v.gather(-1, t[:, None])[:, 0] for v, t in zip(every, targets)]
    entropy = [-(v.exp() * v).sum(-1).detach() for v in every]
    old = rows_of(batch, "old_logprobs") if s["old"] else [v.detach() for v in lp]
    sampler, ref = rows_of(batch, "sampler_logprobs"), rows_of(batch, "ref_logprobs")
    if s["token_advantages"]:
        advantages = rows_of(batch, "token_advantages")
    else:
        advantages = [a.double().expand(len(v)) for a, v in zip(batch["advantages"], lp)]
    low, high, dual = 1 - s["clip_low"], 1 + s["clip_high"], s["dual_clip"]
    losses, policies, ratios, lows, highs, duals, kls, weights, capped = ([] for _ in range(9))
    for row in range(len(ROWS)):
        x, a = lp[row], advantages[row]
        if len(x) == 0:
            continue
        if s["algorithm"] == "gspo":
            ratio = torch.exp((x - old[row]).mean()).expand(len(x))
        elif s["algorithm"] == "gspo-token":
            ratio = torch.exp((x - old[row]).mean()).detach() * torch.exp(x - x.detach())
        else:
            ratio = torch.exp(x - old[row])
        bounds = [low, high] + ([dual] if dual else [])
        assert not any(((ratio - b).abs() < 1e-3).any() for b in bounds), ratio
        clipped = torch.clamp(ratio, low, high)
        if s["algorithm"] == "reinforce":
            policy = -a * x
        elif s["algorithm"] == "cispo":
            policy = -clipped.detach() * a * x
            lows.append(ratio < low)
            highs.append(ratio > high)
        else:
            policy = -torch.min(ratio * a, clipped * a)
            if dual:
                policy = torch.where(a < 0, torch.min(policy, -dual * a), policy)
            lows.append((a < 0) & (ratio < low))
            highs.append((a > 0) & (ratio > high))
            duals.append((a < 0) & (ratio > dual))
        if s["importance"] != "none":
            difference = old[row] - sampler[row]
            if s["importance"] == "sequence":
                difference = difference.sum().expand(len(x))
            weight = torch.exp(difference)
            assert not ((weight - s["importance_cap"]).abs() < 1e-3).any()
            capped.append(weight > s["importance_cap"])
            weights.append(weight.clamp(max=s["importance_cap"]).detach())
            policy = policy * weights[-1]
        d = ref[row] - x
        kl = {"k1": -d, "k2": d ** 2 / 2, "k3": torch.exp(d) - d - 1}[s["kl_estimator"]]
        in_loss = s["kl_coef"] if s["kl_in"] == "loss" else 0
        losses.append(policy + in_loss * kl)
        policies.append(policy)
        ratios.append(ratio)
        kls.append(kl)

    def aggregate(rows):
        if s["aggregation"] == "token-mean":
            return torch.cat(rows).mean()
        if s["aggregation"] == "sequence-mean":
            return torch.stack([v.mean() for v in rows]).mean()
        if s["aggregation"] == "sequence-sum":
            return torch.stack([v.sum() for v in rows]).mean()
        return torch.cat(rows).sum() / (len(ROWS) * s["norm_length"])

    def mean(rows):
        return torch.cat(rows).double().mean()

    metrics = {"loss": aggregate(losses), "rl/ratio_mean": mean(ratios),
               "rl/ratio_max": torch.cat(ratios).max(), "rl/entropy": mean(entropy)}
    if s["algorithm"] != "reinforce":
        metrics["rl/clip_low_fraction"] = mean(lows)
        metrics["rl/clip_high_fraction"] = mean(highs)
    if dual:
        metrics["rl/dual_clip_fraction"] = mean(duals)
    if s["kl_coef"]:
        metrics["rl/kl"] = mean(kls)
        if s["kl_in"] == "loss":
            metrics["rl/policy_loss"] = aggregate(policies)
    if s["sampler"] or s["importance"] != "none":
        difference = torch.cat(old) - torch.cat(sampler)
        metrics["rl/mismatch_mean"] = difference.abs().mean()
        metrics["rl/mismatch_max"] = difference.abs().max()
        metrics["rl/mismatch_kl"] = (difference.exp() - difference - 1).mean()
    if s["importance"] != "none":
        metrics["rl/importance_mean"] = mean(weights)
        metrics["rl/importance_capped_fraction"] = mean(capped)
    return metrics


def thin(tensor):
    flat = tensor.detach().reshape(-1)
    return (flat if flat.numel() <= STORED_WHOLE else flat[::STRIDE]).float().clone()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    batch = make_batch(model.config.vocab_size)
    mask = batch["loss_mask"].bool()
    with torch.no_grad():
        every = [torch.log_softmax(v, -1) for v in logits_of(model, batch)]
        targets = [v.long() for v in rows_of(batch, "targets")]
        now = torch.cat([v.gather(-1, t[:, None])[:, 0] for v, t in zip(every, targets)])

        def scattered(values, elsewhere):
            out = torch.full(mask.shape, elsewhere)
            out[mask] = values.float()
            return out

        old = now + 0.3 * torch.randn_like(now)
        batch["old_logprobs"] = scattered(old, torch.nan)
        batch["sampler_logprobs"] = scattered(old + 0.2 * torch.randn_like(now), torch.inf)
        batch["ref_logprobs"] = scattered(now + 0.4 * torch.randn_like(now), -torch.inf)
        batch["token_advantages"] = scattered(torch.randn_like(now), torch.nan)
        batch["advantages"] = torch.tensor([-0.8, 1.3, torch.nan, 0.6])
    out = dict(batch)
    for case, settings in CASES.items():
        model.zero_grad(set_to_none=True)
        metrics = policy_gradient(model, batch, {**DEFAULTS, **settings})
        metrics["loss"].backward()
        for key, value in metrics.items():
            out[f"{case}/{key}"] = value.detach().float()
        for key, parameter in model.named_parameters():
            out[f"{case}/gradient/{key}"] = thin(parameter.grad)
        print(case, {k: round(v.item(), 6) for k, v in metrics.items()})
    versions = dict(command="python3 tests/oracle/policy_gradients.py", seed=str(SEED),
                    torch=torch.__version__, transformers=transformers.__version__)
    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(out.items())}, OUT,
                                metadata=versions)
    print(versions, OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
