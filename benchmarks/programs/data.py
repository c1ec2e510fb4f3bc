"""The digits as plain arrays: images (n, 64) float32 and labels (n,) int64, the last tenth of them for validation."""

import sys

import numpy as np

_ROWS = np.loadtxt(sys.argv[1], delimiter=",", dtype=np.float32)
_FIRST = len(_ROWS) - len(_ROWS) // 10
X, y = _ROWS[:_FIRST, 1:], _ROWS[:_FIRST, 0].astype(np.int64)
VX, Vy = _ROWS[_FIRST:, 1:], _ROWS[_FIRST:, 0].astype(np.int64)
SEED = int(sys.argv[2])
