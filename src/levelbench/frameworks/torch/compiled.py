"""A lowered network under ``torch.compile``: traced and compiled once for each set of input shapes.

The one idea: shapes are known when it is traced, so the shape arithmetic of a network runs then, in NumPy, and what the
compiler gets is a graph of PyTorch's operators with nothing in between. That is how ``jax.jit`` traces too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from levelbench.errors import LevelbenchError, UnsupportedError
from levelbench.networks.lowering import Lowered

__all__ = ["Compiled", "compiled"]

_CONTROL = ("If", "Loop", "Scan", "SequenceMap")


def compiled(call: Callable[..., Any], *, whole: bool = False) -> Callable[..., Any]:
    """A function or module under ``torch.compile``, for each set of shapes anew; ``whole``: in one graph, or not."""
    with _quiet():
        made: Callable[..., Any] = torch.compile(call, fullgraph=whole, dynamic=False)
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch's compiler uses what PyTorch itself deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Compiled:
    """``Lowered.function`` compiled whole (``fullgraph=True, dynamic=False``).

    The first call with inputs of new shapes or types traces and compiles, which takes seconds to minutes; it raises
    ``UnsupportedError`` where the network cannot be compiled because it depends on values (If, Loop).
    """

    def __init__(self, lowered: Lowered, name: str) -> None:
        self._lowered, self._name = lowered, name
        self._count = len(lowered.inputs)
        self._made: dict[Any, Callable[..., tuple[Tensor, ...]]] = {}

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """The outputs."""
        key = tuple([(each.shape, each.dtype) for each in arguments[: self._count]])
        made = self._made.get(key)
        return made(*arguments) if made is not None else self._first(key, arguments)

    def _first(self, key: Any, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        try:
            with _quiet():
                made = compiled(self._trace(arguments), whole=True)
                found: tuple[Tensor, ...] = made(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise self._refusal(error) from error
        self._made[key] = made
        return found

    def _trace(self, arguments: Sequence[Tensor]) -> Callable[..., tuple[Tensor, ...]]:
        """The function as PyTorch's own operators, on tensors that have shapes and no values."""
        # Before autograd takes them apart, so that the graph can be differentiated like the function.
        trace = make_fx(self._lowered.function, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True)
        try:
            graph = trace(*arguments)
        except LevelbenchError:
            raise
        except Exception as error:  # PyTorch says in a dozen ways that a value was asked for
            raise self._refusal(error) from error
        forward: Callable[..., tuple[Tensor, ...]] = graph.forward
        return forward

    def _refusal(self, error: Exception) -> UnsupportedError:
        control = [step.node.title for step in self._lowered.steps if step.node.op_type in _CONTROL]
        error = getattr(error, "inner_exception", error)
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        found = f"{control[0]} depends on a value" if control else lines[0] if lines else type(error).__name__
        return UnsupportedError(f"{self._name} on torch in mode 'compiled'", found.rstrip("."), "use mode eager")
