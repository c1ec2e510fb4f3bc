"""Checks of what a user writes for training: optimizers, recipes, tasks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelbench.training.probes.optimizers import Checked, check_optimizer

__all__ = ["Checked", "check_optimizer"]


def __getattr__(name: str) -> object:
    """What checks optimizers is imported when it is used: the checks of a run need none of it."""
    if name in __all__:
        from levelbench.training.probes import optimizers

        return getattr(optimizers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
