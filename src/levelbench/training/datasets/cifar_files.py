"""What was published of CIFAR-10 and CIFAR-100: archives, files, checksums and constants of normalisation.

The one idea: facts are data with their source; the code that reads them is ``cifar.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from levelbench.training.datasets.base import Normalisation

__all__ = ["CIFAR10", "CIFAR100", "Edition", "File", "Version"]


@final
@dataclass(frozen=True)
class File:
    """One file of a version: ``digest`` is its SHA-256, or of a pickle the MD5, which is all that was published."""

    name: str
    images: int
    digest: str


@final
@dataclass(frozen=True)
class Version:
    """The binary or the Python version: its archive, the folder in it, and its files, the test set last."""

    archive: str
    archive_sha256: str
    folder: str
    files: tuple[File, ...]
    pickled: bool = False


@final
@dataclass(frozen=True)
class Edition:
    """CIFAR-10 or CIFAR-100; the binary version comes first."""

    name: str
    classes: int
    versions: tuple[Version, ...]
    normalisation: Normalisation


# Archives: SHA-256 as TensorFlow Datasets and Keras publish them; their MD5 are those of the official page.
# Binary files: SHA-256 as torchvision-ruby publishes them. Pickles: MD5 as torchvision publishes them.
CIFAR10: Final = Edition(
    "cifar10",
    10,
    (
        Version(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "cifar-10-batches-bin",
            (
                File("data_batch_1.bin", 10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                File("data_batch_2.bin", 10_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                File("data_batch_3.bin", 10_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                File("data_batch_4.bin", 10_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                File("data_batch_5.bin", 10_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                File("test_batch.bin", 10_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            ),
        ),
        Version(
            "cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            "cifar-10-batches-py",
            (
                File("data_batch_1", 10_000, "c99cafc152244af753f735de768cd75f"),
                File("data_batch_2", 10_000, "d4bba439e000b95fd0a9bffe97cbabec"),
                File("data_batch_3", 10_000, "54ebc095f3ab1f0389bbae665268c751"),
                File("data_batch_4", 10_000, "634d18415352ddfa80567beed471001a"),
                File("data_batch_5", 10_000, "482c414d41f54cd18b22e5b47cb7c3cb"),
                File("test_batch", 10_000, "40351d587109b95175f43aff81a1287e"),
            ),
            pickled=True,
        ),
    ),
    Normalisation(
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        source="mean and deviation of all 50,000 training images, as in D. Page's DAWNBench entry (cifar10-fast)",
    ),
)
CIFAR100: Final = Edition(
    "cifar100",
    100,
    (
        Version(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "cifar-100-binary",
            (
                File("train.bin", 50_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
                File("test.bin", 10_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
            ),
        ),
        Version(
            "cifar-100-python.tar.gz",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            "cifar-100-python",
            (
                File("train", 50_000, "16019d7e3df5f24257cddd939b257f8d"),
                File("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
            ),
            pickled=True,
        ),
    ),
    Normalisation(
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
        source="mean and deviation of all 50,000 training images, as in github.com/weiaicunzai/pytorch-cifar100",
    ),
)
