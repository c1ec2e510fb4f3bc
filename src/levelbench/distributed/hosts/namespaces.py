"""Makes, lists and removes the network namespaces of this package, and speaks to ip(8) and tc(8) inside them.

The one idea: a namespace's name says which process owns it, by id and start, so that what a killed owner left behind
is known as such and removed by whoever comes next.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from levelbench.distributed.launching.marked import start_of
from levelbench.errors import CommunicationError, MissingError

__all__ = ["FOLDER", "add", "delete", "ip", "lacks", "name_of", "owned_by", "remove_stale", "tc"]

FOLDER: Final = Path("/run/netns")
"""Where ip(8) keeps the names of namespaces."""
_PREFIX = "levelbench"
_TIMEOUT_S = 20.0


def lacks() -> str | None:
    """What is missing here to make namespaces; ``None`` where nothing is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no {program}: install iproute2"
    return None


def need() -> None:
    """Raise ``MissingError`` where namespaces cannot be made."""
    lacking = lacks()
    if lacking is not None:
        raise MissingError("network namespaces as hosts", lacking, "run it as root on Linux with iproute2")


def name_of(number: int, what: str) -> str:
    """The name of a namespace of this process: its set of hosts and which it is in it."""
    pid = os.getpid()
    return f"{_PREFIX}-{pid}-{start_of(pid)}-{number}-{what}"


def owned_by(name: str) -> tuple[int, int] | None:
    """Id and start of the process that owns a namespace; ``None`` where the name is not one of ours."""
    found = re.fullmatch(rf"{_PREFIX}-(\d+)-(\d+)-\d+-\w+", name)
    return (int(found[1]), int(found[2])) if found else None


def remove_stale() -> list[str]:
    """Remove the namespaces whose owner is no more; answers with their names."""
    if not FOLDER.is_dir():
        return []
    removed = []
    for path in sorted(FOLDER.iterdir()):
        owner = owned_by(path.name)
        if owner is not None and start_of(owner[0]) != owner[1]:
            delete(path.name)
            removed.append(path.name)
    return removed


def add(name: str) -> None:
    """Make a namespace, its loopback up, without IPv6, whose own messages would be counted as traffic."""
    _run(["ip", "netns", "add", name])
    _run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], must=False)
    ip(name, "link set lo up")


def delete(name: str) -> None:
    """Remove a namespace, and with it its devices; does nothing where it is gone."""
    _run(["ip", "netns", "delete", name], must=False)


def ip(name: str, *lines: str) -> None:
    """Run commands of ``ip`` inside a namespace."""
    _run(["ip", "-n", name, "-batch", "-"], "\n".join(lines) + "\n")


def tc(name: str, line: str, must: bool = True) -> bool:
    """Run a command of ``tc`` inside a namespace; whether it worked, where it need not."""
    return _run(["tc", "-n", name, *line.split()], must=must)


def _run(words: Sequence[str], given: str = "", must: bool = True) -> bool:
    done = subprocess.run(words, check=False, input=given, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode and must:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing printed").splitlines()[0].rstrip(".")
        raise CommunicationError(
            " ".join([*words, *given.splitlines()]),
            f"it answered: {said}",
            "see whether this kernel has namespaces, veth, bridges and TUN/TAP, and whether a container forbids them",
        )
    return done.returncode == 0
