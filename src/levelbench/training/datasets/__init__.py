"""The data that tasks train on: read strictly, checked by checksum, split by a fixed rule.

The one idea: a name stands for exact bytes in an exact split. ``datasets.digits.load()`` gives the same arrays on every
machine, or an error that says what to do; where the files came from never changes what is in them.
"""

from levelbench.training.datasets.base import Dataset, DatasetSource, Split
from levelbench.training.datasets.fashion import FashionMnist
from levelbench.training.datasets.handwritten import Digits

__all__ = ["Dataset", "DatasetSource", "Split", "digits", "fashion_mnist"]

digits = Digits()
fashion_mnist = FashionMnist()
