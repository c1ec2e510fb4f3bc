"""digits: 1,797 handwritten digits of 8x8 pixels, bundled, so that a first run needs nothing.

The data is the test set of the UCI "Optical Recognition of Handwritten Digits" (values 0 to 16), as scikit-learn ships
it. The two files in ``data/`` were made, without changing a value, by::

    digits = sklearn.datasets.load_digits()
    write_idx(Path("digits-images-idx3-ubyte.gz"), digits.images.astype(np.uint8))
    write_idx(Path("digits-labels-idx1-ubyte.gz"), digits.target.astype(np.uint8))

The one idea: the bundled copy is checked like a download, for a package can be damaged too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

import numpy as np

from levelbench.training.datasets.base import Dataset, DatasetSource, Progress, Split, silent
from levelbench.training.datasets.files import DataFile, read_checked
from levelbench.training.datasets.places import refuse_folder
from levelbench.training.datasets.splits import standardise, stratified_split

__all__ = ["Digits"]

IMAGES: Final = DataFile("digits-images-idx3-ubyte", "359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96")
LABELS: Final = DataFile("digits-labels-idx1-ubyte", "ce71631c1f31ce56fa54f31d1d498fafacff59b001e6c30c4a5e29508aa277ad")
HIGHEST: Final = 16
# Mean and population standard deviation of value / 16 over all pixels of the training split.
MEAN: Final = 0.3050
STD: Final = 0.3759

_BUNDLE = Path(__file__).parent / "data"


def _fifths(count: int) -> tuple[int, int]:
    """A fifth of a class, rounded to the nearest (half up), for the test split and as much for the validation split."""
    fifth = (2 * count + 5) // 10
    return fifth, fifth


@final
class Digits(DatasetSource):
    """The bundled digits: inputs (n, 64) float32, 10 classes, splits of 1,079, 359 and 359."""

    name = "digits"
    licence = "CC BY 4.0"
    attribution = (
        "E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, "
        "UCI Machine Learning Repository, https://doi.org/10.24432/C50P49"
    )
    split_rule = (
        "the rows of each class ordered by the SHA-256 of their 64 bytes: the first fifth (rounded) is the test split, "
        "the next fifth the validation split, the rest the training split"
    )

    def __init__(self, bundle: Path = _BUNDLE) -> None:
        self._bundle = bundle

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits. The data comes with the package.

        :raises UsageError: when a ``folder`` is named, for nobody looks into it.
        :raises DataError: when the bundled files are damaged.
        :raises MissingError: when they are not there.
        """
        refuse_folder(self.name, folder)
        images = read_checked(self._bundle, IMAGES)
        labels = read_checked(self._bundle, LABELS).astype(np.int64)
        rows = images.reshape(len(images), -1)
        train, test, validation = (
            Split.of(standardise(rows[part], HIGHEST, MEAN, STD), labels[part])
            for part in stratified_split(rows, labels, _fifths)
        )
        return Dataset(
            name=self.name,
            train=train,
            validation=validation,
            test=test,
            classes=10,
            checksums={file.name: file.content_sha256 for file in (IMAGES, LABELS)},
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"bundled; {self.attribution}",
        )

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """Nothing to do; ``UsageError`` as ``load`` has it."""
        refuse_folder(self.name, folder)

    def where(self, folder: Path | None = None) -> str | None:
        """The folder of the bundled files."""
        return f"{self._bundle} (bundled)"

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None``, unless the installation is damaged."""
        missing = [file.name for file in (IMAGES, LABELS) if file.within(self._bundle) is None]
        return f"the bundled {', '.join(missing)}: install levelbench again" if missing else None
