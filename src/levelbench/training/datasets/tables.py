"""diabetes: a number to predict from ten others, in the two files that scikit-learn's package has of it.

442 patients: age, sex, body mass index, blood pressure and six blood values, and a measure of how far the disease had
got a year later, 25 to 346. Nothing of scikit-learn is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.training.datasets.base import Dataset, Split, stratified_split
from levelbench.training.datasets.places import DataFile, FileLocation, FileSource
from levelbench.training.datasets.reading import read_whole, require_digest

ROWS: Final = DataFile("diabetes_data_raw.csv", "86badf50b4f9436ddd1e497dc0ae1b93166f8120221ee7dca4634fe849f3be7c")
TARGETS: Final = DataFile("diabetes_target.csv", "244713a551f62a291a354212d8a048adec6cb1244b2bc44e66a0698f5006d26d")
FILES: Final = (ROWS, TARGETS)
_MOST_BYTES = 1 << 20


@final
class Diabetes(FileSource):
    """Inputs (n, 10) float32, standardised by the training split, and targets (n, 1) as published; 266, 88 and 88."""

    name = "diabetes"
    licence = "BSD-3-Clause, as part of scikit-learn; its authors state none"
    attribution = (
        "B. Efron, T. Hastie, I. Johnstone and R. Tibshirani (2004), Least Angle Regression, Annals of Statistics 32, "
        "407-499"
    )
    split_rule = (
        "the rows ordered by the SHA-256 of their ten numbers (little-endian float64): the first fifth (rounded) is "
        "the test split, the next fifth the validation split, the rest the training split"
    )
    size = "2 files, 11 kB"
    home = "scikit-learn's package (pip install scikit-learn), in sklearn/datasets/data"
    ways = "pip install scikit-learn, whose package has both; or name a folder with them with --data or LEVELBENCH_DATA"
    downloads = False
    why_not = "packages are installed by you"

    def load(self, folder: Path | None = None) -> Dataset:
        found = self.located(folder)
        rows, targets = (_table(found.held, file) for file in FILES)
        of_one_class = np.zeros(len(rows), np.int64)
        raw = rows.astype("<f8").view(np.uint8)
        train, test, validation = stratified_split(raw, of_one_class, lambda count: (round(count / 5),) * 2)
        mean, deviation = rows[train].mean(axis=0), rows[train].std(axis=0)
        inputs = ((rows - mean) / deviation).astype(np.float32)
        wanted = targets.astype(np.float32)
        splits = [Split((inputs[each], wanted[each])) for each in (train, validation, test)]
        return self.assembled(splits, 0, {file.name: file.content_sha256 for file in FILES}, found.label)

    def held(self, folder: Path) -> Path | None:
        """The folder, if it has both files."""
        return folder if all(file.within(folder) for file in FILES) else None

    def packaged(self) -> Sequence[FileLocation]:
        """Where pip put them."""
        spec = find_spec("sklearn")
        roots = spec.submodule_search_locations or () if spec else ()
        return [FileLocation("the package scikit-learn", Path(each) / "datasets" / "data") for each in roots]


def _table(folder: Path, file: DataFile) -> NDArray[np.float64]:
    """The numbers of a file of the expected content, separated by white space, (n, columns)."""
    path = file.within(folder) or folder / file.name
    content = read_whole(path, "a table", _MOST_BYTES)
    require_digest(path, hashlib.sha256(content).hexdigest(), file.content_sha256)
    return np.array([line.split() for line in content.splitlines()], np.float64)
