"""The functions of a node whose structural inputs are known, compiled when they are first called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from levelbench.frameworks.jax.derivatives import gradients_of, integer_pullback, with_pullback
from levelbench.frameworks.jax.operators.registry import Entry, Function
from levelbench.operators.node import OperatorNode

__all__ = ["Program"]


class Program:
    """``forward(*inputs)``, ``vjp(*inputs)``, ``backward(gradients, inputs, outputs)``, as tuples.

    Inputs that are bound are passed as ``None``. Those of a random operator come after (key, number of the draw).
    An eager one, whose output's shape depends on values, runs step by step.
    """

    def __init__(self, node: OperatorNode, entry: Entry, function: Function, bound: Mapping[int, Any]) -> None:
        outputs = _named(node)

        def plain(*inputs: Any) -> tuple[Any, ...]:
            return outputs(function(*_filled(inputs, bound)))

        def drawn(draw: tuple[Any, Any], *inputs: Any) -> tuple[Any, ...]:
            return outputs(function(_key(node, draw), *_filled(inputs, bound)))

        whole: Callable[..., tuple[Any, ...]] = drawn if entry.random else plain
        eager = entry.eager(node)
        backward = gradients_of(whole)
        if entry.backward is not None:
            given = entry.backward(node)

            def backward(gradients: Any, inputs: Any, outputs: Any) -> tuple[Any, ...]:
                return given(gradients, _filled(inputs, bound), outputs)

        self.forward: Callable[..., Any] = whole if eager else jax.jit(whole)
        self.vjp: Callable[..., Any] = integer_pullback(whole, node.title) if eager else jax.jit(with_pullback(whole))
        self.backward: Callable[..., Any] = (
            _by_pullback(integer_pullback(whole, node.title)) if eager else jax.jit(backward)
        )


def _filled(inputs: tuple[Any, ...], bound: Mapping[int, Any]) -> tuple[Any, ...]:
    return tuple(bound.get(at, each) for at, each in enumerate(inputs)) if bound else inputs


def _named(node: OperatorNode) -> Callable[[Any], tuple[Any, ...]]:
    """What is found as a tuple, without what the node does not name: XLA then leaves out its computation."""
    wanted = [bool(name) for name in node.outputs]

    def outputs(found: Any) -> tuple[Any, ...]:
        several = found if isinstance(found, tuple) else (found,)
        return tuple(each if name else None for each, name in zip(several, wanted, strict=False))

    return outputs


def _key(node: OperatorNode, draw: tuple[Any, Any]) -> Any:
    """The key of a draw; a node with a seed of its own draws the same each time, as ONNX's reference does."""
    if node.get("seed") is not None:
        return jax.random.PRNGKey(int(np.float32(node["seed"]).view(np.uint32)))
    return jax.random.fold_in(*draw)


def _by_pullback(both: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, ...]]:
    def backward(_: Any, inputs: tuple[Any, ...], __: Any) -> tuple[Any, ...]:
        both(*inputs)
        return (None,) * len(inputs)

    return backward
