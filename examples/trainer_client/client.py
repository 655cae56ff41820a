"""Trains the model behind `meshwright serve` for ten steps and fetches its weights:
    python3 client.py HOST:PORT WEIGHTS.safetensors
docs/serve.md says what to install, and how to make meshwright/v1/trainer_pb2.py."""
import sys
import uuid

import grpc
import numpy as np
from meshwright.v1 import trainer_pb2 as pb
from meshwright.v1 import trainer_pb2_grpc

DTYPES = {np.dtype(np.int32): "s32", np.dtype(np.float32): "f32"}


def batch(rows):
    arrays = {"tokens": rows[:, :-1], "targets": rows[:, 1:],
              "loss_mask": np.ones(rows[:, 1:].shape, np.float32)}
    return pb.Batch(tensors={name: pb.Tensor(dtype=DTYPES[a.dtype], shape=a.shape, data=a.tobytes())
                             for name, a in arrays.items()})


def header(**more):  # sent again, the same request is answered again and does nothing twice
    return pb.CallHeader(request_id=uuid.uuid4().hex, **more)


worker = trainer_pb2_grpc.TrainerWorkerStub(grpc.insecure_channel(sys.argv[1]))
rows = np.arange(4 * 17, dtype=np.int32).reshape(4, 17) % 29  # counting is easily learned
for step in range(10):
    worker.FwdBwd(pb.FwdBwdRequest(header=header(policy_version=step), batch=batch(rows[:2])))
    reply = worker.FwdBwd(pb.FwdBwdRequest(header=header(policy_version=step), batch=batch(rows[2:]),
                                           apply_optimizer=True, wait_for_update=True))
    print(f"step {reply.metrics.step}: loss {reply.metrics.values['learning/loss']:.4f}")
print(f"loss of the first rows: {worker.Eval(pb.EvalRequest(batch=batch(rows[:2]))).loss:.4f}")
with open(sys.argv[2], "wb") as file:
    for chunk in worker.GetWeights(pb.GetWeightsRequest()):
        file.write(chunk.data)
