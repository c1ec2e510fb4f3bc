"""The zoo: networks by name, each with its paper and its published size, and small ones that take their sizes."""

from levelbench.networks.zoo.entry import Architecture, Published, build, entry, names
from levelbench.networks.zoo.small import cnn, mlp

__all__ = ["Architecture", "Published", "build", "cnn", "entry", "mlp", "names"]
