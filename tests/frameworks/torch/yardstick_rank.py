"""The two ranks of test_distributed.py: they train with PyTorch's own schemes and write down the results.

Starting ranks costs seconds, so all that needs them happens in one pair of processes, and what they
import is imported once, before they part.
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path

import numpy as np
import torch

from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching.environment import RankPlace
from levelbench.distributed.launching.local import free_port
from levelbench.distributed.packing import pieces
from levelbench.distributed.probes.processes import resumption
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.errors import LevelbenchError
from levelbench.frameworks.torch.distributed.schemes import DistributedDataParallel, FullyShardedDataParallel
from levelbench.networks import zoo
from levelbench.networks.native import NativeModel
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.rules import Adam, Momentum

STEPS, BATCH = 12, 7
NETWORK = zoo.mlp(6, 5, 3).with_loss("cross-entropy").training()
SCHEMES = {
    "all-reduce": AllReduce(),
    "ddp": DistributedDataParallel(),
    "ddp-buckets": DistributedDataParallel(bucket_mb=1e-5),
    "ddp-static": DistributedDataParallel(static_graph=True),
    "ddp-unused": DistributedDataParallel(unused=True),
    "ddp-fp16": DistributedDataParallel(hook="fp16"),
    "ddp-power-sgd": DistributedDataParallel(hook="power-sgd", power_start=2),
    "all-reduce-buckets": AllReduce(bucket_mb=1e-5),
    "ddp-bf16": DistributedDataParallel(hook="bf16"),
    "fsdp2": FullyShardedDataParallel(),
    "fsdp2-reshard": FullyShardedDataParallel(reshard=True),
}


def batches():
    random = np.random.default_rng(7)
    for _ in range(STEPS):
        yield random.standard_normal((BATCH, 6)).astype(np.float32), random.integers(0, 3, BATCH)


def network(backend, seed):
    return backend.executor(NETWORK, NETWORK.initialise(seed))


def module(backend, seed):
    """A plain PyTorch module."""
    torch.manual_seed(seed)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    return backend.native(NativeModel("layers", "torch", layers))


def alone(backend, optimizer, make=network):
    """The result of one process that trains on the whole batches."""
    executor = make(backend, 0)
    stepper = optimizer.start(backend, executor.parameters)
    for step, columns in enumerate(batches(), 1):
        executor.forward(*map(backend.array, columns))
        stepper.step(executor.backward(), step, 1.0)
    return flat(backend, executor)


def together(backend, communicator, scheme, optimizer, make=network):
    """This rank's parameters after training; ranks start with different parameters and have parts of different size."""
    rank, size = communicator.rank, communicator.size
    executor = make(backend, rank)
    stepper = scheme.start(Worker(communicator, backend, executor, optimizer))
    bounds = pieces(BATCH, size)
    own = slice(bounds[rank], bounds[rank + 1])
    stepper.share = (own.stop - own.start) / BATCH
    losses = []
    for step, columns in enumerate(batches(), 1):
        losses.append(float(stepper.executor.forward(*(backend.array(each[own]) for each in columns))))
        stepper.step(stepper.executor.backward(), step, 1.0)
    stepper.meet()
    found = flat(backend, executor)
    inferred = stepper.executor.infer(backend.array(np.ones((2, 6), np.float32)))[0]
    stepper.close()
    return found, losses, backend.host(inferred)


def hosted(backend, executor):
    return [(name, backend.host(each)) for name, each in executor.parameters.items()]


def flat(backend, executor):
    return np.concatenate([each.ravel() for _, each in hosted(backend, executor)])


def outcome(backend, communicator, scheme, optimizer, expected, make=network):
    try:
        found, losses, inferred = together(backend, communicator, scheme, optimizer, make)
    except LevelbenchError as error:
        return {"error": [type(error).__name__, str(error)]}
    others = communicator.all_gather(found)
    return {
        "distance": float(np.abs(found - expected).max() / np.abs(expected).max()),
        "agree": all(np.array_equal(each, found) for each in others),
        "losses": losses,
        "finite": bool(np.isfinite(inferred).all()),
    }


def rank_of(folder, place):
    backend = open_framework("torch")
    communicator = open_communicator("gloo", place, 120.0)
    results = {}
    for kind, optimizer in (("momentum", Momentum(0.1)), ("adam", Adam(0.01))):
        expected = alone(backend, optimizer)
        for name, scheme in SCHEMES.items():
            if kind == "momentum" or name in ("ddp", "fsdp2"):
                results[f"{name}, {kind}"] = outcome(backend, communicator, scheme, optimizer, expected)
    for name in ("ddp", "fsdp2"):
        for fault, restore in FAULTS.items():
            results[f"{name}, {fault}"] = resumption(communicator, backend, Restoring(SCHEMES[name], restore), 0).wrong
    expected = alone(backend, Momentum(0.1), module)
    for name in ("all-reduce-buckets", "ddp"):
        found = outcome(backend, communicator, SCHEMES[name], Momentum(0.1), expected, module)
        results[f"{name}-native, momentum"] = found
    started = [SCHEMES[name].start(worker(backend, communicator)) for name in ("ddp", "fsdp2")]
    communicator.barrier()
    if communicator.rank == 0:
        results["lost"] = [lost(backend, each) for each in started]
    (Path(folder) / f"result-{communicator.rank}.json").write_text(json.dumps(results))
    # Not closed: the other rank is lost.
    sys.stdout.flush()
    os._exit(0)


class Restoring:
    """A scheme whose steppers restore their state in another way."""

    def __init__(self, scheme, restore):
        self._scheme, self._restore = scheme, restore

    def start(self, worker):
        stepper = self._scheme.start(worker)
        right = stepper.restore
        stepper.restore = lambda state: self._restore(right, state, worker.communicator)
        return stepper


def of_another(restore, state, communicator):
    """The other rank's kept state."""
    every = {name: communicator.all_gather(np.atleast_1d(each)) for name, each in state.items()}
    restore({name: every[name][1 - communicator.rank].reshape(each.shape) for name, each in state.items()})


FAULTS = {
    "right": lambda restore, state, communicator: restore(state),
    "nothing": lambda restore, state, communicator: None,
    "of another": of_another,
}


def worker(backend, communicator):
    return Worker(communicator, backend, network(backend, 0), Momentum(0.1))


def lost(backend, stepper):
    """The type and text of the error of a pass without the other rank."""
    columns = next(batches())
    try:
        stepper.executor.forward(*map(backend.array, columns))
        stepper.executor.backward()
    except Exception as error:  # noqa: BLE001  # which kind it is, is the question
        return [type(error).__name__, str(error)]
    return []


def main(folder, size=2):
    for scheme in SCHEMES.values():
        scheme.load()
    context, port = multiprocessing.get_context("fork"), free_port()
    places = [RankPlace(rank, size, rank, "127.0.0.1", port, "process") for rank in range(size)]
    ranks = [context.Process(target=rank_of, args=(folder, place), daemon=True) for place in places]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    return any(each.exitcode for each in ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
