"""The zoo: networks by name, with their papers and published sizes (``published.toml``), and small ones of any size."""

from levelbench.networks.zoo.entry import Architecture, Published, build, entry, names
from levelbench.networks.zoo.small import cnn, mlp

__all__ = ["Architecture", "Published", "build", "cnn", "entry", "mlp", "names"]
