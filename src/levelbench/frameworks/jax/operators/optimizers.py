"""Update rules of ``ai.onnx.preview.training``: Adagrad, Adam, Momentum, for any number of parameters at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _each(rule: Callable[..., tuple[Any, ...]], kinds: int) -> Function:
    """``rule(rate, step, parameter, gradient, state...)`` for every parameter; inputs and outputs lie kind by kind."""

    def update(rate: Any, step: Any, *values: Any) -> tuple[Any, ...]:
        count = len(values) // kinds
        found = [rule(rate, step, *values[at::count]) for at in range(count)]
        return tuple(each for kind in zip(*found, strict=True) for each in kind)

    return update


@maker("Adagrad", domain=_DOMAIN)
def _adagrad(node: OperatorNode) -> Function:
    decay, epsilon, norm = float(node["decay_factor"]), float(node["epsilon"]), float(node["norm_coefficient"])

    def adagrad(rate: Any, step: Any, x: Any, gradient: Any, squares: Any) -> tuple[Any, ...]:
        whole = norm * x + gradient
        total = squares + whole * whole
        adjusted = (rate / (1 + step * decay)).astype(x.dtype)
        return x - adjusted * whole / (jnp.sqrt(total) + epsilon), total

    return _each(adagrad, 3)


@maker("Adam", domain=_DOMAIN)
def _adam(node: OperatorNode) -> Function:
    alpha, beta, epsilon = float(node["alpha"]), float(node["beta"]), float(node["epsilon"])
    norm, norm_post = float(node["norm_coefficient"]), float(node["norm_coefficient_post"])

    def adam(rate: Any, step: Any, x: Any, gradient: Any, mean: Any, square: Any) -> tuple[Any, ...]:
        whole = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * whole
        square = beta * square + (1 - beta) * whole * whole
        # Without a step there is nothing to correct for, and the divisor would be zero.
        time = jnp.where(step > 0, step, 1).astype(x.dtype)
        corrected = rate * jnp.sqrt(1 - beta**time) / (1 - alpha**time)
        adjusted = jnp.where(step > 0, corrected, rate).astype(x.dtype)
        return (1 - norm_post) * (x - adjusted * mean / (jnp.sqrt(square) + epsilon)), mean, square

    return _each(adam, 4)


@maker("Momentum", domain=_DOMAIN)
def _momentum(node: OperatorNode) -> Function:
    alpha, beta, norm = float(node["alpha"]), float(node["beta"]), float(node["norm_coefficient"])
    nesterov = node["mode"] == "nesterov"

    def momentum(rate: Any, step: Any, x: Any, gradient: Any, velocity: Any) -> tuple[Any, ...]:
        whole = norm * x + gradient
        velocity = alpha * velocity + jnp.where(step > 0, beta, 1.0).astype(x.dtype) * whole
        move = whole + alpha * velocity if nesterov else velocity
        return x - rate.astype(x.dtype) * move, velocity

    return _each(momentum, 3)
