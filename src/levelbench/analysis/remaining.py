"""How much longer a plan takes: a range that should contain the truth in 80 % of cases.

The rest of a plan is a sum of unknown times. Each is drawn many times from what is known about it:

- Times of runs of one arm differ by a noise that is itself drawn, from a prior with the weight of a few runs and from
  the runs so far: two runs that happen to agree do not make the third one certain. A part of the noise is common to all
  runs to come, because what slows a machine down lasts.
- An arm without a finished run takes as long as the others, give or take a factor; a smaller one where runs of an
  earlier command say how the arms compare.
- The current run takes its own pace times the epochs that are left. With a fixed length these are known. Else they
  follow from the learning curve (errors fall as a power of the epochs), from the epochs that other runs took, and from
  the budget.

The spreads were chosen on recorded commands; `benchmarks/eta.py` counts on others how often the range contains the
truth (docs/evidence/eta.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["CurrentRun", "RemainingTime"]

Draws = NDArray[np.float64]

_DRAWS = 500
_QUANTILES = (0.1, 0.9)
# All spreads are standard deviations of logarithms.
_NOISE, _NOISE_RUNS = 0.4, 6.0
"""The run-to-run noise before anything is known, and the number of runs whose weight that has."""
_COMMON = 0.85
"""The part of the noise that all runs to come have in common, by its deviation."""
_ARMS, _ARMS_BEFORE = 0.5, 0.4
"""How arms differ, and how much their ratio changes from one command to another."""
_OWN_EPOCHS, _OTHER_EPOCHS = 0.4, 0.5
"""How much the epochs to the target differ between runs of one arm, and of different ones."""
_POWER, _POWER_SPREAD = 1.0, 0.3
"""The power of the epochs by which the error falls, before the curve shows its own; not a logarithm."""
_CURVE = 0.4
"""The error of the predicted epochs, relative to the logarithm of the factor by which they still grow."""
_CONFIRMED = 0.7
"""How often the evaluation after one that reaches the target reaches it, too."""
_PACE = 1.3
"""The noise of the rest of a run, relative to that between runs."""
_PASS, _TEST = 0.2, 0.7
"""How much an evaluation differs from the last one, and the test, whose size is not known, from an evaluation."""
_IMPORTS = 0.4
"""How much the time for imports differs from one time to the next."""
_LEAST_DONE = 0.05
"""The current run counts at least as this part of a run."""
_FEW = 30
"""More runs than this are drawn as so many."""


@dataclass(frozen=True)
class CurrentRun:
    """What is known of the current run.

    It is at ``epoch`` of ``most_epochs``, all of which it takes if it has a ``fixed_length``. An epoch takes
    ``pace_s``; ``warm`` says that the first evaluation, and what comes before it, is not a part of that. ``errors`` are
    the epochs of its evaluations with the distances from a perfect quality, in units of the target's. After ``most_s``
    it is given up, which takes one more evaluation. The last one took ``evaluation_s``; 0 if that is not known.

    For ``stage_s`` it has been in ``stage``: "train", "evaluate" (on the validation data), "test" or "done".
    """

    arm: int
    elapsed_s: float = 0.0
    epoch: float | None = None
    pace_s: float = 0.0
    warm: bool = False
    most_epochs: float | None = None
    fixed_length: bool = False
    errors: Sequence[tuple[float, float]] = ()
    most_s: float | None = None
    evaluation_s: float = 0.0
    stage: str = "train"
    stage_s: float = 0.0


@dataclass
class RemainingTime:
    """Times of finished runs by arm, in seconds from the start of a process to the start of the next one.

    ``earlier_s`` has those of earlier commands, which say how arms compare; the machine may have been slower then.
    ``imports_to_go`` times processes do imports for those that follow, which takes ``import_s`` each. After
    ``budgets_s`` no run of an arm begins, counted from the start of the current run.
    """

    to_go: list[int]
    """The arms of the unfinished runs, the current one first."""
    times_s: dict[int, list[float]] = field(default_factory=dict)
    epochs: dict[int, list[float]] = field(default_factory=dict)
    paces_s: dict[int, list[float]] = field(default_factory=dict)
    earlier_s: dict[int, list[float]] = field(default_factory=dict)
    imports_to_go: int = 0
    import_s: float = 0.0
    budgets_s: dict[int, float] = field(default_factory=dict)

    def finished(
        self, arm: int, time_s: float, epochs: float | None = None, pace_s: float = 0.0, *, planned: bool = True
    ) -> None:
        """Record a run that ended after ``time_s``; ``planned`` says that it was among the unfinished ones."""
        if pace_s > 0:
            self.paces_s.setdefault(arm, []).append(pace_s)
        if planned and arm in self.to_go:
            self.to_go.remove(arm)
        if time_s > 0:
            self.times_s.setdefault(arm, []).append(time_s)
        if epochs:
            self.epochs.setdefault(arm, []).append(epochs)

    def earlier(self, arm: int, time_s: float, epochs: float | None = None) -> None:
        """Record a run of an earlier command."""
        if time_s > 0:
            self.earlier_s.setdefault(arm, []).append(time_s)
        if epochs:
            self.epochs.setdefault(arm, []).append(epochs)

    def range_s(self, now: CurrentRun) -> tuple[float, float] | None:
        """The 10 % and 90 % quantiles of the remaining seconds; ``None`` while nothing is known."""
        if not self.to_go:
            return None
        rng = np.random.default_rng(0)
        logs = {arm: np.log(times) for arm, times in self.times_s.items()}
        noise = _noise(logs, rng)
        common, own = _COMMON * noise * rng.standard_normal(_DRAWS), noise * math.sqrt(1 - _COMMON**2)
        rest = self._rest(now, noise, rng)
        if rest is None and not logs:
            return None
        typical = self._typical(logs, now, rest, own, rng)
        left = np.zeros(_DRAWS)
        for arm, count in Counter(self.to_go).items():
            later, centre, of_arm = count, typical[arm] + common, np.zeros(_DRAWS)
            if arm == now.arm:
                later -= 1
                if rest is None:
                    rest = _longer(np.exp(centre + own * rng.standard_normal(_DRAWS)), now.elapsed_s, rng)
                of_arm += rest
            drawn = min(later, _FEW)
            if drawn:
                runs = np.exp(own * rng.standard_normal((drawn, _DRAWS))).sum(axis=0)
                of_arm += np.exp(centre) * runs * (later / drawn)
            left += self._in_budget(arm, now, of_arm, rest, np.exp(centre))
        if self.imports_to_go:
            left += self.imports_to_go * self.import_s * np.exp(_IMPORTS * rng.standard_normal(_DRAWS))
        low, high = np.quantile(left, _QUANTILES)
        return float(low), float(high)

    def _in_budget(self, arm: int, now: CurrentRun, left: Draws, rest: Draws | None, run: Draws) -> Draws:
        """``left`` of an arm, up to its budget and the rest of the ``run`` that is under way when it is spent."""
        if arm not in self.budgets_s:
            return left
        budget_s = self.budgets_s[arm]
        if arm != now.arm or rest is None:
            return np.minimum(left, budget_s + run)
        budget_s = max(budget_s - now.elapsed_s, 0.0)
        return np.minimum(left, np.where(rest > budget_s, rest, budget_s + run))

    def _typical(
        self, logs: Mapping[int, Draws], now: CurrentRun, rest: Draws | None, own: Draws, rng: np.random.Generator
    ) -> dict[int, Draws]:
        """The logarithm of the typical time of each arm; the current run counts by the part of it that is done."""
        found: dict[int, Draws] = {}
        for arm in {*self.to_go, *logs}:
            count = np.full(_DRAWS, float(len(logs.get(arm, ()))))
            total = np.full(_DRAWS, float(np.sum(logs.get(arm, 0.0))))
            if arm == now.arm and rest is not None:
                whole = now.elapsed_s + rest
                done = np.maximum(now.elapsed_s / whole, _LEAST_DONE)
                count, total = count + done, total + done * np.log(whole)
            if count.all():
                found[arm] = total / count + own * rng.standard_normal(_DRAWS) / np.sqrt(count)
        before = {arm: float(np.mean(np.log(times))) for arm, times in self.earlier_s.items()}
        others = np.mean(list(found.values()), axis=0)
        known = [found[arm] - before[arm] for arm in found if arm in before]
        for arm in set(self.to_go) - set(found):
            if known and arm in before:
                found[arm] = np.mean(known, axis=0) + before[arm] + _ARMS_BEFORE * rng.standard_t(4, _DRAWS)
            else:
                found[arm] = others + _ARMS * rng.standard_t(4, _DRAWS)
        return found

    def _rest(self, now: CurrentRun, noise: Draws, rng: np.random.Generator) -> Draws | None:
        """The rest of the current run by its pace; ``None`` before its first evaluation."""
        if not now.epoch or now.pace_s <= 0:
            return None
        evaluation = now.evaluation_s * np.exp(_PASS * rng.standard_normal(_DRAWS))
        test = now.evaluation_s * np.exp(_TEST * rng.standard_normal(_DRAWS))
        if now.stage in ("test", "done"):
            tested = _longer(test, now.stage_s, rng) if now.stage == "test" else np.zeros(_DRAWS)
            return tested if now.evaluation_s > 0 else None
        pending = _longer(evaluation, now.stage_s, rng) if now.stage == "evaluate" else np.zeros(_DRAWS)
        pace_s = now.pace_s
        if not now.warm and (known := self.paces_s.get(now.arm)):
            pace_s = math.exp(float(np.mean(np.log(known))))
        left = self._epochs_left(now, rng) * pace_s * np.exp(_PACE * noise * rng.standard_normal(_DRAWS))
        if now.most_s is not None:
            budget = np.maximum(now.most_s - now.elapsed_s - pending, 0.0)
            # What is being evaluated when the budget ends is not evaluated again.
            last = np.where((budget > 0) | (now.stage != "evaluate"), evaluation, 0.0)
            left = np.where(left > budget, budget + last, left)
        return pending + left + test

    def _epochs_left(self, now: CurrentRun, rng: np.random.Generator) -> Draws:
        """The epochs that the current run still takes, up to the end of an interval between evaluations."""
        assert now.epoch is not None
        most = max(now.most_epochs or math.inf, now.epoch)
        if now.fixed_length and math.isfinite(most):
            return np.full(_DRAWS, most - now.epoch)
        every = now.errors[-1][0] / len(now.errors) if now.errors else now.epoch
        following = (now.errors[-1][0] if now.errors else now.epoch) + every
        estimates = [*self._known_epochs(now.arm), *_of_curve(now.errors)]
        if estimates:
            precision = sum(1 / spread**2 for _, spread in estimates)
            mean = sum(centre / spread**2 for centre, spread in estimates) / precision
            drawn = np.exp(mean + rng.standard_t(5, 4 * _DRAWS) / math.sqrt(precision))
            possible = drawn[drawn > now.epoch]
        else:
            upper = most if math.isfinite(most) else 4 * now.epoch
            possible = np.exp(rng.uniform(math.log(now.epoch), math.log(upper), _DRAWS))
        if len(possible) < _DRAWS // 5:
            possible = now.epoch + every * rng.exponential(3.0, _DRAWS)
        epochs = every * np.ceil(rng.choice(possible, _DRAWS) / every - 1e-6)
        epochs = np.minimum(np.maximum(epochs, following), max(most, now.epoch))
        if now.errors and now.errors[-1][1] <= 1.0:
            epochs = np.where(rng.random(_DRAWS) < _CONFIRMED, following, epochs + every)
        return np.maximum(epochs - now.epoch, 0.0)

    def _known_epochs(self, arm: int) -> list[tuple[float, float]]:
        """The logarithm of the epochs that runs of this arm took, or else those of others, and its spread."""
        own = self.epochs.get(arm)
        known = own or [each for epochs in self.epochs.values() for each in epochs]
        if not known:
            return []
        spread = _OWN_EPOCHS if own else _OTHER_EPOCHS
        return [(float(np.mean(np.log(known))), spread * math.sqrt(1 + 1 / len(known)))]


def _noise(logs: Mapping[int, Draws], rng: np.random.Generator) -> Draws:
    """Draws of the noise from its posterior, a scaled inverse chi-squared distribution."""
    squares, freedom = _NOISE_RUNS * _NOISE**2, _NOISE_RUNS
    for times in logs.values():
        squares += float(np.sum((times - times.mean()) ** 2))
        freedom += len(times) - 1
    return np.sqrt(squares / rng.chisquare(freedom, _DRAWS))


def _of_curve(errors: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The logarithm of the epochs to the target by the later half of the curve, and its spread."""
    if not errors:
        return []
    epochs = np.log([max(epoch, 1e-9) for epoch, _ in errors])
    logs = np.log([max(error, 1e-3) for _, error in errors])
    power, variance = _POWER, _POWER_SPREAD**2
    half = max(3, (len(errors) + 1) // 2)
    # Within one epoch, a program may print its quality after every step: that is no curve over the epochs.
    if len(errors) >= half and np.ptp(epochs[-half:]) > 0:
        x, y = epochs[-half:] - epochs[-half:].mean(), logs[-half:] - logs[-half:].mean()
        slope = -float(x @ y) / float(x @ x)
        # At least the noise of an evaluation on some hundred examples.
        of_slope = (float(np.sum((y + slope * x) ** 2)) / (half - 2) + 0.05**2) / float(x @ x)
        power = (power * of_slope + slope * variance) / (variance + of_slope)
    grows = min(max(float(np.mean(logs[-2:])), 0.0) / max(power, 0.1), 10.0)
    every = errors[-1][0] / len(errors)
    # The target has to be confirmed by one more evaluation.
    return [(math.log(math.exp(float(epochs[-1]) + grows) + every), 0.15 + _CURVE * grows)]


def _longer(times_s: Draws, elapsed_s: float, rng: np.random.Generator) -> Draws:
    """The rest of the drawn times that exceed the elapsed time; if hardly any do, some part of the elapsed time."""
    longer = times_s[times_s > elapsed_s]
    if len(longer) < _DRAWS // 20:
        return elapsed_s * rng.exponential(0.3, _DRAWS)
    return rng.choice(longer, _DRAWS) - elapsed_s
