"""The zoo: networks by name, each with its paper and its published size, and small ones that take their sizes."""

from levelbench.networks.zoo.entry import Entry, Published, build, entry, names
from levelbench.networks.zoo.small import cnn, mlp

__all__ = ["Entry", "Published", "build", "cnn", "entry", "mlp", "names"]
