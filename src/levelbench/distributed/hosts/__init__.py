"""Network namespaces as hosts: several machines on one, with links as slow, as far and as lossy as wished."""

from __future__ import annotations

from levelbench.distributed.hosts.hosts import Hosts
from levelbench.distributed.hosts.link import Link

__all__ = ["Hosts", "Link"]
