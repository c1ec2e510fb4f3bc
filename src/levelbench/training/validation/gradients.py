"""Probes of a recipe's gradients: against differences of its loss, and against a reference framework."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.timeline import Timeline
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.validation import compare_network
from levelbench.training.accumulation import Accumulating
from levelbench.training.validation.bench import Bench
from levelbench.training.validation.probes import Finding, failed, not_tried, noted, passed

__all__ = ["accumulation", "agreement", "differences", "numbers"]

_EXAMPLES = 8
_BLOCKS = 8
_STEPS = (1e-2, 3e-3, 1e-3, 3e-2)
# Differences in float32 of a loss with kinks: what is wrong by a factor, a sign or a missing term is far beyond.
_TOLERANCE = 0.1
_MOST_FLOPS = 5e9
_ROUNDING = 0.05
_ALIGNED = 0.9
_ACCUMULATED = 16
_MOST_BATCHES = 4
_ADDED_UP = 0.01
_APART = ("BatchNormalization", "Dropout")
"""Of several batches they make something else than of one, as they should."""


def differences(bench: Bench, seed: int) -> Iterator[Finding]:
    """The slope of the loss along the gradient of each parameter, the largest first, against its squared norm.

    Differences in float32 at four steps; the best of them has to agree within 10 %.
    """
    title, batch = "gradient", bench.rows(_EXAMPLES)
    executor = bench.executor(bench.plain, seed)

    def loss() -> float:
        # Dropout has to draw the same each time.
        bench.backend.seed(seed)
        return float(bench.host(executor.forward(*batch)))

    _jitter(bench, executor, seed)
    base = loss()
    gradients = {name: bench.host(value).astype(np.float64) for name, value in executor.backward().items()}
    norms = {name: float(np.linalg.norm(value)) for name, value in gradients.items()}
    whole = math.sqrt(sum(norm**2 for norm in norms.values()))
    if not math.isfinite(whole) or not whole > 0:
        yield failed(title, f"its norm is {whole:.4g}", "look whether the loss is finite and depends on them")
        return
    largest = sorted((name for name in norms if norms[name] > 0.01 * whole), key=lambda name: -norms[name])[:_BLOCKS]
    wrong: list[tuple[float, str]] = []
    for name in largest:
        direction, off = gradients[name] / norms[name], math.inf
        for step in _STEPS:
            off = min(off, _off(bench, executor, loss, name, direction, step * max(abs(base), 1e-2), norms[name]))
            if off <= _TOLERANCE:
                break
        else:
            wrong.append((off, name))
    if wrong:
        off, name = max(wrong)
        found = f"the loss changes along the gradient of {name} by another slope than the gradient says, {off:.0%} off"
        yield failed(title, found, "correct the backward of the operator there; levelbench check MODEL names it")
    else:
        yield passed(title, f"of {len(largest)} parameters, against differences of the loss")


def _jitter(bench: Bench, executor: Executor, seed: int) -> None:
    """Move all parameters a little: at a bias of exactly zero, whole backgrounds stand at the kink of a ReLU."""
    random, parameters = np.random.default_rng(seed), executor.parameters
    for name in list(parameters):
        value = bench.host(parameters[name])
        noise = 0.05 * max(float(np.std(value)), 0.1) * random.standard_normal(value.shape)
        parameters[name] = bench.backend.array((value + noise).astype(value.dtype))


def _off(
    bench: Bench, executor: Executor, loss: Any, name: str, direction: NDArray[np.float64], change: float, norm: float
) -> float:
    """The relative error of the slope, at the step that should change the loss by so much.

    Where the loss has a kink (many ReLUs at zero at once, as a bias moves) any slope between those to the left and to
    the right is a gradient of it.
    """
    host, array, parameters = bench.host, bench.backend.array, executor.parameters
    kept = host(parameters[name]).copy()
    step = change / norm
    ends = []
    for times in (-1, 0, 1):
        parameters[name] = array((kept + times * step * direction).astype(kept.dtype))
        ends.append(loss())
    parameters[name] = array(kept)
    left, right = (ends[1] - ends[0]) / step, (ends[2] - ends[1]) / step
    middle = (left + right) / 2
    if not math.isfinite(middle):
        return math.inf
    outside = max(min(left, right) - norm, norm - max(left, right), 0.0)
    return float(min(abs(middle - norm), outside) / norm)


def agreement(bench: Bench, seed: int, name: str, reference: Backend | None) -> Iterator[Finding]:
    """Loss, outputs and gradients against the reference framework, by tensor, on examples of the data."""
    title = "reference"
    if reference is None:
        yield not_tried(title, f"{name} is the reference itself; see 'gradient'")
        return
    network = bench.plain.trained_network()
    flops = _EXAMPLES * bench.flops
    if flops > _MOST_FLOPS:
        found = f"{flops:.2g} operations are too many for the reference, which is made to be right and not fast"
        yield not_tried(title, found, "levelbench check MODEL compares networks")
        return
    batch = [bench.host(each) for each in bench.rows(_EXAMPLES)]
    inputs = {value.name: array for value, array in zip(network.inputs, batch, strict=True)}
    weights = bench.plain.network.initialise(seed)
    compared = compare_network(network, {name: bench.backend}, reference, inputs, weights, locate=False)
    (backend,) = compared.backends
    if backend.lacks:
        yield not_tried(title, backend.lacks)
    elif backend.raised:
        yield failed(title, f"{name} raises {backend.raised}", "correct what it raises at")
    elif backend.wrong:
        first = backend.wrong[0]
        more = f"; and {len(backend.wrong) - 1} more tensors" if len(backend.wrong) > 1 else ""
        do = "levelbench check MODEL names the operator at which the two part"
        yield failed(title, f"{name} and numpy differ in {first.kind} {first.detail}{more}", do)
    else:
        agree = sum(each.status == "agrees" for each in backend.tensors)
        yield passed(title, f"{agree} of {len(backend.tensors)} tensors agree with numpy's")
        if rounding := [each.name for each in backend.tensors if each.status == "rounding"]:
            yield noted(title, f"{', '.join(rounding[:3])} differ by what rounding does to them")


def numbers(bench: Bench, seed: int) -> Iterator[Finding]:
    """The recipe's own precision, layout and mode give the loss and the gradient of float32, but for rounding."""
    title, own = "precision", bench.whole
    plain = replace(bench.plain, precision=own.precision, channels_last=own.channels_last, mode=own.mode)
    if plain == bench.plain:
        return
    batch, ends = bench.rows(_EXAMPLES), []
    for recipe in (bench.plain, plain):
        executor = bench.executor(recipe, seed)
        bench.backend.seed(seed)
        loss = float(bench.host(executor.forward(*batch)))
        gradients = executor.backward()
        flat = [bench.host(gradients[name]).astype(np.float64).ravel() for name in sorted(gradients)]
        ends.append((loss, np.concatenate(flat)))
    (exact, slope), (loss, other) = ends
    cosine = float(slope @ other / max(float(np.linalg.norm(slope) * np.linalg.norm(other)), 1e-300))
    layout = " and channels last" if own.channels_last else ""
    found = f"in {own.precision}{layout} the loss is {loss:.4g} where float32 has {exact:.4g}"
    found += f", and the cosine between the gradients is {cosine:.4f}"
    if math.isfinite(loss) and abs(loss - exact) <= _ROUNDING * max(abs(exact), 0.1) and cosine >= _ALIGNED:
        yield passed(title, found)
    else:
        yield failed(title, found, "keep in float32 what overflows or cancels, or train in float32")


def accumulation(bench: Bench, seed: int) -> Iterator[Finding]:
    """Several batches, of unequal sizes, give the gradient of one batch of all their examples."""
    title, recipe = "accumulation", bench.plain
    if bench.whole.accumulate == 1:
        return
    apart = [each for each in _APART if any(node.op_type == each for node in recipe.trained_network().nodes)]
    if apart:
        found = f"not compared with one large batch: {' and '.join(apart)} takes each batch by itself"
        yield noted(title, found)
        return
    batch = bench.rows(_ACCUMULATED)
    rows = len(batch[0])
    count = min(bench.whole.accumulate, _MOST_BATCHES, rows)
    if count < 2:
        yield not_tried(title, f"{rows} example cannot be cut in batches")
        return
    # The last is half as large as the others, as at the end of an epoch.
    bounds = [min(rows, round(at * 2 * rows / (2 * count - 1))) for at in range(count + 1)]
    group = [tuple(column[start:stop] for column in batch) for start, stop in pairwise(bounds)]
    ends = []
    for batches in ([batch], group):
        turn = Accumulating(bench.executor(recipe, seed), Timeline(bench.backend.clock()))
        loss = float(bench.host(turn.forward(*batches)))
        gradients = turn.backward()
        flat = [bench.host(gradients[name]).astype(np.float64).ravel() for name in sorted(gradients)]
        ends.append((loss, np.concatenate(flat)))
    (whole, slope), (loss, other) = ends
    off = float(np.linalg.norm(other - slope) / max(float(np.linalg.norm(slope)), 1e-300))
    sizes = ", ".join(str(stop - start) for start, stop in pairwise(bounds))
    found = f"batches of {sizes} give a loss of {loss:.4g}, one of {rows} gives {whole:.4g}; the gradients are"
    found += f" {off:.1e} of their norm apart"
    if off <= _ADDED_UP and abs(loss - whole) <= _ADDED_UP * max(abs(whole), 0.1):
        yield passed(title, found)
    else:
        do = "let the loss be the mean of what each example adds by itself, and backward() answer for one batch alone"
        yield failed(title, found, do)
