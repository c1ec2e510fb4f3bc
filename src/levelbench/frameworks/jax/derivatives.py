"""JAX's vector-Jacobian products of functions whose inputs and outputs are not all floating-point.

The one idea: only floating-point inputs and outputs take part. The others, and what is ``None``, are passed by, so that
JAX's zero-sized type for the gradient of an integer never shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.arrays import is_differentiable

__all__ = ["differentiable", "gradients_of", "integer_pullback", "with_pullback"]

Function = Callable[..., tuple[Any, ...]]


def differentiable(inputs: Sequence[Any]) -> list[int]:
    """The positions of floating-point arrays."""
    return [at for at, each in enumerate(inputs) if hasattr(each, "dtype") and is_differentiable(each.dtype)]


def with_pullback(function: Function) -> Callable[..., tuple[Any, Any]]:
    """The outputs, and the pullback of their floating-point ones to the floating-point inputs."""

    def both(*inputs: Any) -> tuple[Any, Any]:
        at = differentiable(inputs)

        def narrowed(*chosen: Any) -> tuple[Any, Any]:
            full = list(inputs)
            for place, value in zip(at, chosen, strict=True):
                full[place] = value
            outputs = function(*full)
            return tuple(outputs[place] for place in differentiable(outputs)), outputs

        _, pullback, outputs = jax.vjp(narrowed, *(inputs[place] for place in at), has_aux=True)
        return outputs, pullback

    return both


def gradients_of(function: Function) -> Callable[..., tuple[Any, ...]]:
    """(gradients, inputs, outputs) -> gradients of inputs, by a forward of its own: XLA keeps what it needs of it."""

    def backward(gradients: tuple[Any, ...], inputs: tuple[Any, ...], _: tuple[Any, ...]) -> tuple[Any, ...]:
        outputs, pullback = with_pullback(function)(*inputs)
        given = [
            jnp.zeros_like(outputs[place]) if gradients[place] is None else gradients[place]
            for place in differentiable(outputs)
        ]
        found = dict(zip(differentiable(inputs), pullback(tuple(given)), strict=True)) if given else {}
        return tuple(found.get(place) for place in range(len(inputs)))

    return backward


def integer_pullback(function: Function, title: str) -> Callable[..., tuple[Any, Any]]:
    """The outputs of a function that cannot be traced; a gradient only where no output has any."""

    def both(*inputs: Any) -> tuple[Any, Any]:
        outputs = function(*inputs)
        if differentiable(outputs):
            raise UnsupportedError(
                f"the gradient of {title}", "the shape of its output depends on values", "use another framework"
            )
        return outputs, None

    return both
