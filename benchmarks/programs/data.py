"""The digits as plain arrays: (n, 64) float32 and (n,) int64, for training and for validation."""

from levelbench.training import datasets

_DIGITS = datasets.digits.load()
X, y = _DIGITS.train.inputs.reshape(-1, 64), _DIGITS.train.labels
VX, Vy = _DIGITS.validation.inputs.reshape(-1, 64), _DIGITS.validation.labels
