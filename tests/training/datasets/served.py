"""The file that is downloaded, and its checksum."""

from __future__ import annotations

import hashlib

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
