"""All engines by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from levelbench.distributed.launching.base import Engine
from levelbench.distributed.launching.hosts import OnHosts
from levelbench.distributed.launching.local import Process
from levelbench.distributed.launching.mpi import Mpi
from levelbench.distributed.launching.slurm import Slurm
from levelbench.distributed.launching.torchrun import Torchrun

__all__ = ["ENGINES"]

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {engine.name: engine for engine in (Process(), Torchrun(), Mpi(), Slurm(), OnHosts())}
)
