"""What a log of ours says about one run: the facts before it, and its evaluations on MLPerf's clock.

The one idea: MLPerf's clock starts after initialisation, so a log's ``run_start`` stands where initialisation (up to
the cap) ends, and ``run_stop`` at the first evaluation at the target. Their difference is then the run's score under
our ``mlperf`` clock, and the same log scored by anybody gives the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from levelbench.errors import RecordError
from levelbench.measure.crossing import RULES, find_crossing
from levelbench.measure.policies import policy
from levelbench.records.reader import Record
from levelbench.records.schema import Target
from levelbench.records.submissions.schema import Submission, SubmittedRun

__all__ = ["LoggedEvaluation", "LoggedRun", "crossing_of", "of_record", "of_submission"]

Setting = int | float | str | bool
_BATCH = ("global_batch_size", "batch")


class LoggedEvaluation(Struct, frozen=True):
    """One evaluation: seconds on the clock at its end, how long it took, and how much training came before."""

    time_s: float
    quality: float
    took_s: float = 0.0
    epoch: float | None = None
    samples: int | None = None


class LoggedRun(Struct, frozen=True):
    """All that one log says. ``started_s`` is the epoch time of the beginning, 0 where it is not known.

    ``stop_s`` is when the clock stops; ``init_s`` what came before it started. ``None`` is written as ``null``: it is
    not stated. ``ours`` says that levelbench ran it and so knows of its caches and its initialisation; of a run of
    another system nothing is said about the caches, and about initialisation only what ``init_s`` has. ``origin`` is
    where such a run was read from.
    """

    benchmark: str
    organisation: str
    platform: str
    division: str
    target: Target
    evaluations: list[LoggedEvaluation]
    success: bool
    stop_s: float
    init_s: float = 0.0
    started_s: float = 0.0
    seed: int | None = None
    batch_size: int | None = None
    accumulation: int | None = None
    train_samples: int | None = None
    eval_samples: int | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    entry: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    ours: bool = True
    origin: dict[str, str | list[str]] | None = None


def of_record(record: Record, *, organisation: str, division: str = "open", crossing: str = "first") -> LoggedRun:
    """What the log of a record of ours says; the clock is MLPerf's, whatever the record's own.

    ``crossing`` is the rule by which it arrived: MLPerf's is the first evaluation at the target. Only a run that is
    done can have arrived. Raises ``RecordError`` for a record without an evaluation.
    """
    specification, end = record.header.specification, record.end
    if not record.evaluations:
        asked = f"writing {record.path.name} as an MLPerf log"
        raise RecordError(asked, "it has no evaluation", "export runs that were evaluated")
    clock = policy("mlperf")
    qualities = [each.quality.get(specification.target.split, math.nan) for each in record.evaluations]
    found = _first_at(qualities, specification.target, crossing) if record.status == "done" else None
    kept = record.evaluations if found is None else record.evaluations[: found + 1]
    evaluations, before = [], 0
    for each, quality in zip(kept, qualities, strict=False):
        spent = each.phases_ns.get("evaluate", 0)
        time_s = clock.score(each.phases_ns).seconds
        evaluations.append(LoggedEvaluation(time_s, quality, (spent - before) / 1e9, each.epoch, each.samples))
        before = spent
    sizes: Mapping[str, int] = end.dataset.sizes if end is not None and end.dataset is not None else {}
    ranks = specification.distribution.ranks if specification.distribution is not None else 1
    weak = specification.distribution is not None and specification.distribution.scaling == "weak"
    batch = _batch(specification.settings)
    accumulation = _whole(specification.settings.get("accumulate", 1))
    return LoggedRun(
        benchmark=specification.task,
        organisation=organisation,
        platform=specification.device,
        division=division,
        target=specification.target,
        evaluations=evaluations,
        success=found is not None,
        stop_s=evaluations[-1].time_s,
        init_s=sum(clock.score(kept[-1].phases_ns).excluded_s.values()),
        started_s=_epoch_s(record.header.started),
        seed=record.header.seed,
        batch_size=None if batch is None else batch * (ranks if weak else 1) * (accumulation or 1),
        accumulation=accumulation,
        train_samples=sizes.get("train"),
        eval_samples=sizes.get(specification.target.split),
        settings=dict(specification.settings),
        entry={
            "model": specification.recipe,
            "framework": specification.framework,
            "hardware": specification.device,
            "clock": "mlperf",
            "crossing": crossing,
        },
        error=end.error if end is not None else "the run was interrupted",
    )


def of_submission(submission: Submission, run: SubmittedRun, *, crossing: str | None = None) -> LoggedRun:
    """What the log of one run of a submission says, on the submission's own clock.

    ``crossing`` is the rule by which it arrived, the entry's own unless given. The clock stops at the run's stated time
    where that lies between the evaluation that crossed and the next (other systems stop it when they say so), else at
    that evaluation. A run that does not claim to have arrived is written as aborted. Raises ``RecordError`` for a run
    without a curve.
    """
    curve = run.curve
    lengths = {len(each) for each in (curve.quality, curve.epoch, curve.samples) if each}
    if not curve.time_s or lengths != {len(curve.time_s)}:
        found = "its curve is empty" if not curve.time_s else "its curve's columns differ in length"
        raise RecordError("writing a submission as MLPerf logs", found, "correct it: `levelbench board check`")
    arrived = run.status == "done" and run.reached is not False
    at = _first_at(curve.quality, submission.target, crossing or crossing_of(submission)) if arrived else None
    count = len(curve.time_s) if at is None else at + 1
    evaluations = [
        LoggedEvaluation(
            curve.time_s[i],
            curve.quality[i],
            epoch=curve.epoch[i] if curve.epoch else None,
            samples=curve.samples[i] if curve.samples else None,
        )
        for i in range(count)
    ]
    stop_s, stated = evaluations[-1].time_s, run.time_to_target_s
    if at is not None and stated is not None:
        following = curve.time_s[at + 1] if at + 1 < len(curve.time_s) else math.inf
        stop_s = stated if stop_s <= stated < following else stop_s
    return _told(submission, run, evaluations, success=at is not None, stop_s=stop_s)


def crossing_of(submission: Submission) -> str:
    """The rule by which a run of the entry arrived: its own, else MLPerf's, the first evaluation at the target."""
    stated = submission.crossing
    return stated if stated is not None and stated in RULES else "first"


def _told(
    submission: Submission, run: SubmittedRun, evaluations: list[LoggedEvaluation], *, success: bool, stop_s: float
) -> LoggedRun:
    own, origin = submission.settings, submission.origin
    return LoggedRun(
        benchmark=submission.task,
        organisation=submission.author.organisation or submission.author.name,
        platform=submission.hardware.description,
        division=submission.division,
        target=submission.target,
        evaluations=evaluations,
        success=success,
        stop_s=stop_s,
        init_s=sum(run.excluded_s.values()) if submission.clock == "mlperf" else 0.0,
        started_s=_epoch_s(run.started),
        seed=run.seed,
        batch_size=_batch(own),
        accumulation=_whole(own.get("gradient_accumulation_steps")),
        train_samples=_whole(own.get("train_samples")),
        eval_samples=_whole(own.get("eval_samples")),
        settings=dict(own),
        entry={
            "model": submission.model,
            "framework": submission.framework,
            "hardware": submission.hardware.description,
            "ruleset": submission.ruleset,
            "clock": submission.clock or "not stated",
            "crossing": submission.crossing or "not stated",
        },
        error=run.error,
        ours=origin is None,
        origin=None
        if origin is None
        else {"format": origin.format, "file": origin.file, "doubts": list(origin.doubts)},
    )


def _first_at(qualities: list[float], target: Target, crossing: str) -> int | None:
    found = find_crossing(qualities, target.threshold, direction=target.direction, rule=crossing)
    return None if found is None else found.index


def _epoch_s(started: str | None) -> float:
    try:
        moment = datetime.fromisoformat(started or "")
    except ValueError:
        return 0.0
    # A time without a zone is nobody's in particular: nothing is taken from it.
    return moment.timestamp() if moment.tzinfo is not None else 0.0


def _batch(settings: Mapping[str, Setting]) -> int | None:
    return next((whole for name in _BATCH if (whole := _whole(settings.get(name))) is not None), None)


def _whole(value: Setting | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
