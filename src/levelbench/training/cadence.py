"""How often something is done while training goes on: every so many epochs, steps or samples."""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.errors import UsageError

__all__ = ["Evaluate"]

_UNITS = ("epoch", "step", "sample")


@dataclass(frozen=True)
class Evaluate:
    """Every ``count`` epochs, steps or samples: when to evaluate, or to keep a checkpoint."""

    count: int
    unit: str

    @classmethod
    def parse(cls, text: str) -> Evaluate:
        """From ``"1 epoch"``, ``"2 epochs"``, ``"100 steps"`` or ``"10000 samples"``."""
        match text.split():
            case [count, unit] if count.isdecimal() and int(count) > 0 and unit.removesuffix("s") in _UNITS:
                return cls(int(count), unit.removesuffix("s"))
        raise UsageError(f"an interval of {text!r}", "that is none", 'write "1 epoch", "100 steps" or "10000 samples"')

    def __str__(self) -> str:
        return f"{self.count} {self.unit}{'s' * (self.count != 1)}"

    def steps(self, steps_per_epoch: int, samples_per_epoch: int) -> int:
        """The interval in steps, at least 1; samples are rounded to whole steps of the mean size, upwards."""
        if self.unit == "epoch":
            return self.count * steps_per_epoch
        return self.count if self.unit == "step" else -(-self.count * steps_per_epoch // max(1, samples_per_epoch))
