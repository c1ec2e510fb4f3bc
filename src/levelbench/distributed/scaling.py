"""How a recipe grows with the number of workers: by the batch, and by the learning rate that goes with it.

Strong scaling keeps the batch and so what is computed; weak scaling keeps each worker's part of it, which
makes another training of the same recipe, and needs another learning rate.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, Literal, get_args

from levelbench.errors import UnknownNameError, UnsupportedError
from levelbench.training.samplers import Sampler

Scaling = Literal["strong", "weak"]
LrScale = Literal["none", "linear", "sqrt"]
SCALINGS: tuple[str, ...] = get_args(Scaling)
LR_SCALES: tuple[str, ...] = get_args(LrScale)


def lr_factor(scale: str, workers: int) -> float:
    """What the learning rate is multiplied by where the batch is ``workers`` times as large.

    ``linear`` is Goyal et al. 2017's rule, ``sqrt`` that of Krizhevsky 2014.
    """
    if scale not in LR_SCALES:
        raise UnknownNameError("rule of the learning rate", scale, LR_SCALES)
    return {"none": 1.0, "linear": float(workers), "sqrt": math.sqrt(workers)}[scale]


def scaled_batch(sampler: Sampler, times: int) -> Sampler:
    """The sampler with a batch ``times`` as large; of a sampler that is made of another one, the one inside."""
    by_name = {each.name: each for each in fields(sampler)}
    changed: dict[str, Any] = {}
    if by_name["batch"].init:
        changed["batch"] = sampler.batch * times
    elif "sampler" in by_name:
        changed["sampler"] = scaled_batch(sampler.sampler, times)  # type: ignore[attr-defined]
    else:
        raise UnsupportedError(
            f"weak scaling with {type(sampler).__name__}",
            "it neither takes a batch nor holds a sampler that does",
            "use strong scaling",
        )
    return replace(sampler, **changed)
