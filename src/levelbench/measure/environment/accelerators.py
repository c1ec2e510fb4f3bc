"""Which accelerators the driver shows, without loading a framework or starting a device.

The NVIDIA driver lists its boards and its version as text under ``/proc``; reading that touches no
device, so it changes no clock and holds no memory. What a framework sees of them is the framework's to say.
"""

from __future__ import annotations

from levelbench.measure.environment.files import HERE, Facts, Roots, fields, text


def accelerators(roots: Roots = HERE) -> Facts:
    """``nvidia_driver`` (a version or ``None``) and ``names`` (one a board, in PCI order)."""
    nvidia = roots.proc / "driver" / "nvidia"
    boards = [fields(each).get("Model", "unknown") for each in sorted(nvidia.glob("gpus/*/information"))]
    return {"nvidia_driver": _driver(text(nvidia / "version")), "names": boards}


def _driver(version: str | None) -> str | None:
    """The version number in a line such as ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ...``."""
    for word in (version or "").split():
        if word[0].isdigit() and word.replace(".", "").isdigit() and "." in word:
            return word
    return None
