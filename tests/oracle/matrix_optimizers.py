#!/usr/bin/env python3
"""Writes src/meshwright/train/testdata/matrix_optimizers.safetensors: ten steps of optax's Adafactor
and of torch's and optax's Muon.

Run:  pip install torch==2.15.0 jax==0.10.2 optax==0.2.8 safetensors==0.8.0
      python3 tests/oracle/matrix_optimizers.py

Ten random gradients at ten different rates for a wide [5, 8], a tall [9, 4] and a vector [7], and for
stacks of three, wide_stack [3, 5, 8] and vector_stack [3, 7], whose layers are given to the oracle
one by one. Everything is computed in float64 and stored in float32:

  rates                              f32 [10]
  gradients/<parameter>              f32 [10, ...]
  start/<parameter>                  f32 [...]
  <case>/<parameter>                 f32 [10, ...]: the parameter after each step
  <case>/<slot>/<parameter>          f32 [...]: the optimizer's state after the last

Gradients span four orders of magnitude; the first one of layer 1 of each stack is zero, and those of
layer 2 are a thousandth of the others'. torch's Muon iterates in torch.bfloat16: that is float64
while it runs here.
"""

import pathlib

import jax
import numpy as np
import optax
import optax.contrib
import safetensors.numpy
import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/meshwright/train/testdata"
SEED = 20261130
STEPS = 10
SHAPES = {"wide": (5, 8), "tall": (9, 4), "vector": (7,), "wide_stack": (3, 5, 8),
          "vector_stack": (3, 7)}
MATRICES = ["wide", "tall", "wide_stack"]
WEIGHT_DECAY = 0.1
ADAFACTOR = {
    "adafactor": dict(min_dim_size_to_factor=4),
    "adafactor_whole": dict(min_dim_size_to_factor=128),
    "adafactor_plain": dict(min_dim_size_to_factor=4, decay_rate=0.6, clipping_threshold=None,
                            multiply_by_parameter_scale=False, momentum=0.9,
                            weight_decay_rate=0.01, eps=1e-20),
    "adafactor_clipped": dict(min_dim_size_to_factor=4, clipping_threshold=0.25),
}
TORCH_MUON = {
    "muon": dict(momentum=0.95, nesterov=True, adjust_lr_fn="match_rms_adamw",
                 weight_decay=WEIGHT_DECAY),
    "muon_keller": dict(momentum=0.9, nesterov=False, adjust_lr_fn="original",
                        weight_decay=WEIGHT_DECAY),
}
# optax's Nesterov form has a bias correction that neither Keller Jordan's nor torch's has.
OPTAX_MUON = {"muon_optax": dict(beta=0.95, nesterov=False, consistent_rms=0.2,
                                 weight_decay=WEIGHT_DECAY)}


def layers(name, value):
    return list(value) if name.endswith("_stack") else [value]


def join(name, values):
    return np.stack(values) if name.endswith("_stack") else values[0]


def run_adafactor(settings, rates, start, gradients):
    params, history = jax.numpy.asarray(start), []
    optimizer = optax.adafactor(learning_rate=lambda i: jax.numpy.asarray(rates)[i], **settings)
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(jax.numpy.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        history.append(np.asarray(params))
    factored = state[0]
    if factored.v_row.size > 1:
        # optax calls the smaller dim rows, here they are the first of the two.
        row, col = factored.v_row, factored.v_col
        if start.shape[0] > start.shape[1]:
            row, col = col, row
        slots = {"v_row": np.asarray(row), "v_col": np.asarray(col)}
    else:
        slots = {"v": np.asarray(factored.v)}
    for part in state:
        if hasattr(part, "ema"):
            slots["momentum"] = np.asarray(part.ema)
    return np.stack(history), slots


def run_torch_muon(settings, rates, start, gradients):
    param, history = torch.nn.Parameter(torch.tensor(start)), []
    optimizer = torch.optim.Muon([param], lr=0.0, **settings)
    usual, torch.bfloat16 = torch.bfloat16, torch.float64
    try:
        for rate, gradient in zip(rates, gradients):
            optimizer.param_groups[0]["lr"] = float(rate)
            param.grad = torch.tensor(gradient)
            optimizer.step()
            history.append(param.detach().clone().numpy())
    finally:
        torch.bfloat16 = usual
    return np.stack(history), {"momentum": optimizer.state[param]["momentum_buffer"].numpy()}


def run_optax_muon(settings, rates, start, gradients):
    # Weights are [out, in] here.
    numbers = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)
    optimizer = optax.contrib.muon(learning_rate=lambda i: jax.numpy.asarray(rates)[i],
                                   muon_weight_dimension_numbers=numbers, **settings)
    params, history = jax.numpy.asarray(start), []
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(jax.numpy.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        history.append(np.asarray(params))
    return np.stack(history), {"momentum": np.asarray(state.inner_states["muon"].inner_state[0].mu)}


def main():
    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(SEED)
    as_f32 = lambda x: np.ascontiguousarray(x, dtype=np.float32)
    out = {"rates": as_f32(1e-2 * (0.5 + random.random(STEPS)))}
    for name, shape in SHAPES.items():
        gradients = random.standard_normal((STEPS, *shape)) * 10.0 ** (-4 * random.random(shape))
        if name.endswith("_stack"):
            gradients[0, 1] = 0
            gradients[:, 2] *= 1e-3
        out["gradients/" + name] = as_f32(gradients)
        out["start/" + name] = as_f32(random.standard_normal(shape))
    f64 = {name: value.astype(np.float64) for name, value in out.items()}
    cases = [(case, run_adafactor, settings, list(SHAPES)) for case, settings in ADAFACTOR.items()]
    cases += [(case, run_torch_muon, settings, MATRICES) for case, settings in TORCH_MUON.items()]
    cases += [(case, run_optax_muon, settings, MATRICES) for case, settings in OPTAX_MUON.items()]
    for case, run, settings, names in cases:
        for name in names:
            gradients = np.swapaxes(f64["gradients/" + name], 0, 1) if name.endswith("_stack") else [
                f64["gradients/" + name]]
            results = [run(settings, f64["rates"], start, gradient)
                       for start, gradient in zip(layers(name, f64["start/" + name]), gradients)]
            history = [h for h, _ in results]
            out[f"{case}/{name}"] = as_f32(np.stack(history, axis=1) if name.endswith("_stack")
                                           else history[0])
            for slot in results[0][1]:
                out[f"{case}/{slot}/{name}"] = as_f32(join(name, [s[slot] for _, s in results]))
    versions = dict(command="python3 tests/oracle/matrix_optimizers.py", seed=str(SEED),
                    torch=torch.__version__, jax=jax.__version__, optax=optax.__version__,
                    safetensors=safetensors.__version__)
    OUT.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(dict(sorted(out.items())), OUT / "matrix_optimizers.safetensors",
                                metadata=versions)
    print(versions, {k: v.shape for k, v in out.items()})


if __name__ == "__main__":
    main()
