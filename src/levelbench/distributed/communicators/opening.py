"""Opens the communicator of a rank by the name of its library.

The one idea: those of a framework are asked of the framework, so this room imports none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from levelbench import plugins
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.communicators import mpi
from levelbench.errors import DefinitionError, MissingError, UnknownNameError
from levelbench.operators.contract import Framework
from levelbench.operators.frameworks import load_framework

if TYPE_CHECKING:
    from levelbench.distributed.launching.environment import Place

__all__ = ["communicator_kinds", "open_communicator"]


def communicator_kinds() -> dict[str, str | None]:
    """The communicators between processes by name, and what each lacks here; nothing heavy is imported to look."""
    found = {"mpi": mpi.lacks()}
    for framework in _frameworks():
        found |= dict.fromkeys(framework.communicators, framework.lacks())
    return dict(sorted(found.items()))


def open_communicator(kind: str, place: Place, timeout_s: float = 60.0) -> Communicator:
    """Meet the other ranks over ``gloo``, ``nccl`` or ``mpi``. Collective; to be closed.

    Raises ``UnknownNameError``, ``MissingError`` where the library is not installed, ``CommunicationError`` where not
    all ranks come within ``timeout_s``.
    """
    if kind == "mpi":
        return mpi.open_mpi(place, timeout_s)
    for framework in _frameworks():
        if kind not in framework.communicators:
            continue
        if lacking := framework.lacks():
            raise MissingError(f"a communicator over {kind}", lacking, "install it, or use mpi")
        return cast("Communicator", framework.communicator(kind, place, timeout_s))
    raise UnknownNameError("communicator", kind, communicator_kinds())


def _frameworks() -> Iterator[Framework]:
    """Those that load: a plug-in of somebody else's that does not is no reason to open nothing."""
    for name in plugins.names("framework"):
        with suppress(DefinitionError):
            yield load_framework(name)
