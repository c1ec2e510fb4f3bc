"""What a dataset is: three splits of inputs and labels, with the facts that a record keeps about them.

The one idea: a ``DatasetSource`` is a name and a promise, cheap to make and to ask what it lacks; the arrays exist only
in the ``Dataset`` that ``load`` returns, standardised and ready to train on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError

__all__ = ["Dataset", "DatasetSource", "Progress", "Split", "silent"]

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes in all (``None`` where nobody knows)."""


def silent(done_bytes: int, total_bytes: int | None) -> None:
    """The progress that nobody watches."""


@final
@dataclass(frozen=True, eq=False)
class Split:
    """Examples and their classes: ``inputs`` (n, ...) float32 or raw uint8, ``labels`` (n,) int64.

    :raises DataError: when there are not as many labels as inputs.
    """

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.labels.shape != self.inputs.shape[:1]:
            raise DataError(
                "a split of a dataset",
                f"inputs of shape {self.inputs.shape} with labels of shape {self.labels.shape}",
                "Give one label for each input",
            )

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Data in its three splits, and what a record says of it.

    ``checksums`` are SHA-256 in hexadecimal by file name, of the uncompressed content; ``split_rule`` says in words how
    the splits were made; ``source`` says where the bytes were read from; ``synthetic`` is true for made-up data.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    classes: int
    checksums: dict[str, str]
    split_rule: str
    licence: str
    source: str
    synthetic: bool = False

    def sizes(self) -> dict[str, int]:
        """Examples by split."""
        return {"train": len(self.train), "validation": len(self.validation), "test": len(self.test)}


class DatasetSource(ABC):
    """A dataset by name, wherever its files may be."""

    name: str
    licence: str
    attribution: str

    @abstractmethod
    def load(self, folder: Path | None = None) -> Dataset:
        """The data, with inputs standardised to float32; ``folder`` is where the user says that the files are.

        :raises MissingError: when the files are nowhere and cannot be brought here.
        :raises DataError: when a file is not what its checksum says.
        """

    @abstractmethod
    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` when ``load`` has all it needs, else the reason in one line. Reads no data and no network."""

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:  # noqa: B027
        """Bring the files to this machine, so that ``load`` needs no network. Data that is bundled has nothing to do.

        For whoever keeps a clock: call it before the clock starts.
        """
