"""Where levelbench keeps what it can fetch or make again."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """``LEVELBENCH_CACHE``, else ``levelbench`` in ``XDG_CACHE_HOME`` or in ``~/.cache``.

    An ``XDG_CACHE_HOME`` that is not absolute is ignored, as the XDG Base Directory Specification asks. Raises
    ``RuntimeError`` for a user without a home.
    """
    own = os.environ.get("LEVELBENCH_CACHE")
    if own:
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "levelbench"
