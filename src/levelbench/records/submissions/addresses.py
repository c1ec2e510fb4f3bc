"""Which addresses a page may lead to."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

__all__ = ["is_address"]

_UNSAFE = re.compile(r"[\s\"'<>\\`]")


def is_address(text: str) -> bool:
    """Whether ``text`` is an address with http or https and a host, and has nothing that an address must not.

    >>> is_address("https://example.org/board"), is_address("javascript:alert(1)"), is_address("example.org")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and _UNSAFE.search(text) is None
