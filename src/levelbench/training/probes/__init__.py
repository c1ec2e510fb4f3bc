"""Checks of what a user writes for training: optimizers, recipes, tasks."""

from levelbench.training.probes.optimizers import Checked, check_optimizer

__all__ = ["Checked", "check_optimizer"]
