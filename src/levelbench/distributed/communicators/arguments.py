"""What every communicator asks of its arguments, with one wording."""

from __future__ import annotations

from collections.abc import Sequence

from levelbench.distributed.buffers import dtype_name, is_floating
from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks.executor import Array

__all__ = ["checked_count", "checked_op", "checked_rank", "checked_tag"]


def checked_rank(operation: str, rank: int, size: int) -> None:
    """``UsageError`` for a rank that is not there."""
    if not 0 <= rank < size:
        raise UsageError(
            f"{operation} with rank {rank}", f"there are ranks 0 to {size - 1}", "name a rank of this communicator"
        )


def checked_tag(operation: str, tag: int, below: int | None = None) -> None:
    """``UsageError`` for a tag that is negative or, where some are kept, not below them."""
    if tag < 0 or (below is not None and tag >= below):
        allowed = "0 and up" if below is None else f"0 to {below - 1}"
        raise UsageError(f"{operation} with tag {tag}", f"tags are {allowed}", "choose another tag")


def checked_op(operation: str, op: str, array: Array) -> None:
    """``UsageError`` for a reduction that there is not, ``UnsupportedError`` for a mean of integers."""
    if op not in ("sum", "mean"):
        raise UsageError(f"{operation} with op {op!r}", "a reduction is 'sum' or 'mean'", "choose one of them")
    if op == "mean" and not is_floating(array):
        raise UnsupportedError(
            f"{operation} of the mean of {dtype_name(array)}", "its mean is no number of that dtype", "take the sum"
        )


def checked_count(operation: str, arrays: Sequence[Array] | None, size: int) -> Sequence[Array]:
    """The arrays; ``UsageError`` where they are not one for each rank."""
    if arrays is None or len(arrays) != size:
        found = "there are none" if arrays is None else f"there are {len(arrays)}"
        raise UsageError(f"{operation} of arrays to {size} ranks", found, "give one array for each rank")
    return arrays
