"""Makes a submission of records of inference: one specification, measured by one process or several.

The one idea: the entry has every process that came to its end, never the best of them; how they differ is its
interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from levelbench.errors import IncomparableError, RecordError, UsageError
from levelbench.records.rulesets.registry import task_rules
from levelbench.records.schema import DatasetFacts
from levelbench.records.submissions.making import division_of, left_out
from levelbench.records.submissions.schema import SUBMISSION_SCHEMA, Inference, Setting, Submission
from levelbench.records.submissions.terms import Terms, code_of, hardware_of, machine_of, provenance_of

if TYPE_CHECKING:
    from pathlib import Path

    from levelbench.records.inference import InferenceRecord, InferenceSpecification

__all__ = ["make_inference"]


def make_inference(records: Sequence[InferenceRecord], terms: Terms, store: Path | None = None) -> Submission:
    """The entry of ``records``, which are of one specification on one machine.

    ``store`` is searched for the same under other seeds of the queries.

    Raises ``UsageError`` for a network that is no task's, or whose task the ruleset does not have for inference, and
    ``IncomparableError`` for records of two kinds or machines.
    """
    first = records[0]
    specification, environment, rules = first.header.specification, first.header.environment, terms.ruleset
    if len({(each.header.key, machine_of(each.header.environment)) for each in records}) > 1:
        found = "they are of two specifications or machines"
        raise IncomparableError(f"an entry of {len(records)} records of inference", found, "make an entry of each")
    task = specification.model.task
    known = task_rules(rules, task) if task else None
    if known is None or known.inference is None:
        found = f"{specification.title} is no task that {rules.id} has for inference"
        do = "measure a task's network, or choose another --ruleset"
        raise UsageError("an entry of inference", found, do)
    code, remarks = code_of([each.header.environment for each in records], terms.code_url)
    device, measured = specification.arm.device, _measured(records)
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=rules.id,
        task=known.task,
        mode="inference",
        author=terms.author,
        submitted=terms.submitted,
        model=terms.model or specification.model.recipe or specification.model.name,
        framework=specification.arm.framework,
        hardware=hardware_of(environment, device, terms.hardware),
        target=known.target,
        division=division_of(terms),
        code=code,
        price=terms.price,
        inference=measured,
        tuning=terms.tuning,
        settings={**_settings(specification), **terms.settings},
        provenance=provenance_of(
            environment,
            version=first.header.version,
            data=DatasetFacts(
                specification.data.name, {}, dict(first.facts.checksums), "", "", bool(first.facts.synthetic)
            ),
        ),
        notes="\n".join(
            [
                *left_out(terms),
                *_told(records, len(measured)),
                *_siblings(specification, store),
                *remarks,
                *([terms.notes] if terms.notes else []),
            ]
        ),
    )


def _measured(records: Sequence[InferenceRecord]) -> list[Inference]:
    """Each process that came to its end, by seed; ``RecordError`` if none did."""
    from levelbench.records.inference import submitted

    ended = []
    for each in sorted(records, key=lambda record: (record.header.seed, record.header.started, record.header.id)):
        with suppress(RecordError):
            ended.append(submitted([each]))
    return ended or [submitted(records)]


def _told(records: Sequence[InferenceRecord], measured: int) -> list[str]:
    if len(records) == measured:
        return []
    return [f"Of {len(records)} processes {measured} came to their end."]


def _siblings(specification: InferenceSpecification, store: Path | None) -> list[str]:
    """How often the same was measured with other seeds of the queries: an entry may be the best of them."""
    from levelbench.records.inference import other_seeds

    found = other_seeds(store, specification) if store is not None else {}
    if not found:
        return []
    processes = sum(found.values())
    more = f"{processes} more process{'es' if processes > 1 else ''}"
    seeds = f"{len(found)} other seed{'s' if len(found) > 1 else ''}"
    return [f"The store has {more} of the same measurement, under {seeds} of the queries."]


def _settings(specification: InferenceSpecification) -> dict[str, Setting]:
    """The recipe's settings, and how it was measured."""
    model, arm, scenario = specification.model, specification.arm, specification.scenario
    own: dict[str, Setting | None] = {
        **model.settings,
        "recipe": model.recipe,
        "device": arm.device,
        "mode": arm.mode or None,
        "threads": arm.threads,
        "preprocessing": specification.preprocessing,
        "workers": scenario.workers,
        "model_digest": model.digest or None,
        "trained_by": model.run or None,
        "trained_record": model.run_digest or None,
    }
    return {name: value for name, value in own.items() if value is not None}
