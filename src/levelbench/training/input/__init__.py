"""From a split to batches on a backend."""

from levelbench.training.input.base import Loader
from levelbench.training.input.held import Held
from levelbench.training.input.loader import make_loader

__all__ = ["Held", "Loader", "make_loader"]
