"""One rank of ``benchmarks/distributed.py``: measures a case together with the other rank; rank 0 prints it as JSON.

Both ranks must make the same calls, so the number of turns is rank 0's, and times are put together
afterwards: a turn took as long as its slower rank.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from levelbench.distributed.communicator import Communicator, Done, Handle, Reduction
from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching.environment import RankPlace, place_of
from levelbench.distributed.ranks import Ranks
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.measure.clocks import HOST
from levelbench.measure.sampling import sample_interleaved
from levelbench.measure.stopping import Budget, FixedCount
from levelbench.measure.timeline import Timeline
from levelbench.networks import Network, zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training import Constant, Momentum, Native, Recipe, Shuffled, Top1, Trainer
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.stopping import Evaluate, Stopping
from ratios import of_neighbours

BATCHES = {"mlp": 64, "cnn": 32, "resnet18": 32}
"""Of each rank."""
LR, MU = 1e-4, 0.9
TOLERANCE = 1e-4
CHUNK = {"mlp": 32, "cnn": 1, "resnet18": 8}
"""Steps of a turn of ``harness``: the trainer is called once an epoch, not once a step."""

Work = Callable[[], Any]


def network(name: str) -> Network:
    """Those of ``benchmarks/executor.py``, for training; ResNet-18 on images of 32x32."""
    from executor import network as made

    return (zoo.build("resnet18", size=32) if name == "resnet18" else made(name)).with_loss().training()


def in_turns(first: Work, second: Work, communicator: Communicator, seconds: float) -> dict[str, float]:
    """Turns A B B A, as many as rank 0 says; the first quarter of them warms up."""

    def once(work: Work, calls: int) -> int:
        communicator.barrier()
        began = HOST.now_ns()
        for _ in range(calls):
            work()
        return HOST.now_ns() - began

    longest = max([once(work, 1) for _ in range(2) for work in (first, second)][2:])
    # At least a millisecond a value, and eight values a side.
    calls = max(1, round(1e6 / longest))
    turns = max(6, int(seconds * 1e9 / (4 * calls * longest)))
    calls, turns = (int(each) for each in communicator.broadcast(np.array([calls, turns], np.int64)))
    order = (first, second, second, first)
    times = np.array([[once(work, calls) for work in order] for _ in range(turns)], np.int64)
    slowest = np.max(communicator.all_gather(times.ravel()), axis=0).reshape(turns, 4)[turns // 4 :] / (1e9 * calls)
    one, other = slowest[:, [0, 3]].ravel(), slowest[:, [1, 2]].ravel()
    return {
        "first_s": float(np.median(one)),
        "second_s": float(np.median(other)),
        "ratio": of_neighbours(one.tolist(), other.tolist()),
    }


def ddp_step(name: str, arrays: dict[str, Any], inputs: list[Any], tuned: bool) -> Work:
    """A loop's body as people write it, around a hand-written module on the executor's own tensors."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from peers.handwritten_torch import _module as hand_written

    options = {"gradient_as_bucket_view": True, "static_graph": True, "broadcast_buffers": False} if tuned else {}
    module = DistributedDataParallel(hand_written(name, arrays).train(), **options)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=MU)
    loss_function = torch.nn.CrossEntropyLoss()
    x, labels = inputs

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_function(module(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def step_case(options: argparse.Namespace, place: RankPlace) -> dict[str, float]:
    """DDP and the scheme ``all-reduce``."""
    communicator = open_communicator("gloo", place)
    backend = load_framework("torch").open()
    made = network(options.network)
    executor = backend.executor(made, made.initialise(0))
    drawn = made.make_inputs(BATCHES[options.network], seed=place.rank)
    inputs = [backend.array(each) for each in drawn.values()]
    arrays = {**executor.parameters, **executor.buffers}
    by_hand = ddp_step(
        options.network, {each.name: arrays[each.name] for each in made.parameters}, inputs, options.ddp == "tuned"
    )
    optimizer = Native("torch.optim.SGD", lr=LR, momentum=MU)
    worker = Worker(communicator, backend, executor, optimizer, switch=Timeline().switch)
    stepper = AllReduce(bucket_mb=options.bucket_mb, overlap=options.overlap == "on").start(worker)
    stepper.share = 1 / place.size
    done = [0]

    def ours() -> Any:
        loss = executor.forward(*inputs)
        gradients = executor.backward()
        done[0] += 1
        stepper.step(gradients, done[0], 1.0)
        return loss

    require_same(by_hand, ours, executor.parameters, backend)
    worker.ledger.take()
    found = in_turns(by_hand, ours, communicator, options.seconds)
    _, overlaps = worker.ledger.take()["overlap"]
    stepper.close()
    communicator.close()
    return {**found, "overlap": float(np.median(overlaps))}


def require_same(by_hand: Work, ours: Work, parameters: Any, backend: Any) -> None:
    """End with 1 unless both make the same step from the same parameters."""
    start = {name: backend.host(each) for name, each in parameters.items()}
    ends = []
    for work in (by_hand, ours):
        parameters.update({name: backend.array(each.copy()) for name, each in start.items()})
        work()
        ends.append({name: backend.host(each) - start[name] for name, each in parameters.items()})
    for name, moved in ends[0].items():
        if np.linalg.norm(ends[1][name] - moved) > TOLERANCE * max(np.linalg.norm(moved), np.linalg.norm(start[name])):
            raise SystemExit(f"the two sides do not make the same step: see {name}")


def reduce_case(options: argparse.Namespace, place: RankPlace) -> dict[str, float]:
    """The libraries gloo and MPI between the same two processes."""
    import socket

    mpi = open_communicator("mpi", place)
    port = 0
    if place.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    port = int(mpi.broadcast(np.array([port], np.int64))[0])
    gloo = open_communicator(
        "gloo", RankPlace(place.rank, place.size, place.local_rank, "127.0.0.1", port, place.engine)
    )
    backend = load_framework("torch").open()
    array = backend.array(np.ones(options.bytes // 4, np.float32))

    def reduce(communicator: Communicator) -> Work:
        # The mean of equal arrays: values neither grow nor fade.
        return lambda: communicator.all_reduce(array, "mean")

    found = in_turns(reduce(gloo), reduce(mpi), mpi, options.seconds)
    gloo.close()
    mpi.close()
    return found


class Idle(Communicator):
    """Rank 0 of two, whose other rank always has zeros: nothing is sent, and nothing takes time."""

    name, rank, size = "idle", 0, 2

    def start_all_reduce(self, array: Any, op: Reduction = "sum") -> Handle:
        """What is there."""
        return Done(array)

    def start_broadcast(self, array: Any, root: int = 0) -> Handle:
        """What is there."""
        return Done(array)

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """Nothing to leave."""

    def _unused(self, *words: Any) -> Any:
        raise NotImplementedError("the benchmark does not use it")

    start_send = start_receive = receive_any = reduce_scatter = _unused
    all_gather = gather = scatter = all_to_all = exchange = _unused


def harness_case(options: argparse.Namespace, place: RankPlace) -> dict[str, float]:
    """The trainer's loop on rank 0 of two, and the same calls by hand, on the same arrays."""
    chunk = CHUNK[options.network]
    made, each = HARNESSED[options.network]()
    whole = 2 * each
    random = np.random.default_rng(0)
    inputs = random.standard_normal((4 * chunk * whole, *made.inputs[0].shape[1:])).astype(np.float32)
    split = Split.of(inputs, random.integers(0, 10, len(inputs)))
    dataset = Dataset("harness", split, split, split, 10, {}, "", "", "", synthetic=True)
    backend = load_framework("torch").open()
    recipe = Recipe(made, Shuffled(whole), Momentum(LR, MU), epochs=10**6, schedule=Constant())
    quality = Top1(target=0.99)
    stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), recipe.epochs)
    team = Ranks(Idle(), AllReduce(bucket_mb=1e6, overlap=False))
    trainer = Trainer(
        backend, dataset, recipe, quality, stopping, seed=0, timeline=Timeline(backend.clock()), team=team
    )
    by_hand = loop_by_hand(trainer, backend)
    turn = [0, 0]

    def hand() -> None:
        start, turn[0] = turn[0] * chunk % (4 * chunk), turn[0] + 1
        by_hand(start, start + chunk)

    def ours() -> None:
        start, turn[1] = turn[1] * chunk % (4 * chunk), turn[1] + 1
        team.steps(trainer, 0, start, start + chunk, 10**9)
        trainer.losses.clear()
        team.ledger.take()

    a, b = sample_interleaved(hand, ours, until=Budget(seconds=options.seconds) & FixedCount(8))
    n = min(len(a.values), len(b.values)) // 2 * 2
    added = (np.asarray(b.values[:n]) - np.asarray(a.values[:n])).reshape(-1, 2).mean(axis=1) / chunk
    return {
        "first_s": float(np.median(a.values)) / chunk,
        "second_s": float(np.median(b.values)) / chunk,
        "added_s": float(np.median(added)),
        "ratio": of_neighbours(a.values.tolist(), b.values.tolist()),
    }


HARNESSED: dict[str, Callable[[], tuple[Network, int]]] = {
    "mlp": lambda: (zoo.mlp(64, 128, 10), 64),
    "cnn": lambda: (zoo.cnn((1, 28, 28), 16, 64, 10), 128),
    "resnet18": lambda: (zoo.build("resnet18", classes=10, size=32, width=1), 2),
}
"""Networks of ``harness``, with the batch of a rank. ResNet-18 has one channel where it has 64: what the trainer adds
follows from how many parameters there are, not from how large they are, and beside a whole step it could not be seen.
"""


def loop_by_hand(trainer: Trainer, backend: Any) -> Callable[[int, int], None]:
    """A loop over the trainer's batches: forward, backward, one flat all-reduce, update."""
    import torch

    executor, communicator = trainer.executor, Idle()
    stepper = Momentum(LR, MU).start(backend, executor.parameters)
    names = list(executor.parameters)
    flat = torch.empty(sum(each.numel() for each in executor.parameters.values()))
    pieces = flat.split([each.numel() for each in executor.parameters.values()])
    views = [piece.view(each.shape) for piece, each in zip(pieces, executor.parameters.values(), strict=True)]
    reduced, losses = dict(zip(names, views, strict=True)), []

    def loop(start: int, stop: int) -> None:
        for columns in trainer.loader.batches(0, start, stop, 0.0):
            losses.append(executor.forward(*columns))
            gradients = executor.backward()
            torch._foreach_copy_(views, [gradients[name] for name in names])
            flat.mul_(0.5)
            communicator.all_reduce(flat)
            stepper.step(reduced, 1, 1.0)
        losses.clear()

    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=["step", "reduce", "harness"])
    parser.add_argument("--network", default="mlp", choices=list(BATCHES))
    parser.add_argument("--ddp", default="tuned", choices=["plain", "tuned"])
    parser.add_argument("--overlap", default="on", choices=["on", "off"])
    parser.add_argument("--bucket-mb", type=float, default=25.0)
    parser.add_argument("--bytes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    place = place_of(os.environ)
    measured = {"step": step_case, "reduce": reduce_case, "harness": harness_case}[options.case](options, place)
    if place.rank == 0:
        print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
