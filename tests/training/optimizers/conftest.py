"""A problem for every rule: a noisy quadratic over arrays of several shapes."""

from __future__ import annotations

import numpy as np
import pytest

SHAPES = {"kernel": (3, 2, 2, 2), "weight": (4, 3), "bias": (5,), "scale": ()}


class Problem:
    """Gradients are ``curvature · w + noise``; the noise of each step is drawn in advance and the same for all."""

    def __init__(self, steps: int, dtype: str = "float64", names: tuple[str, ...] = tuple(SHAPES)) -> None:
        generator = np.random.default_rng(0)
        shapes = {name: SHAPES[name] for name in names}
        self.steps = steps
        self.start = {n: np.array(generator.standard_normal(s), dtype) for n, s in shapes.items()}
        self.curvature = {n: np.array(generator.uniform(0.1, 1.0, s), dtype) for n, s in shapes.items()}
        self.noise = {n: np.array(generator.standard_normal((steps, *s)), dtype) for n, s in shapes.items()}

    def gradients(self, parameters, step):
        """Those at ``parameters``, before step number ``step`` (from 1)."""
        return {n: np.asarray(self.curvature[n] * w + self.noise[n][step - 1]) for n, w in parameters.items()}

    def flat(self, parameters):
        return np.concatenate([np.asarray(parameters[n]).reshape(-1) for n in self.start])

    def run(self, rule):
        """The parameters after each step of an update rule on NumPy arrays, one row per step."""
        parameters = {n: w.copy() for n, w in self.start.items()}
        states = {n: rule.init(w) for n, w in parameters.items()}
        path = []
        for step in range(1, self.steps + 1):
            for name, gradient in self.gradients(parameters, step).items():
                parameters[name], states[name] = rule.update(parameters[name], gradient, states[name], step, rule.lr)
            path.append(self.flat(parameters))
        return np.array(path)

    def run_with(self, optimizer):
        """The same for any optimizer, by its stepper on NumPy; also returns the stepper."""
        from levelbench.frameworks.numpy.backend import NumpyBackend

        parameters = {n: w.copy() for n, w in self.start.items()}
        stepper, path = optimizer.start(NumpyBackend(), parameters), []
        for step in range(1, self.steps + 1):
            stepper.step(self.gradients(parameters, step), step, 1.0)
            path.append(self.flat(parameters))
        return np.array(path), stepper


@pytest.fixture(scope="session")
def problem():
    return Problem


@pytest.fixture
def assert_same_path():
    """Two trajectories agree at every step, to ``tolerance`` of a parameter's largest magnitude."""

    def check(ours, theirs, tolerance):
        assert ours.shape == theirs.shape
        assert np.isfinite(theirs).all()
        error = np.abs(ours - theirs).max(axis=1) / np.abs(theirs).max()
        worst = int(error.argmax())
        assert error[worst] <= tolerance, f"{error[worst]:.1e} at step {worst + 1}; first: {error[0]:.1e}"

    return check
