"""Makes a submission of the records of runs: all of a group's, with their curves on the ruleset's clock.

The one idea: an entry is made of records and of nothing else that was measured. Its target, clock and crossing rule are
the ruleset's, which are views over the same records, and a run that failed or never arrived is in it like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from levelbench.errors import IncomparableError, UsageError
from levelbench.measure.policies import policy
from levelbench.records.comparable import one_kind
from levelbench.records.integrity import require_consistent
from levelbench.records.reader import Record
from levelbench.records.redaction import outline
from levelbench.records.rulesets.registry import task_rules
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.schema import Evaluation, Target
from levelbench.records.submissions.digests import curve_digest, file_digest
from levelbench.records.submissions.files import cut_at_word, stem_of
from levelbench.records.submissions.rules.identity import ONLY_THESE
from levelbench.records.submissions.schema import (
    SUBMISSION_SCHEMA,
    Curve,
    Setting,
    Submission,
    SubmittedRun,
)
from levelbench.records.submissions.terms import Terms, code_of, hardware_of, machine_of, provenance_of
from levelbench.records.summary import RunSummary, summarise

__all__ = ["division_of", "file_of", "left_out", "make", "run_of", "target_of"]


def make(records: Sequence[Record], terms: Terms) -> Submission:
    """The entry of ``records``: runs of one specification and one source, on one machine, in the order of their seeds.

    Under rules that score windows of runs they are in the order of their start.

    Raises ``UsageError`` where an entry would be incomplete, ``IncomparableError`` for runs of two kinds or machines.
    """
    if not records:
        raise UsageError("an entry of a leaderboard", "it has no run", "name runs that came to an end")
    _refuse_mixed(records)
    first, rules = records[0], terms.ruleset
    specification, environment = first.header.specification, first.header.environment
    target = target_of(rules, specification.task, specification.target)
    crossing = specification.crossing if specification.crossing == "final" else rules.crossing
    ordered = sorted(records, key=_by_start if rules.aggregation.windows else _by_seed)
    facts = next((record.end.dataset for record in ordered if record.end and record.end.dataset), None)
    code, remarks = code_of([record.header.environment for record in ordered], terms.code_url)
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=rules.id,
        task=specification.task,
        mode="training",
        author=terms.author,
        submitted=terms.submitted,
        model=terms.model or specification.recipe,
        framework=specification.framework,
        hardware=hardware_of(environment, specification.device, terms.hardware),
        target=target,
        division=division_of(terms),
        clock=rules.clock,
        crossing=crossing,
        code=code,
        price=terms.price,
        runs=[run_of(record, target, rules.clock, crossing) for record in ordered],
        tuning=terms.tuning,
        settings=_settings(first) | dict(terms.settings),
        provenance=provenance_of(environment, version=first.header.version, data=facts, source=first.header.source),
        notes="\n".join([*left_out(terms), *remarks, *([terms.notes] if terms.notes else [])]),
    )


def _by_seed(record: Record) -> tuple[int, str, str]:
    return record.header.seed, record.header.started, record.header.id


def _by_start(record: Record) -> tuple[str, str]:
    return record.header.started, record.header.id


def division_of(terms: Terms) -> Literal["closed", "open"]:
    """The stated division; ``UsageError`` if the ruleset does not have it."""
    known = [each.name for each in terms.ruleset.divisions]
    if known and terms.division not in known:
        found = f"it is {terms.division!r}; {terms.ruleset.id} has {', '.join(known)}"
        raise UsageError("the division of an entry", found, "choose one of them")
    return terms.division


def left_out(terms: Terms) -> list[str]:
    """The line of the notes that says why runs are left out, where some are."""
    return [] if terms.only_these is None else [f"{ONLY_THESE}: {' '.join(terms.only_these.split())}"]


def _refuse_mixed(records: Sequence[Record]) -> None:
    asked = f"an entry of {len(records)} runs"
    kinds = {(record.header.key, record.header.source.whole) for record in records}
    if len(kinds) > 1:
        do = "make an entry of each: one group of runs is one entry"
        raise IncomparableError(asked, f"they are of {len(kinds)} kinds", do)
    machines = {machine_of(record.header.environment) for record in records}
    if len(machines) > 1:
        raise IncomparableError(asked, f"they were made on {len(machines)} machines", "make an entry of each machine")
    if wrong := one_kind([summarise(record) for record in records]):
        do = "make an entry of runs on the same data, whose records are as they were written"
        raise IncomparableError(asked, "; ".join(each.sentence for each in wrong), do)
    unended = [record.header.id for record in records if record.status not in ("done", "failed")]
    if unended:
        found = f"{', '.join(unended)} did not come to an end"
        raise UsageError(asked, found, "give the command that made them again: it finishes them")


def target_of(rules: Ruleset, task: str, stated: Target) -> Target:
    """The ruleset's target for a task whose runs looked for ``stated``.

    Raises ``UsageError`` if the rules do not have the task, or measure another quality than the runs did.
    """
    found = task_rules(rules, task)
    if found is None:
        known = ", ".join(each.task for each in rules.tasks)
        raise UsageError(f"an entry of {task} under {rules.id}", f"it has {known}", "choose another --ruleset")
    target = found.target
    if msgspec.structs.replace(stated, threshold=target.threshold) != target:
        had = f"the runs measured {stated.metric} on the {stated.split} split"
        wanted = f"{rules.id} wants {target.metric} on the {target.split} split"
        do = "choose a --ruleset that measures the same; levelbench-1.0 has levelbench's own tasks"
        raise UsageError(f"an entry of {task}", f"{had}, and {wanted}", do)
    return target


def run_of(record: Record, target: Target, clock: str, crossing: str) -> SubmittedRun:
    """One run with its curve on ``clock`` and what its record says of it; whether it arrived is by ``crossing``.

    Raises ``RecordError`` for a record that contradicts itself.
    """
    summary = require_consistent(summarise(record, clock=clock, crossing=crossing, threshold=target.threshold))
    curve, last = _curve(record, target, clock)
    score = policy(clock).score(last.phases_ns if last else {})
    cut_short = crossing == "final" and record.status == "done" and not summary.reached and _ends_at(curve, target)
    error = "ended by its budget before the end of its schedule" if cut_short else summary.error
    return SubmittedRun(
        curve=curve,
        status="failed" if cut_short or record.status == "failed" else "done",
        seed=record.header.seed,
        reached=summary.reached,
        time_to_target_s=summary.time_to_accuracy_s,
        started=record.header.started,
        phases_s={name: ns * 1e-9 for name, ns in last.phases_ns.items()} if last else {},
        excluded_s=score.excluded_s,
        energy_j=_finite(summary.energy_j),
        energy_method=summary.energy_method,
        peak_memory_bytes=_finite(summary.peak_memory_bytes),
        test_quality=_test_quality(summary, target),
        suspect=[text[:4000] for text in summary.suspect],
        error=outline(error)[:4000] if error else None,
        record_id=record.header.id,
        record_digest=file_digest(record.path),
        curve_digest=curve_digest(curve) if curve.time_s else None,
    )


def _ends_at(curve: Curve, target: Target) -> bool:
    sign = 1.0 if target.direction == "higher" else -1.0
    return bool(curve.quality) and sign * curve.quality[-1] >= sign * target.threshold


def _curve(record: Record, target: Target, clock: str) -> tuple[Curve, Evaluation | None]:
    """The evaluations up to the first that is not finite (a run that diverged), and the last of them."""
    kept: list[Evaluation] = []
    for evaluation in record.evaluations:
        if not math.isfinite(evaluation.quality.get(target.split, math.nan)):
            break
        kept.append(evaluation)
    score = policy(clock).score
    names = {name for each in kept for name in each.quality} - {target.split}
    columns = {name: [each.quality.get(name, math.nan) for each in kept] for name in sorted(names)}
    curve = Curve(
        time_s=[score(each.phases_ns).seconds for each in kept],
        quality=[each.quality[target.split] for each in kept],
        epoch=[each.epoch for each in kept],
        samples=[each.samples for each in kept],
        others={name: values for name, values in columns.items() if all(map(math.isfinite, values))},
    )
    return curve, kept[-1] if kept else None


def _test_quality(summary: RunSummary, target: Target) -> dict[str, float]:
    """The final figures of other splits than the one that the target is looked for on."""
    own = (target.split, f"{target.split}.")
    figures = summary.quality.items()
    return {name: value for name, value in figures if not name.startswith(own) and math.isfinite(value)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _settings(record: Record) -> dict[str, Setting]:
    """The recipe's settings, and whatever else of the specification tells it from another."""
    specification = record.header.specification
    rest = {
        "recipe": specification.recipe,
        "device": specification.device,
        "evaluate_every": specification.evaluate_every,
        "budget_epochs": specification.budget_epochs,
        "budget_s": specification.budget_s,
        "budget_samples": specification.budget_samples,
        "budget_j": specification.budget_j,
        "plateau": specification.plateau,
        **(specification.team() if specification.distribution else {}),
    }
    return {**specification.settings, **{name: value for name, value in rest.items() if value is not None}}


_LONGEST_NAME = 100
"""The most characters of a file's stem that a check takes."""


def file_of(submission: Submission, keys: Iterable[str] = ()) -> str:
    """Where an entry lies in a leaderboard: ``TASK/MODE/author_model_hardware_framework-KEYS.json``."""
    stem = stem_of(submission.author.name, submission.model, submission.hardware.description, submission.framework)
    # A digest is told by its beginning, a word is not.
    ending = "".join(f"-{key if len(key) < 16 else key[:8]}" for key in keys)
    task = stem_of(submission.task)
    return f"{task}/{submission.mode}/{cut_at_word(stem, _LONGEST_NAME - len(ending))}{ending}.json"
