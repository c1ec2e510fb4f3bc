"""What levelbench adds to a training step: the same step by hand and under the harness, measured side by side.

    python benchmarks/overhead.py [--seconds 60] [--json overhead.json]
    python benchmarks/overhead.py --track    # what levelbench.track adds to somebody's own loop

Each case trains one network on the same batches. One side is a loop as people write it on a copy of its own (an
``nn.Module`` with ``torch.optim``, or plain NumPy calls), or the trainer's own calls with nothing around them, on the
trainer's own arrays ("bare"); the other is the trainer with everything on (timeline, step times, losses, an observer at
every step). They take turns A B B A; the figure is the median of the ratios of neighbours, with its exact
order-statistic interval. Further: the cost of a phase switch, and of hooks that nobody overrides. No timing of one run
is compared with that of another.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import levelbench
from levelbench import plugins
from levelbench.experiments.command_process import carry_out_command
from levelbench.experiments.commands import make_command
from levelbench.experiments.programs import read_target
from levelbench.experiments.progress import Printed
from levelbench.frameworks.numpy.operators import OPERATORS
from levelbench.frameworks.numpy.operators.reductions import mean_cross_entropy
from levelbench.measure.sampling import sample, sample_interleaved
from levelbench.measure.statistics import median_interval
from levelbench.measure.stopping import Budget, Precision
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks import zoo
from levelbench.training import Constant, Momentum, Observer, Recipe, Shuffled, Top1, Trainer, datasets
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.stopping import Evaluate, Stopping
from ratios import clock_of

BATCH, LR, MU = 256, 0.01, 0.9


class Idle(Observer):
    """An observer that overrides nothing."""


class Counting(Observer):
    """An observer that looks on at every step, as one that records would."""

    def __init__(self) -> None:
        self.seen = 0

    def on_step(self, progress) -> None:
        """Count."""
        self.seen = progress.step


def torch_module(network):
    """The network as people write it."""
    import torch

    layers = {
        "Conv": lambda node, shape: torch.nn.Conv2d(shape[1], shape[0], shape[2], padding=node.attributes["pads"][0]),
        "Gemm": lambda node, shape: torch.nn.Linear(shape[1], shape[0]),
        "Relu": lambda node, shape: torch.nn.ReLU(),
        "MaxPool": lambda node, shape: torch.nn.MaxPool2d(node.attributes["kernel_shape"]),
        "Flatten": lambda node, shape: torch.nn.Flatten(),
    }
    initial = network.initialise(0)
    module = torch.nn.Sequential(
        *(
            layers[node.op_type](node, initial[node.inputs[1]].shape if len(node.inputs) > 1 else None)
            for node in network.nodes
        )
    )
    with torch.no_grad():
        for parameter, array in zip(module.parameters(), initial.values(), strict=True):
            parameter.copy_(torch.from_numpy(array))
    return module


def torch_by_hand(network, inputs, labels):
    """A step of a loop in PyTorch, written by hand."""
    import torch

    module = torch_module(network)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=MU)
    x_all, y_all = torch.from_numpy(inputs), torch.from_numpy(labels)
    loss_function, losses = torch.nn.CrossEntropyLoss(), []

    def step(rows):
        x, y = x_all[rows], y_all[rows]
        optimizer.zero_grad()
        loss = loss_function(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    return step, losses, torch.from_numpy


def numpy_by_hand(network, inputs, labels):
    """A step of a loop in NumPy, written by hand: the operators called one after another, no graph, no tape."""
    weights = network.initialise(0)
    velocity = {name: np.zeros_like(array) for name, array in weights.items()}
    losses = []
    calls = [
        (OPERATORS[node.op_type](node), node.inputs[1:], (at > 0, *(True for _ in node.inputs[1:])))
        for at, node in enumerate(network.nodes)
    ]

    def step(rows):
        x, pullbacks = inputs[rows], []
        for kernel, names, wanted in calls:
            (x, *_), pullback = kernel.differentiate((x, *[weights[name] for name in names]), wanted)
            pullbacks.append(pullback)
        loss, pullback = mean_cross_entropy(x, labels[rows])
        losses.append(loss)
        gradient, _ = pullback(np.float32(1))
        for (_, names, _), pullback in zip(reversed(calls), reversed(pullbacks), strict=True):
            gradient, *others = pullback(gradient)
            for name, other in zip(names, others, strict=True):
                velocity[name] *= MU
                velocity[name] += other
                weights[name] -= LR * velocity[name]

    return step, losses, lambda rows: rows


def bare(trainer, backend, inputs, labels):
    """The trainer's own calls and nothing else: executor and update rule, no timeline, no hooks, no step times.

    On the trainer's own executor, so that both sides work on the same memory: two copies of a network differ by up to
    half a per cent through where their arrays lie.
    """
    executor, losses, count = trainer.executor, [], [0]
    stepper = Momentum(LR, MU).start(backend, executor.parameters)
    x_all, y_all = backend.array(inputs), backend.array(labels)

    def step(rows):
        # Named as in any loop: what lives until the end of a step decides what the allocator has at hand.
        x, y = backend.take(x_all, rows), backend.take(y_all, rows)
        losses.append(executor.forward(x, y))
        gradients = executor.backward()
        count[0] += 1
        stepper.step(gradients, count[0], 1.0)

    return step, losses, backend.array


def under_levelbench(framework, network, dataset, observers):
    """The trainer's own step, on batches that the caller names; everything that ``levelbench run`` does is on."""
    backend = plugins.load("framework", framework).open()
    recipe = Recipe(network, Shuffled(BATCH), Momentum(LR, MU), epochs=10**6, schedule=Constant())
    quality = Top1(target=0.99)
    stopping = Stopping(quality.as_target(), "confirmed", Evaluate.parse("1 epoch"), recipe.epochs)
    timeline = Timeline(backend.clock())
    return Trainer(backend, dataset, recipe, quality, stopping, seed=0, timeline=timeline, observers=observers), backend


def case(framework, network, data, seconds, against, chunk, clock):
    """The ratio of a step under levelbench to one without, with its interval and both medians.

    A turn is ``chunk`` steps: a trainer is called once an epoch, not once a step.
    """
    inputs, labels = data
    split = Split.of(inputs, labels)
    dataset = Dataset("overhead", split, split, split, 10, {}, "", "", "", synthetic=True)
    trainer, backend = under_levelbench(framework, network, dataset, (Idle(), Counting()))
    if against == "bare":
        by_hand, losses, native = bare(trainer, backend, inputs, labels)
    else:
        by_hand, losses, native = {"torch": torch_by_hand, "numpy": numpy_by_hand}[framework](network, inputs, labels)
    # The trainer's own first epoch, so that both sides see the same batches.
    order = Shuffled(BATCH).epoch(split, 0, 0).order
    batches = native(order)
    steps = len(order) // BATCH // chunk * chunk
    turn = {"hand": 0, "ours": 0}

    def hand():
        start = turn["hand"] * chunk % steps
        turn["hand"] += 1
        for at in range(start, start + chunk):
            by_hand(batches[at * BATCH : (at + 1) * BATCH])

    def ours():
        start = turn["ours"] * chunk % steps
        turn["ours"] += 1
        trainer.steps(0, start, start + chunk, 10**9)

    a, b = sample_interleaved(hand, ours, until=Budget(seconds=seconds), clock=clock)
    first, same = float(losses[0]), float(trainer.losses[0])
    if against != "bare" and abs(first - same) > 1e-4 * abs(first):
        raise SystemExit(f"the two sides do not train the same network: first losses {first} and {same}")
    n = min(len(a.values), len(b.values)) // 2 * 2
    # Neighbours in A B B A: a pair of turns has seen each order once, so drift inside it cancels.
    left, right = np.log(np.asarray(a.values[:n])), np.log(np.asarray(b.values[:n]))
    ratios = np.exp((right - left).reshape(-1, 2).mean(axis=1))
    interval = median_interval(ratios)
    if interval is None:
        raise SystemExit(f"only {len(ratios)} pairs of {framework} {network.name}: give more --seconds")
    return {
        "framework": framework,
        "network": network.name,
        "against": against,
        "by_hand_ms": float(np.median(a.values)) * 1e3 / chunk,
        "levelbench_ms": float(np.median(b.values)) * 1e3 / chunk,
        "ratio": float(np.median(ratios)),
        "low": interval.low,
        "high": interval.high,
        "pairs": len(ratios),
    }


def switch_cost():
    """Seconds of one phase switch on the host clock."""
    timeline = Timeline()
    switch, forward = timeline.switch, int(Phase.FORWARD)
    return sample(lambda: switch(forward), until=Precision(0.02) | Budget(seconds=5), name="switch")


def ratio_of(a, b):
    """The median ratio of neighbours, with its interval."""
    n = min(len(a.values), len(b.values)) // 2 * 2
    ratios = np.exp((np.log(np.asarray(b.values[:n])) - np.log(np.asarray(a.values[:n]))).reshape(-1, 2).mean(axis=1))
    return float(np.median(ratios)), median_interval(ratios)


def hook_cost(seconds):
    """The ratio of a trainer's step with five observers that override nothing to one without, NumPy on digits.

    One trainer, whose observers are exchanged: two of them would differ by where their arrays lie in memory.
    """
    digits = datasets.digits.load().train
    data = Dataset("hooks", digits, digits, digits, 10, {}, "", "", "")
    trainer, _ = under_levelbench("numpy", zoo.mlp(64, 128, 10), data, ())

    idle = (Idle(),) * 5

    def step_with(observers):
        trainer.observers = observers
        trainer.steps(0, 0, 1, 10**9)

    a, b = sample_interleaved(lambda: step_with(()), lambda: step_with(idle), until=Budget(seconds=seconds))
    return ratio_of(a, b)


def track_costs():
    """Microseconds that `levelbench.track` adds to a step with nothing in it, in the words of each row."""
    batches = range(2000)

    def bare():
        for _ in batches:
            pass

    with tempfile.TemporaryDirectory() as store, levelbench.track("cost", target={"top1": 1}, store=store) as run:
        phases = [run.phase(name) for name in ("forward", "backward", "update")]

        def steps():
            for _ in run.data(batches):
                pass

        def with_phases():
            for _ in run.data(batches):
                for phase in phases:
                    with phase:
                        pass

        found = {}
        for name, body in (("run.data", steps), ("run.data with three phases", with_phases)):
            a, b = sample_interleaved(bare, body, until=Budget(seconds=5))
            added = (np.asarray(b.values) - np.median(a.values)) / len(batches) * 1e6
            found[name] = float(np.median(added)), median_interval(added)
        run.evaluate(0.0)
    return found


def told_costs():
    """Microseconds that reporting phases to `levelbench time` adds to a step with nothing in it."""
    from levelbench.experiments.told import Page

    def nothing():
        pass

    def bare():
        for _ in range(2000):
            nothing()

    with tempfile.TemporaryDirectory() as folder:
        Page.create(Path(folder) / "phases")
        os.environ["LEVELBENCH_PHASES"] = str(Path(folder) / "phases")
        batches, step = levelbench.phases(data=range(2000), train=nothing)

        def steps():
            for _ in batches:
                step()

        a, b = sample_interleaved(bare, steps, until=Budget(seconds=5))
    added = (np.asarray(b.values) - np.median(a.values)) / 2000 * 1e6
    return {"phases under levelbench time": (float(np.median(added)), median_interval(added))}


CALLBACK_STEPS = {
    "lightning": lambda told, trainer: (
        told.on_train_batch_start(trainer, None, (), 0),
        told.on_before_backward(trainer, None, None),
        told.on_after_backward(trainer, None),
        told.on_before_optimizer_step(trainer, None, None),
        told.on_train_batch_end(trainer, None, None, (), 0),
    ),
    "transformers": lambda told, trainer: (
        told.on_step_begin(trainer, trainer, trainer),
        told.on_pre_optimizer_step(trainer, trainer, trainer),
        told.on_optimizer_step(trainer, trainer, trainer),
        told.on_step_end(trainer, trainer, trainer),
    ),
    "keras": lambda told, trainer: (told.on_train_batch_begin(0), told.on_train_batch_end(0)),
    "xgboost": lambda told, trainer: (told.before_iteration(None, 0, {}), told.after_iteration(None, 0, {})),
    "lightgbm": lambda told, trainer: (told[0](trainer), told[1](trainer)),
}
"""The events of one step, in each trainer's order, with nothing between them."""


def callback_costs():
    """Microseconds that a callback's events add to a step, by trainer; of those that are not installed none."""
    empty = {"train_batch_size": 64, "gradient_accumulation_steps": 1, "should_evaluate": False}
    trainer = SimpleNamespace(**empty, evaluation_result_list=[], iteration=0)
    found = {}
    for name, step in CALLBACK_STEPS.items():
        with tempfile.TemporaryDirectory() as store, levelbench.track("cost", target={"top1": 1}, store=store) as run:
            try:
                told = run.callback(name, examples=64)
            except levelbench.LevelbenchError as error:
                print(f"left out: {name}, {error.found}")
                run.evaluate(0.0)
                continue

            def bare():
                for _ in range(2000):
                    pass

            def steps(step=step, told=told):
                for _ in range(2000):
                    step(told, trainer)

            a, b = sample_interleaved(bare, steps, until=Budget(seconds=5))
            run.evaluate(0.0)
        added = (np.asarray(b.values) - np.median(a.values)) / 2000 * 1e6
        found[f"the {name} callback"] = float(np.median(added)), median_interval(added)
    return found


def track_ratio(seconds, width=1024, *, tracks, pairs=12):
    """What `autophase` adds to a PyTorch step: its time on a plain copy in seconds, the ratio, and what is added.

    Two copies of one network differ by themselves, by where their arrays lie. So `pairs` of fresh ones are compared, of
    which the first and the second are tracked in turn; an interval is that of the median pair. Unless `tracks`, neither
    is. The ratio and the microseconds added come with their intervals.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, width, generator=generator)
    batches = [(inputs, torch.randint(10, (64,), generator=generator))] * 10

    def network():
        torch.manual_seed(0)
        layers = [torch.nn.Linear(width, width), torch.nn.ReLU()] * 2
        model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))
        return model, torch.optim.SGD(model.parameters(), lr=LR, momentum=MU)

    def train(model, optimizer, data):
        for x, y in data:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    times_s, ratios, added_us = [], [], []
    for at in range(pairs):
        copies = [network(), network()]
        plain, other = copies if at % 2 else copies[::-1]
        with tempfile.TemporaryDirectory() as store, levelbench.track("cost", target={"top1": 1}, store=store) as run:
            loader = levelbench.autophase(*other, batches) if tracks else batches
            a, b = sample_interleaved(
                lambda plain=plain: train(*plain, batches),
                lambda other=other, loader=loader: train(*other, loader),
                until=Budget(seconds=seconds / pairs),
            )
            run.evaluate(0.0)
        times_s.append(np.median(a.values) / len(batches))
        ratios.append(ratio_of(a, b)[0])
        added_us.append((np.median(b.values) - np.median(a.values)) / len(batches) * 1e6)
    found = [(float(np.median(each)), median_interval(np.asarray(each))) for each in (ratios, added_us)]
    return float(np.median(times_s)), *found


PRINTS = """
line = "step 1234567 loss=2.3456 tokens/s=12345.6 lr=0.00123 grad_norm=1.234 " * 4
for step in range({lines}):
    print(line[:{characters}])
print("accuracy: 0.5")
"""


def output_ratio(seconds, lines=400_000, characters=249):
    """The ratio of a program's time when its quality is looked for in all that it prints to that when it is not.

    With the processor seconds that looking takes, and how long the program takes without. Nothing else is in the
    program: one that computes between its lines waits less.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "prints.py").write_text(PRINTS.format(lines=lines, characters=characters))
        command = make_command(f"{sys.executable} prints.py", Path(folder))
        printed, spent_s = Printed(read_target("accuracy=0.9")), []

        def looked_at():
            began_s = time.process_time()
            carry_out_command(command, read=lambda line: printed.read(line) is None and False)
            spent_s.append(time.process_time() - began_s)

        a, b = sample_interleaved(lambda: carry_out_command(command), looked_at, until=Budget(seconds=seconds))
    return float(np.median(a.values)), float(np.median(spent_s)), *ratio_of(a, b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each case")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--frameworks", default="numpy,torch", help="which, with commas between them")
    parser.add_argument("--against", default="by hand,bare", help="which, with commas between them")
    parser.add_argument(
        "--channels", type=int, default=16, help="of the convolutional network: 4 is a step of 5 ms or so"
    )
    parser.add_argument("--only-cnn", action="store_true", help="leave the small network out")
    parser.add_argument("--processor", action="store_true", help="in processor time, on a busy machine")
    parser.add_argument("--track", action="store_true", help="measure levelbench.track instead")
    parser.add_argument("--output", action="store_true", help="measure reading 100 MB of a program's output instead")
    options = parser.parse_args()
    clock = clock_of(options.processor)
    if options.output:
        alone_s, spent_s, ratio, interval = output_ratio(options.seconds)
        between = f"[{interval.low:.3f}, {interval.high:.3f}]" if interval else "(too few pairs for an interval)"
        print(f"400,000 lines, 100 MB: {alone_s:.3g} s to /dev/null; read by levelbench, ratio {ratio:.3f} {between}")
        print(f"processor time of levelbench: {spent_s:.2g} s")
        return
    if options.track:
        for name, (value, interval) in {**track_costs(), **callback_costs(), **told_costs()}.items():
            print(f"{name}: {value:.2f} us a step [{interval.low:.2f}, {interval.high:.2f}]")
        for name, width, tracks in (
            ("two copies, neither tracked", 1024, False),
            ("autophase", 1024, True),
            ("autophase, a small network", 16, True),
        ):
            step_s, (ratio, interval), (added_us, around) = track_ratio(options.seconds, width, tracks=tracks)
            found = f"ratio {ratio:.4f} [{interval.low:.4f}, {interval.high:.4f}]"
            added = f"{added_us:+.2f} us a step [{around.low:+.2f}, {around.high:+.2f}]"
            print(f"{name}, a step of {step_s * 1e3:.3g} ms: {found}, {added}")
        return
    digits = datasets.digits.load().train
    # As many batches as a turn has steps: the digits several times over.
    digit_data = np.tile(digits.inputs, (9, 1)), np.tile(digits.labels, 9)
    generator = np.random.default_rng(0)
    images = generator.standard_normal((10 * BATCH, 1, 28, 28)).astype(np.float32)
    image_data = images, generator.integers(0, 10, len(images))
    cases = []
    print("| framework | network | against a step | ms | levelbench, ms | ratio | 95 % interval | pairs |")
    print("|---|---|---|---|---|---|---|---|")
    for framework, against in product(options.frameworks.split(","), options.against.split(",")):
        for network, data, chunk in (
            (zoo.mlp(64, 128, 10), digit_data, 32),
            (zoo.cnn((1, 28, 28), options.channels, 64, 10), image_data, 1),
        )[options.only_cnn :]:
            found = case(framework, network, data, options.seconds, against, chunk, clock)
            cases.append(found)
            print(
                f"| {framework} | {network.name} | {against} | {found['by_hand_ms']:.3f} "
                f"| {found['levelbench_ms']:.3f} | {found['ratio']:.4f} "
                f"| {found['low']:.4f} to {found['high']:.4f} | {found['pairs']} |",
                flush=True,
            )
    switch = switch_cost().estimate()
    low, high = switch.interval.low, switch.interval.high
    ratio, interval = hook_cost(min(20.0, options.seconds))
    print(f"\nA phase switch: {switch.value * 1e9:.0f} ns [{low * 1e9:.0f}, {high * 1e9:.0f}].")
    print(f"Five observers that override nothing: ratio {ratio:.4f} [{interval.low:.4f}, {interval.high:.4f}].")
    if options.json:
        text = json.dumps({"cases": cases, "switch_s": switch.value, "idle_hooks_ratio": ratio}, indent=2)
        with tempfile.NamedTemporaryFile("w", dir=options.json.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(options.json)


if __name__ == "__main__":
    main()
