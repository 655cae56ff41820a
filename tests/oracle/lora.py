#!/usr/bin/env python3
"""Writes LoRA adapters and what peft and torch compute with them, for src/meshwright/train/testdata/.

Run:  pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors==0.8.0
      python3 tests/oracle/lora.py

For the tiny models of src/meshwright/models/testdata/ and the batch of training.safetensors,
everything in float32 on the CPU. Per model a folder lora-<model>/ as peft saves it
(adapter_config.json, adapter_model.safetensors), with A as peft draws it and B random, so that
each has a gradient, and in lora.safetensors:

  <model>/logits                  f32 [5, V]: of the first document of the batch's fourth row
  <model>/merged/<HF name>        of each weight of layer 1 that peft's merge_and_unload changes
  <model>/loss                    f32 []: per token
  <model>/gradient/<peft name>    of that loss
  <model>/losses, norms           f32 [10]: of ten steps of AdamW with clipping (training.py)
  <model>/after/<peft name>       adapters after them

Elements are stored as training.py stores them.
"""

import json
import pathlib
import shutil

import peft
import safetensors
import safetensors.torch
import torch
import transformers
from training import CLIP, MODELS, OUT, SETTINGS, load, loss_of, thin

SEED = 20241003
STEPS = 10
ADAPTERS = {
    "tiny-llama": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "tiny-qwen3": dict(r=3, lora_alpha=5, use_rslora=True,
                       target_modules=["q_proj", "v_proj", "o_proj", "down_proj"]),
}


def adapted(name):
    model = peft.get_peft_model(load(MODELS / name),
                                peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name]))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "lora_B" in key:
                weight.normal_(0, 0.1)
    return model


def save(model, name):
    folder = OUT / f"lora-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    # No path of the machine that made it, and no order of a set.
    config["base_model_name_or_path"] = f"example/{name}"
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2) + "\n")
    return folder


def trainable(model):
    return [(k.replace(".default", ""), p) for k, p in model.named_parameters() if p.requires_grad]


def train(model, batch):
    optimizer = torch.optim.AdamW([p for _, p in trainable(model)], **SETTINGS)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([p for _, p in trainable(model)], CLIP).detach())
        losses.append(loss.detach())
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    batch = safetensors.torch.load_file(OUT / "training.safetensors")
    batch = {k: batch[k] for k in ("tokens", "targets", "positions", "segment_ids", "loss_mask")}
    out = {}
    for name in ADAPTERS:
        model = adapted(name)
        folder = save(model, name)
        base = load(MODELS / name)
        before = {k: p.detach().clone() for k, p in base.named_parameters()}
        merged = peft.PeftModel.from_pretrained(base, folder).merge_and_unload()
        for key, weight in merged.named_parameters():
            if ".layers.1." in key and not torch.equal(weight, before[key]):
                out[f"{name}/merged/{key}"] = thin(weight)
        with torch.no_grad():
            out[name + "/logits"] = model(input_ids=batch["tokens"][3:4, :5].long()).logits[0]
        loss = loss_of(model, batch)
        loss.backward()
        out[name + "/loss"] = loss.detach()
        for key, weight in trainable(model):
            out[f"{name}/gradient/{key}"] = thin(weight.grad)
        out[name + "/losses"], out[name + "/norms"] = train(model, batch)
        for key, weight in trainable(model):
            out[f"{name}/after/{key}"] = thin(weight)
        print(name, "loss", float(loss), "losses", out[name + "/losses"].tolist())
    versions = dict(command="python3 tests/oracle/lora.py", seed=str(SEED), torch=torch.__version__,
                    transformers=transformers.__version__, peft=peft.__version__)
    safetensors.torch.save_file({k: v.contiguous() for k, v in sorted(out.items())},
                                OUT / "lora.safetensors", metadata=versions)
    print(versions)


if __name__ == "__main__":
    main()
