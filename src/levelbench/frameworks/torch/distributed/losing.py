"""The boundary to what PyTorch says by itself: a peer that does not answer is told in our words.

The one idea: gloo raises a bare ``RuntimeError``, as a faulty network does too, so only its own words tell that a rank
was lost.
"""

from __future__ import annotations

import torch.distributed as dist

from levelbench.errors import CommunicationError

__all__ = ["raise_lost"]

_LIBRARIES = ("gloo", "nccl", "processgroup", "tcpstore")


def raise_lost(what: str, error: RuntimeError) -> None:
    """Raise ``CommunicationError`` where ``error`` is one of the library that talks; else nothing.

    ``what`` was under way. To be called in the handler of the error, which raises it again.
    """
    said = str(error)
    if isinstance(error, dist.DistError) or any(name in said.lower() for name in _LIBRARIES):
        first = said.splitlines()[0] if said else type(error).__name__
        raise CommunicationError(
            what, f"a rank was lost or came too late: {first}", "read the logs of the other ranks"
        ) from error
