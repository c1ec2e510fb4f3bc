"""Makes entries from the records of runs: whole groups of runs, with their curves on the ruleset's clock.

All measurements come from the records; only what they cannot know (who submits, what the machine costs, the tuning
effort) is given. A run that failed or never reached the target is included like any other, and an entry that leaves out
runs of its group says why.

An entry names the digest of the record that it was made from, so all figures of an inference measurement are those of
one process: the middle one, if there are several.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from levelbench.competition.checks.identity import ONLY_THESE
from levelbench.competition.entries import (
    SUBMISSION_SCHEMA,
    Author,
    Code,
    Hardware,
    Inference,
    Provenance,
    Setting,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
    TuningEffort,
    curve_digest,
    cut_at_word,
    file_digest,
    stem_of,
)
from levelbench.competition.rulesets import Ruleset, task_rules
from levelbench.errors import IncomparableError, RecordError, UsageError
from levelbench.measure.crossing import sign_of
from levelbench.measure.environment import machine_of, system_of
from levelbench.measure.environment.software import harmless
from levelbench.measure.policies import policy
from levelbench.measure.statistics.early_stopping import nearest_rank, stream_estimate
from levelbench.records.comparable import one_kind
from levelbench.records.doubts import made_again, removed
from levelbench.records.inference import InferenceRecord, InferenceSpecification, other_seeds, runs_for_inference
from levelbench.records.inference_summary import QUANTILES, score
from levelbench.records.integrity import require_consistent
from levelbench.records.reader import Record
from levelbench.records.schema import DatasetFacts, Evaluation, Source, Target, outline
from levelbench.records.searches import Search, effort_behind, trial_ids
from levelbench.records.store import Store
from levelbench.records.summary import summarise
from levelbench.report.numbers import plural

_MACHINE = ("machine", "accelerators", "threads", "malloc", "signatures")
"""The parts of an environment that say what ran and how it was scored; the other parts vary from moment to moment."""
_LONGEST = 400
SETTINGS = ("threads.settings.", "malloc.")
"""The prefixes of facts that are values of environment variables."""


class Terms(Struct, frozen=True):
    """What is given for an entry. ``submitted`` is an ISO day; ``only_these`` says why runs of a group are left out."""

    author: Author
    submitted: str
    ruleset: Ruleset
    price: SystemPrice | None = None
    division: str = "open"
    code_url: str | None = None
    hardware: str | None = None
    model: str | None = None
    tuning: TuningEffort = field(default_factory=TuningEffort)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    notes: str = ""
    only_these: str | None = None


def hardware_of(environment: Mapping[str, object], device: str, description: str | None) -> Hardware:
    """The system, described by ``description`` or by its parts; ``UsageError`` if both are missing."""
    system = system_of(environment, device)
    if not (description or system.description):
        raise UsageError("the hardware of an entry", "the records do not say what it was", 'give --hardware "..."')
    return Hardware(
        description=(description or system.description)[:200],
        accelerators=system.accelerators,
        accelerator=system.accelerator,
        processor=system.processor,
        cores=system.cores,
        memory_bytes=system.memory_bytes,
    )


def code_of(environments: Sequence[Mapping[str, Any]], url: str | None) -> tuple[Code, list[str]]:
    """Link, commit and dirtiness of the code that ran, and a note if the runs used several commits."""
    git = [each.get("git") or {} for each in environments]
    commits = list(dict.fromkeys(str(each["commit"]) for each in git if each.get("commit")))
    dirty = [bool(each["dirty"]) for each in git if each.get("dirty") is not None]
    notes = [] if len(commits) < 2 else [f"The runs were made at {len(commits)} commits: {', '.join(commits)}."]
    return Code(url, commits[-1] if commits else None, any(dirty) if dirty else None), notes


def provenance_of(
    environment: Mapping[str, object], *, version: str, data: DatasetFacts | None = None, source: Source | None = None
) -> Provenance:
    """Software and machine as flat text, and the identity of the data and of the task's source."""
    libraries = dict(_flat(environment.get("libraries") or {}))
    return Provenance(
        version=version,
        software={name.removesuffix(".version"): text for name, text in sorted(libraries.items())},
        environment=dict(_flat({name: environment.get(name) for name in _MACHINE})),
        dataset=data.name if data else None,
        synthetic=data.synthetic if data else None,
        checksums=dict(data.checksums) if data else {},
        source_digest=source.digest or None if source else None,
        split_rule=data.split_rule or None if data else None,
        split_sizes=dict(data.sizes) if data else {},
        labels=dict(data.digests) if data else {},
        inputs=dict(data.inputs) if data else {},
        quality_digest=source.quality or None if source else None,
        data_digest=source.data or None if source else None,
    )


def without_settings(entry: Submission) -> Submission:
    """The entry with only harmless values of environment variables: older records hold them as they were set."""
    environment = {
        name: harmless(text) if name.startswith(SETTINGS) else text
        for name, text in entry.provenance.environment.items()
    }
    provenance = msgspec.structs.replace(entry.provenance, environment=environment)
    return msgspec.structs.replace(entry, provenance=provenance)


def _flat(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    """Every value below ``value`` with its dotted name; a list of plain values as one text, nothing for ``None``."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        for number, each in enumerate(value):
            yield from _flat(each, f"{name}.{number}")
    elif isinstance(value, list):
        yield name, " ".join(map(str, value))[:_LONGEST]
    elif value is not None:
        yield name, (str(value).lower() if isinstance(value, bool) else str(value))[:_LONGEST]


def make(records: Sequence[Record], terms: Terms) -> Submission:
    """The entry of ``records``: runs of one specification and one source, on one machine, in the order of their seeds.

    Under rules that score windows of runs, they are in the order of their start. Raises ``UsageError`` if the entry
    would be incomplete, ``IncomparableError`` for runs of two kinds or machines.
    """
    if not records:
        raise UsageError("an entry of a leaderboard", "it has no runs", "name finished runs")
    _refuse_mixed(records)
    first, rules = records[0], terms.ruleset
    specification, environment = first.header.specification, first.header.environment
    target = target_of(rules, specification.task, specification.target)
    crossing = specification.crossing if specification.crossing == "final" else rules.crossing
    ordered = sorted(records, key=lambda each: (each.header.started, each.header.id))
    if not rules.aggregation.windows:
        ordered.sort(key=lambda each: each.header.seed)
    facts = next((record.end.dataset for record in ordered if record.end and record.end.dataset), None)
    return _entry(
        [record.header.environment for record in ordered],
        terms,
        hardware=hardware_of(environment, specification.device, terms.hardware),
        task=specification.task,
        mode="training",
        model=terms.model or specification.recipe,
        framework=specification.framework,
        target=target,
        clock=rules.clock,
        crossing=crossing,
        runs=[run_of(record, target, rules.clock, crossing) for record in ordered],
        settings=_settings(first) | dict(terms.settings),
        provenance=provenance_of(environment, version=first.header.version, data=facts, source=first.header.source),
    )


def _entry(
    environments: Sequence[Mapping[str, Any]], terms: Terms, remarks: Sequence[str] = (), **measured: Any
) -> Submission:
    """The entry with the fields of ``measured``, and those that follow from ``terms`` and the runs' environments.

    Its notes are why runs are left out, the ``remarks``, and those of the author. ``UsageError`` if the ruleset does
    not have the stated division.
    """
    known = terms.ruleset.division_names
    if terms.division not in known:
        found = f"it is {terms.division!r}; {terms.ruleset.id} has {', '.join(known)}"
        raise UsageError("the division of an entry", found, "choose one of them")
    code, commits = code_of(environments, terms.code_url)
    left_out = [] if terms.only_these is None else [f"{ONLY_THESE}: {' '.join(terms.only_these.split())}"]
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=terms.ruleset.id,
        author=terms.author,
        submitted=terms.submitted,
        division=terms.division,
        code=code,
        price=terms.price,
        tuning=terms.tuning,
        notes="\n".join([*left_out, *remarks, *commits, *([terms.notes] if terms.notes else [])]),
        **measured,
    )


def _refuse_mixed(records: Sequence[Record]) -> None:
    asked = f"an entry of {len(records)} runs"
    kinds = {(record.header.key, record.header.source.whole) for record in records}
    if len(kinds) > 1:
        do = "make one entry for each group of runs"
        raise IncomparableError(asked, f"they are of {len(kinds)} different kinds", do)
    machines = {machine_of(record.header.environment) for record in records}
    if len(machines) > 1:
        raise IncomparableError(asked, f"they were made on {len(machines)} machines", "make one entry per machine")
    if wrong := one_kind([summarise(record) for record in records]):
        do = "make an entry of runs on the same data, with unchanged records"
        raise IncomparableError(asked, "; ".join(each.sentence for each in wrong), do)
    unended = [record.header.id for record in records if record.status not in ("done", "failed")]
    if unended:
        found = f"{', '.join(unended)} did not finish"
        raise UsageError(asked, found, "rerun the command that made them: it finishes them")


def target_of(rules: Ruleset, task: str, stated: Target) -> Target:
    """The ruleset's target for a task whose runs had the target ``stated``.

    Raises ``UsageError`` if the rules do not have the task, or measure another quality than the runs did.
    """
    found = task_rules(rules, task)
    if found is None:
        known = ", ".join(each.task for each in rules.tasks)
        do = "choose another --ruleset, or write rules for it in DIR/rulesets (docs/reference/rulesets.md)"
        raise UsageError(f"an entry of {task} under {rules.id}", f"it has {known}", do)
    target = found.target
    # An end of the scale that one of them does not know is no difference; the qualities have to be on the rules' scale.
    ends = [pair for pair in ((stated.low, target.low), (stated.high, target.high)) if None not in pair]
    named = [(each.metric, each.split, each.direction) for each in (stated, target)]
    if named[0] != named[1] or any(one != other for one, other in ends):
        had = f"the runs measured {stated.metric} on the {stated.split} split"
        wanted = f"{rules.id} wants {target.metric} on the {target.split} split"
        do = "choose a --ruleset that measures the same; levelbench-1.0 has levelbench's own tasks"
        raise UsageError(f"an entry of {task}", f"{had}, but {wanted}", do)
    return target


def run_of(record: Record, target: Target, clock: str, crossing: str) -> SubmittedRun:
    """One run with its curve on ``clock`` and the facts of its record; ``crossing`` decides whether it arrived.

    Raises ``RecordError`` for a record that contradicts itself.
    """
    summary = require_consistent(summarise(record, clock=clock, crossing=crossing, threshold=target.threshold))
    curve, last = _curve(record, target, clock)
    score = policy(clock).score(last.phases_ns if last else {})
    sign = sign_of(target.direction)
    at_target = bool(curve.quality) and sign * curve.quality[-1] >= sign * target.threshold
    cut_short = crossing == "final" and record.status == "done" and not summary.reached and at_target
    error = "ended by its budget before the end of its schedule" if cut_short else summary.error
    return SubmittedRun(
        curve=curve,
        status="failed" if cut_short or record.status == "failed" else "done",
        seed=None if _has_made_up_seed(record) else record.header.seed,
        reached=summary.reached,
        time_to_target_s=summary.time_to_accuracy_s,
        started=record.header.started,
        phases_s={name: ns * 1e-9 for name, ns in last.phases_ns.items()} if last else {},
        excluded_s=score.excluded_s,
        energy_j=_finite(summary.energy_j),
        energy_method=summary.energy_method,
        peak_memory_bytes=_finite(summary.peak_memory_bytes),
        test_quality={
            name: value
            for name, value in summary.quality.items()
            # The final figures of all splits except the target's.
            if not name.startswith((target.split, f"{target.split}.")) and math.isfinite(value)
        },
        suspect=[text[:4000] for text in summary.suspect],
        error=outline(error)[:4000] if error else None,
        record_id=record.header.id,
        record_digest=file_digest(record.path),
        curve_digest=curve_digest(curve) if curve.time_s else None,
    )


def _is_of_a_log(record: Record) -> bool:
    """Whether the record was made from another tool's log, which does not say all that a record holds."""
    return record.header.environment.get("started") == "imported"


def _has_made_up_seed(record: Record) -> bool:
    """Whether the seed only tells the runs of a log apart that states none: the beginning of the record's id."""
    return _is_of_a_log(record) and record.header.id[:8] == f"{record.header.seed:08x}"


def _curve(record: Record, target: Target, clock: str) -> tuple[SubmittedCurve, Evaluation | None]:
    """The evaluations before the first that is not finite (a run that diverged), and the last of them."""
    kept: list[Evaluation] = []
    for evaluation in record.evaluations:
        if not math.isfinite(evaluation.quality.get(target.split, math.nan)):
            break
        kept.append(evaluation)
    score = policy(clock).score
    names = {name for each in kept for name in each.quality} - {target.split}
    columns = {name: [each.quality.get(name, math.nan) for each in kept] for name in sorted(names)}
    # A log that does not count them has none anywhere.
    counted = kept[-1] if kept and _is_of_a_log(record) else None
    curve = SubmittedCurve(
        time_s=[score(each.phases_ns).seconds for each in kept],
        quality=[each.quality[target.split] for each in kept],
        epoch=[each.epoch for each in kept] if counted is None or counted.epoch else None,
        samples=[each.samples for each in kept] if counted is None or counted.samples else None,
        steps=[each.step for each in kept] if counted is None or counted.step else None,
        others={name: values for name, values in columns.items() if all(map(math.isfinite, values))},
    )
    return curve, kept[-1] if kept else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _settings(record: Record) -> dict[str, Setting]:
    """The recipe's settings, and whatever else distinguishes the specification from others."""
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
"""The longest file stem that the check accepts."""


def file_of(submission: Submission, keys: Iterable[str] = ()) -> str:
    """The path of an entry in a leaderboard: ``TASK/MODE/author_model_hardware_framework-KEYS.json``."""
    stem = stem_of(submission.author.name, submission.model, submission.hardware.description, submission.framework)
    # A prefix identifies a digest, but not a word.
    ending = "".join(f"-{key if len(key) < 16 else key[:8]}" for key in keys)
    task = stem_of(submission.task)
    return f"{task}/{submission.mode}/{cut_at_word(stem, _LONGEST_NAME - len(ending))}{ending}.json"


_ENDED = ("done", "failed")
_SHOWN = 5


class Chosen(Struct, frozen=True):
    """The runs of one entry, and the runs of its group in the store that are not in it (or never finished)."""

    records: list[Record] = []
    missing: list[Record] = []

    @property
    def key(self) -> str:
        """The key of their specification."""
        return self.records[0].header.key


def choose(selected: Iterable[Record], store: Store) -> list[Chosen]:
    """The groups among ``selected``, each with the other runs of the group in the store.

    Runs that were made only to train a network for inference are left out, unless nothing else is selected; trials of
    searches, unless they are selected.
    """
    trials = trial_ids(store.searches())
    groups: dict[tuple[str, str, str], dict[str, Record]] = {}
    for record in selected:
        groups.setdefault(_group(record), {})[_id(record)] = record
    aside = runs_for_inference(store.path)
    if all(record.header.id in aside for members in groups.values() for record in members.values()):
        aside = frozenset()
    found = []
    for group, members in groups.items():
        stored = {
            _id(each): each
            for each in store.records(f"[key={group[0]}]")
            if _group(each) == group and each.header.id not in trials
        }
        # Such a run counts if no other run of the group has its seed, and others exist.
        seeds = {each.header.seed for each in (stored | members).values() if each.header.id not in aside}
        all_of_it = {
            path: each
            for path, each in (stored | members).items()
            if each.header.id not in aside or (seeds and each.header.seed not in seeds)
        }
        if not members.keys() & all_of_it.keys():
            continue
        ended = [record for path, record in all_of_it.items() if path in members and record.status in _ENDED]
        chosen = {_id(record) for record in ended}
        found.append(Chosen(ended, [record for path, record in all_of_it.items() if path not in chosen]))
    return found


def _group(record: Record) -> tuple[str, str, str]:
    return record.header.key, record.header.source.whole, machine_of(record.header.environment)


def _id(record: Record) -> str:
    """An identity that copies of one record in two folders share."""
    return f"{record.header.id}-{record.header.seed}-{record.header.started}"


def refuse_incomplete(chosen: Chosen, because: str | None) -> None:
    """``UsageError`` if runs of the group are left out, or never finished, without a reason."""
    if not chosen.records:
        found = f"none of its {plural(len(chosen.missing), 'run')} finished"
        do = "rerun the command that made them: it finishes them"
        raise UsageError("an entry of a leaderboard", found, do)
    if because is not None:
        return
    asked = f"an entry of {plural(len(chosen.records), 'run')}"
    heads = [each.header for each in (*chosen.records, *chosen.missing)]
    if said := removed(heads):
        do = "make the others (levelbench run), or give --only-these --because TEXT"
        raise UsageError(asked, said, do)
    counts = Counter(each.seed for each in heads)
    known = {each.seed for each in heads if each.replaced or counts[each.seed] > 1}
    if again := made_again("this group", "runs", [each.header for each in chosen.records], known):
        raise UsageError(asked, again[0], "make them again (--fresh), or give --only-these --because TEXT")
    # As in a comparison, an interrupted run that was made again, and had not yet taken longer, was not a slow one.
    made = {each.header.seed: summarise(each).wall_s for each in chosen.records}
    missing = [
        each
        for each in chosen.missing
        if each.status != "interrupted" or summarise(each).wall_s > made.get(each.header.seed, -1.0)
    ]
    if not missing:
        return
    names = [f"{each.header.id} (seed {each.header.seed}, {each.status})" for each in missing]
    more = "" if len(names) <= _SHOWN else f" and {len(names) - _SHOWN} more"
    are = f"{plural(len(names), 'run')} of the same group {'is' if len(names) == 1 else 'are'}"
    found = f"{are} left out: {', '.join(names[:_SHOWN])}{more}"
    task = chosen.records[0].header.specification.task
    do = f"submit all ({task}[key={chosen.key[:8]}]), finish interrupted runs, or give --only-these --because TEXT"
    raise UsageError(asked, found, do)


COUNTED = "counted in the store of the records: "
"""Begins the note about tuning that was not stated."""


def tried(store: Store, records: Sequence[Record], searches: Sequence[Search] = ()) -> TuningEffort:
    """The tuning effort in the store, in trials and hours, and a note about it.

    These are the trials of those ``searches`` that chose the settings, and other specifications of the task and recipe.
    Runs elsewhere are unknown, so this is a lower bound.
    """
    specification, key = records[0].header.specification, records[0].header.key
    what, aside = f"{specification.task}[recipe={specification.recipe}]", runs_for_inference(store.path)
    effort = effort_behind(key, searches)
    searched = frozenset[str]() if effort is None else effort.ids
    rows = [
        row
        for row in store.rows(what)
        if row.key != key and row.specification.task == specification.task and row.id not in aside | searched
    ]
    others = len({row.key for row in rows})
    counted = [f"{plural(len(searched), 'trial')} of the search that chose the settings"] * bool(searched)
    counted.append(f"{plural(others, 'other specification')} of {what}, {plural(len(rows), 'run')}")
    hours = (sum(row.wall_s for row in rows) + (effort.spent_s if effort else 0.0)) / 3600
    notes = COUNTED + " and ".join(counted)
    return TuningEffort(trials=len(searched) + others, hours=hours, notes=notes)


def records_named(store: Store, words: Sequence[str]) -> list[Record]:
    """The records that the words select, each once, without trials; an error if a word selects none, or may miss one.

    A record that cannot be read may be one of them.
    """
    found: dict[Path, Record] = {}
    for word in words:
        for record in store.each_counted(word):
            found[record.path.resolve()] = record
        store.require_readable(word)
    return list(found.values())


INFERENCE_ENDING = ".jsonlines"


def entries_of(
    words: Sequence[str], store: Store, terms: Terms, *, count_trials: bool = True
) -> list[tuple[str, Submission]]:
    """Every entry with its file, relative to the leaderboard.

    Raises ``UsageError`` for a selection that is not a whole group (unless ``terms.only_these`` says why), for runs
    that cannot be an entry under the ruleset, and for words that select nothing.
    """
    files = [Path(word) for word in words if word.endswith(INFERENCE_ENDING)]
    named = [word for word in words if not word.endswith(INFERENCE_ENDING)]
    selected = records_named(store, named)
    searches = [each for word in named for each in store.searches(word)]
    groups = choose(selected, store)
    if selected and not groups:
        raise UsageError("an entry of a leaderboard", "no run finished", "finish the runs first")
    for chosen in groups:
        refuse_incomplete(chosen, terms.only_these)
    made = []
    for chosen in groups:
        own = terms
        if count_trials:
            # Stated values, completed with the store's count.
            stated, counted = terms.tuning, tried(store, chosen.records, searches)
            notes = "; ".join(text for text in (stated.notes, counted.notes) if text)
            hours = counted.hours if stated.hours is None else stated.hours
            own = msgspec.structs.replace(terms, tuning=TuningEffort(counted.trials, hours, stated.usd, notes))
        submission = make(chosen.records, own)
        made.append((file_of(submission, [chosen.key]), submission))
    if files:
        made += _of_inference(files, store, terms)
    return made


def _of_inference(files: Sequence[Path], store: Store, terms: Terms) -> list[tuple[str, Submission]]:
    """One entry per specification and machine among the inference records in ``files``.

    Raises ``UsageError`` if the store has further processes of a measurement, unless the terms say why.
    """
    groups: dict[tuple[str, str], list[InferenceRecord]] = {}
    for path in files:
        record = InferenceRecord.read(path)
        groups.setdefault((record.header.key, machine_of(record.header.environment)), []).append(record)
    for (key, machine), records in groups.items() if terms.only_these is None else ():
        # Nobody may submit only the best of several processes.
        chosen = {record.header.id for record in records}
        missing = [
            str(each.path)
            for each in InferenceRecord.find(store.path, key)
            if machine_of(each.header.environment) == machine and each.status == "done" and each.header.id not in chosen
        ]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            processes = plural(len(missing), "process", "processes")
            are = f"{processes} of the same measurement {'is' if len(missing) == 1 else 'are'}"
            found = f"{are} left out: {missing[0]}{more}"
            do = "give their files too, or give --only-these --because TEXT"
            raise UsageError(f"an entry of {len(records)} records of inference", found, do)
    made = []
    for (key, _), records in groups.items():
        submission = make_inference(records, terms, store.path)
        made.append((file_of(submission, [submission.inference[0].scenario, key]), submission))
    return made


def make_inference(records: Sequence[InferenceRecord], terms: Terms, store: Path | None = None) -> Submission:
    """The entry of ``records``, which must be of one specification on one machine.

    ``store`` is searched for the same measurement with other seeds of the queries. Raises ``UsageError`` for a network
    without a task, or whose task the ruleset does not have for inference, and ``IncomparableError`` for records of two
    kinds or machines.
    """
    first = records[0]
    specification, environment, rules = first.header.specification, first.header.environment, terms.ruleset
    if len({(each.header.key, machine_of(each.header.environment)) for each in records}) > 1:
        found = "they are of two specifications or machines"
        raise IncomparableError(f"an entry of {len(records)} records of inference", found, "make one entry for each")
    if specification.generation is not None:
        found = f"the answers of {specification.title} are generated tokens, which {rules.id} does not rank"
        raise UsageError("an entry of inference", found, "measure without --generate")
    task = specification.model.task
    known = task_rules(rules, task) if task else None
    if known is None or known.inference is None:
        found = f"{specification.title} is not a task that {rules.id} has for inference"
        do = "measure a task's network, or choose another --ruleset"
        raise UsageError("an entry of inference", found, do)
    measured: list[Inference] = []
    for each in sorted(records, key=lambda record: (record.header.seed, record.header.started, record.header.id)):
        with suppress(RecordError):
            measured.append(submitted([each]))
    remarks = [f"{len(measured)} of {len(records)} processes finished."] * (len(measured) < len(records))
    measured = measured or [submitted(records)]
    # Measurements with other seeds of the queries: the entry may be the best of them.
    others = other_seeds(store, specification) if store is not None else {}
    if others:
        more, seeds = plural(sum(others.values()), "more process", "more processes"), plural(len(others), "other seed")
        remarks.append(f"The store has {more} of the same measurement, with {seeds} of the queries.")
    facts = DatasetFacts(specification.data.name, {}, dict(first.facts.checksums), "", "", bool(first.facts.synthetic))
    return _entry(
        [each.header.environment for each in records],
        terms,
        remarks,
        hardware=hardware_of(environment, specification.arm.device, terms.hardware),
        task=known.task,
        mode="inference",
        model=terms.model or specification.model.recipe or specification.model.name,
        framework=specification.arm.framework,
        target=known.target,
        inference=measured,
        settings={**_inference_settings(specification), **terms.settings},
        provenance=provenance_of(environment, version=first.header.version, data=facts),
    )


def _inference_settings(specification: InferenceSpecification) -> dict[str, Setting]:
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


def submitted(records: Sequence[InferenceRecord]) -> Inference:
    """The measurement whose score (the one that the verdict compares) is the lower median of the processes'.

    Pass one record to submit that one. Raises ``RecordError`` if none finished with latencies.
    """
    scored = []
    for each in records:
        found = score(each, each.header.specification.scenario)
        measured = each.outcome is not None and each.outcome.status == "measured"
        if each.status == "done" and measured and found is not None:
            scored.append((found, each.header.seed, each))
    if not scored:
        found_words = f"none of {len(records)} records of inference finished with latencies"
        raise RecordError("an entry of inference", found_words, "rerun the same command: it finishes them")
    ordered = sorted(scored, key=lambda one: one[:2])
    return _measurement(ordered[(len(ordered) - 1) // 2][2])


def _measurement(record: InferenceRecord) -> Inference:
    driven, accuracy = record.driven, record.accuracy
    assert driven is not None
    specification = record.header.specification
    scenario, latencies = specification.scenario, np.sort(record.latencies_s)
    streams = scenario.name in ("single-stream", "multi-stream")
    return Inference(
        scenario=scenario.name,
        queries=driven.queries,
        samples=driven.samples,
        duration_s=driven.duration_s,
        mean_latency_s=float(latencies.mean()),
        quantiles_s={f"{q:g}": nearest_rank(latencies, q) for q in QUANTILES},
        estimate_s=stream_estimate(latencies, scenario.quantile).value if streams else None,
        estimate_quantile=scenario.quantile if streams else None,
        throughput_per_s=driven.throughput_per_s,
        target_per_s=driven.target_per_s,
        latency_bound_s=scenario.bound_s,
        valid=driven.valid,
        quality=accuracy.value if accuracy is not None else None,
        quality_samples=accuracy.examples if accuracy is not None and accuracy.value is not None else None,
        batch=scenario.batch,
        includes=list(record.facts.includes),
        audits={each.name: each.passed for each in record.audits},
        record_id=record.header.id,
        record_digest=hashlib.sha256(record.path.read_bytes()).hexdigest(),
    )
