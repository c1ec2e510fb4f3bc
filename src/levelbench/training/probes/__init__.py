"""Checks of a user's own optimizers, recipes and tasks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelbench.training.probes.optimizers import Checked, check_optimizer

__all__ = ["Checked", "check_optimizer"]


def __getattr__(name: str) -> object:
    """Import the checks of optimizers on demand: a run's own checks do not need them."""
    if name in __all__:
        from levelbench.training.probes import optimizers

        return getattr(optimizers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
