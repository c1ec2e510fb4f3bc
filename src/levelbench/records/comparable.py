"""The one gate of every comparison: what speaks against holding two groups of runs against each other.

``comparable(a, b)`` looks at all that must be equal, and says of each thing that is not how much it weighs. Whoever
compares runs (``compare``, ``report``, ``run``, ``lint``) calls it first and prints what it found, once, near the
verdict. A check is a small function over both sides; a new one is added to ``_CHECKS``.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from levelbench.errors import IncomparableError, RecordError
from levelbench.measure.crossing import RULES
from levelbench.measure.policies import POLICIES
from levelbench.records.doubts import in_steps, told_doubts
from levelbench.records.schema import DatasetFacts, key_of
from levelbench.records.summary import RunGroup, RunSummary

if TYPE_CHECKING:
    from levelbench.measure.environment import Difference

__all__ = ["Caveat", "Comparability", "Sides", "Weight", "comparable", "doubts_of", "ended", "one_kind", "removed"]

Weight = Literal["refuse", "no verdict", "doubt", "note"]
_ORDER: tuple[Weight, ...] = ("refuse", "no verdict", "doubt", "note")
_SHOWN = 4
_FINE = 5
"""So many phases with nanoseconds in them are never the same by chance."""


@dataclass(frozen=True)
class Caveat:
    """One thing that a comparison must not pass over: what it is about, how much it weighs, and a sentence.

    ``refuse``: there is no comparison at all. ``no verdict``: there are figures, and no verdict on them. ``doubt``: a
    reason to distrust the verdict, said beside it. ``note``: what a reader has to know. The sentence has no final full
    stop.
    """

    subject: str
    weight: Weight
    sentence: str

    def __str__(self) -> str:
        return f"{self.weight}: {self.sentence}"


@dataclass(frozen=True)
class Sides:
    """Two groups and those of their runs that count, by seed; ``across_machines`` asks for a verdict all the same."""

    a: RunGroup
    b: RunGroup
    across_machines: bool = False

    @cached_property
    def runs_a(self) -> list[RunSummary]:
        """Those of ``a`` that came to an end."""
        return ended(self.a)

    @cached_property
    def runs_b(self) -> list[RunSummary]:
        """Those of ``b`` that came to an end."""
        return ended(self.b)

    @cached_property
    def runs(self) -> list[RunSummary]:
        """All of both, those of ``a`` first."""
        return [*self.runs_a, *self.runs_b]

    @cached_property
    def one_machine(self) -> bool:
        """Whether all runs were made on hardware of one kind."""
        from levelbench.measure.environment import same_machine

        return all(same_machine(self.runs[0].environment, run.environment) for run in self.runs[1:])

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """What differs between the environment of any run and that of the first one, each once."""
        from levelbench.measure.environment import differences

        return tuple(differences([run.environment for run in self.runs]))

    @property
    def paired(self) -> bool:
        """Whether the runs of both are pairs: the same seeds, each as often."""
        return [run.seed for run in self.runs_a] == [run.seed for run in self.runs_b]


@dataclass(frozen=True)
class Comparability:
    """What the gate found, the gravest first."""

    sides: Sides
    caveats: tuple[Caveat, ...]

    @property
    def refusals(self) -> tuple[Caveat, ...]:
        """Why there is no comparison; empty if there is one."""
        return tuple(each for each in self.caveats if each.weight == "refuse")

    @property
    def verdict_withheld(self) -> bool:
        """Whether there may be figures and no verdict."""
        return any(each.weight in ("refuse", "no verdict") for each in self.caveats)

    def require(self) -> None:
        """Raise for what cannot be compared.

        ``RecordError`` names the records that contradict themselves, ``IncomparableError`` everything else at once.
        """
        asked = f"comparing {self.sides.a.label} with {self.sides.b.label}"
        wrong = [each.sentence for each in self.refusals if each.subject == "contradictions"]
        if wrong:
            raise RecordError(asked, _some_of(wrong), "restore these records from a copy, or remove the runs")
        if self.refusals:
            # One reason must not hide another because it holds of many runs.
            by_subject: dict[str, list[str]] = {}
            for each in self.refusals:
                by_subject.setdefault(each.subject, []).append(each.sentence)
            raise IncomparableError(asked, "; ".join(map(_some_of, by_subject.values())), _remedy({*by_subject}))


def comparable(a: RunGroup, b: RunGroup, *, across_machines: bool = False) -> Comparability:
    """What speaks against comparing ``b`` with ``a``; ``across_machines`` makes another machine a doubt."""
    sides = Sides(a, b, across_machines)
    empty = [_no_run(group) for group, runs in ((a, sides.runs_a), (b, sides.runs_b)) if not runs]
    if empty:
        return Comparability(sides, tuple(empty))
    found = [each for check in _CHECKS for each in check(sides)]
    return Comparability(sides, tuple(sorted(found, key=lambda each: _ORDER.index(each.weight))))


def _some_of(sentences: Sequence[str]) -> str:
    more = f"; and so for {len(sentences) - _SHOWN} more" if len(sentences) > _SHOWN else ""
    return "; ".join(sentences[:_SHOWN]) + more


def one_kind(runs: Sequence[RunSummary]) -> list[Caveat]:
    """What speaks against taking ``runs`` for replicates of one thing: the same checks, among themselves."""
    return [*_contradictions_of(runs), *_data_of(runs)] if runs else []


def ended(group: RunGroup) -> list[RunSummary]:
    """The runs that count, by seed: an interruption says nothing about a recipe, a failure does."""
    runs = [run for run in group.runs if run.status in ("done", "failed")]
    return sorted(runs, key=lambda run: (run.seed, run.started))


def _no_run(group: RunGroup) -> Caveat:
    count = len(group.runs) + len(group.unfinished)
    return Caveat("runs", "refuse", f"none of the {count} runs of {group.label} has come to an end")


def _remedy(subjects: set[str]) -> str:
    if "runs" in subjects:
        return "run it: levelbench run"
    if "copies" in subjects:
        return "remove the copies: levelbench rm ID"
    if "shared runs" in subjects:
        return "select other runs for one of the sides; levelbench doctor compares this machine with itself"
    return (
        "choose runs of one task, one target and the same data; a clock, crossing rule or target for both can be given "
        "as --clock, --crossing, --target"
    )


def _contradictions(sides: Sides) -> Iterator[Caveat]:
    yield from _contradictions_of(sides.runs)


def _contradictions_of(runs: Iterable[RunSummary]) -> Iterator[Caveat]:
    for run in runs:
        if found := run.contradictions:
            yield Caveat("contradictions", "refuse", f"the record of run {run.id} contradicts itself: {found[0]}")


def _shared_runs(sides: Sides) -> Iterator[Caveat]:
    """A run on both sides would be compared with itself."""
    both = sorted({run.id for run in sides.runs_a} & {run.id for run in sides.runs_b})
    if both:
        count = f"{len(both)} run{'s' * (len(both) > 1)}"
        yield Caveat("shared runs", "refuse", f"{count} would be compared with themselves ({_listed(both)})")


def _copies(sides: Sides) -> Iterator[Caveat]:
    """Two runs never take the same times to the nanosecond, phase by phase: one is a copy that was renamed."""
    first: dict[tuple[Any, ...], RunSummary] = {}
    for run in sides.runs:
        if not run.phases_s:
            continue
        one = first.setdefault(_times_of(run), run)
        if one.id != run.id:
            text = f"the runs {one.id} and {run.id} are one run"
            yield Caveat("copies", "refuse", f"{text}: all their times are the same to the nanosecond")


def _times_of(run: RunSummary) -> tuple[object, ...]:
    """What two runs never share. Times that are given in round numbers may coincide; then their start decides."""
    fine = [seconds for seconds in run.phases_s.values() if round(seconds * 1e9) % 1000]
    start = () if len(fine) >= _FINE else (run.started,)
    return (*start, run.wall_s, *sorted(run.phases_s.items()))


def _chains(sides: Sides) -> Iterator[Caveat]:
    """Records of the first schema carry no checksums; nor do those from which somebody has taken them."""
    counts = [sum(not run.chained for run in runs) for runs in (sides.runs_a, sides.runs_b)]
    if not any(counts):
        return
    text = "1 run was" if sum(counts) == 1 else f"{sum(counts)} runs were"
    text += " written without checksums, so that an edit of them goes unseen"
    if all(counts):
        yield Caveat("checksums of records", "doubt", f"{text}: make them again")
        return
    which = sides.a if counts[0] else sides.b
    yield Caveat("checksums of records", "no verdict", f"{text}, and all of them are of {which.label}: make them again")


def _rules(sides: Sides) -> Iterator[Caveat]:
    """What a time to accuracy means: the task, its target, when that counts as reached, and on which clock."""
    first, second = sides.runs_a[0], sides.runs_b[0]
    fixed = {
        "task": (first.task, second.task),
        "target": (_target(first), _target(second)),
        "crossing rule": (first.crossing, second.crossing),
        "clock": (first.clock, second.clock),
    }
    for subject, (x, y) in fixed.items():
        if x == y:
            continue
        if {x, y} == {"final", "confirmed"}:
            # A schedule of fixed length is judged at its end by nature; its time may be set beside a confirmed one.
            at_end = sides.a if x == "final" else sides.b
            yield Caveat(
                subject, "note", f"{at_end.label} is judged at the end of its schedule, the other at a confirmed target"
            )
        else:
            yield Caveat(subject, "refuse", f"they differ in {subject}: {x} against {y}")


_KEY_DIGITS = 64


def _view(sides: Sides) -> Iterator[Caveat]:
    """Of many targets and rules one favours an arm; whoever chooses when the results are known can find it."""
    for run in {run.key: run for run in sides.runs if len(run.key) == _KEY_DIGITS}.values():
        own, clocks = run.specification, tuple(POLICIES)
        if run.key in {key_of(replace(own, clock=clock)) for clock in clocks}:
            continue
        by_rule = {key_of(replace(own, clock=clock, crossing=rule)) for clock in clocks for rule in RULES}
        what = "crossing rule" if run.key in by_rule else "target"
        text = f"the runs were made for another {what} than they are judged by ({_target(run)}, {run.crossing})"
        yield Caveat(what, "doubt", f"{text}: if it was chosen with the results known, make runs for it")
        return


def _target(run: RunSummary) -> str:
    sign = ">=" if run.target.direction == "higher" else "<="
    return f"{run.target.split} {run.target.metric} {sign} {run.target.threshold:g}"


def _data(sides: Sides) -> Iterator[Caveat]:
    yield from _data_of(sides.runs)


def _data_of(runs: Iterable[RunSummary]) -> Iterator[Caveat]:
    """The files, the rule of the split, its sizes and what was looked at. A run that read no data says nothing."""
    runs = list(runs)
    unlike = _unlike([run.checksums for run in runs if run.checksums])
    if unlike:
        yield Caveat("checksums", "refuse", f"they differ in the content of {', '.join(unlike)}")
    facts = [run.dataset for run in runs if run.dataset is not None]
    if not facts:
        return
    for subject, what, values in (
        ("dataset", "the name of the data", _distinct(each.name for each in facts)),
        ("split rule", "the rule of the split", _distinct(each.split_rule for each in facts)),
        ("split sizes", "the sizes of the splits", _distinct(map(_sizes, facts))),
    ):
        if len(values) > 1:
            yield Caveat(subject, "refuse", f"they differ in {what}: {' against '.join(map(_short, values[:2]))}")
    if changed := _unlike([each.digests for each in facts if each.digests]):
        yield Caveat("labels", "refuse", f"they differ in the labels of the {', '.join(changed)} split")
    # Older records know some inputs alone, of which newer ones keep the digest too.
    some = _unlike([each.inputs for each in facts if each.inputs])
    whole = _unlike([each.whole_inputs for each in facts if each.whole_inputs])
    if changed := sorted({*some, *whole}):
        yield Caveat("inputs", "refuse", f"they differ in the inputs of the {', '.join(changed)} split")


def _sizes(facts: DatasetFacts) -> str:
    return ", ".join(f"{size} {name}" for name, size in facts.sizes.items())


def _unlike(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """The names under which any two differ."""
    names = sorted({name for each in facts for name in each})
    return [name for name in names if len({each.get(name) for each in facts}) > 1]


def _definition(sides: Sides) -> Iterator[Caveat]:
    """The code that scores the network and loads the data; the recipes' own code is what is compared."""
    known = [run for run in sides.runs if run.quality_digest]
    if len({run.quality_digest for run in known}) > 1:
        yield Caveat(
            "task definition",
            "no verdict",
            "the quality is computed by other code on each side, so that their targets may not be the same",
        )
    if len({run.data_digest for run in known}) > 1:
        yield Caveat("task definition", "doubt", "the data are loaded by other code on each side")
    sources = {run.source_digest for run in sides.runs}
    ways = {run.scored_by for run in sides.runs}
    if len({run.held_out for run in sides.runs}) > 1:
        text = "their qualities were scored on other held-out data, or one at the end and the other in training"
        yield Caveat("held-out data", "no verdict", text)
    elif len(ways) > 1:
        text = "one side's program reports its quality itself, and levelbench measured that of the other"
        yield Caveat("quality", "doubt", f"{text}: whether both mean the same by it is not known")
    if ways != {None} and {run.clock for run in sides.runs} != {"wall"}:
        text = "a program names its phases itself, and what it does not name is other"
        yield Caveat("clock", "doubt", f"{text}: only the wall clock leaves out none of its time")
    if len(sources) < 2 or ways == {"held-out"}:
        return
    if ways == {"program"}:
        text = "the programs differ, and each reports its quality itself"
        yield Caveat("quality", "doubt", f"{text}: whether both mean the same by it is not known")
        return
    if around := _around(sides):
        text = f"the code around the recipes differs too ({around}), so what scores or feeds the runs may differ"
        yield Caveat("source", "doubt", f"{text}: make the runs of both sides again with one state of it")
    elif len(known) < len(sides.runs):
        yield Caveat(
            "source",
            "doubt",
            "the files of the tasks differ, and the older records do not say whether in more than the recipe",
        )
    elif sides.a.specification.recipe == sides.b.specification.recipe:
        yield Caveat("source", "note", f"the file of recipe {sides.a.specification.recipe} differs between the sides")


def _around(sides: Sides) -> str:
    """Where runs of one recipe or one file differ in more than recipes; of others, the modules that both import."""
    one = sides.runs[0]
    same_file = all(run.source_name == one.source_name for run in sides.runs)
    same = sides.a.specification.recipe == sides.b.specification.recipe or (same_file and bool(one.source_name))
    found = ["the task's file"] if same and len({run.around_digest for run in sides.runs}) > 1 else []
    names = {name for run in sides.runs for name in run.modules}
    shared = {name for name in names if all(name in run.modules for run in sides.runs)}
    changed = _unlike([run.modules for run in sides.runs])
    return _listed([*found, *(name for name in changed if same or name in shared)])


def _without_effect(sides: Sides) -> Iterator[Caveat]:
    """A setting that a recipe does not use makes a comparison of one thing with itself."""
    a, b = sides.a.specification, sides.b.specification
    unlike = [name for name in {**a.settings, **b.settings} if a.settings.get(name) != b.settings.get(name)]
    own, other = ({run.seed: run.losses_digest for run in runs} for runs in (sides.runs_a, sides.runs_b))
    shared = [own[seed] for seed in own if seed in other and own[seed] == other[seed]]
    if unlike and own and len(shared) == len(own) == len(other) and all(shared):
        text = "with each seed both sides have the same losses to the last digit"
        yield Caveat("settings", "note", f"{text}: {_listed(unlike)} changes nothing of what is learnt")


def _arguments(sides: Sides) -> Iterator[Caveat]:
    """What a program in which a run was tracked was given, beside its settings: nobody else knows that it differs."""
    for group, runs in ((sides.a, sides.runs_a), (sides.b, sides.runs_b)):
        given = _distinct(map(" ".join, _given_to(runs)))
        if len(given) > 1:
            text = (
                f"runs of {group.label} had other arguments: {' against '.join(each or 'none' for each in given[:2])}"
            )
            yield Caveat("arguments", "doubt", f"{text}: tell track() what they set (settings=)")
    one, other = ({word for words in _given_to(runs) for word in words} for runs in (sides.runs_a, sides.runs_b))
    if one != other:
        words = " against ".join(" ".join(sorted(each)) or "none" for each in (one - other, other - one))
        yield Caveat("arguments", "note", f"their programs had other arguments: {words}")


def _given_to(runs: Sequence[RunSummary]) -> list[list[str]]:
    """The arguments of each run, without those that tell a setting or the seed, and without paths."""
    every = [_options(run) for run in runs]
    seeds = [str(run.seed) for run in runs]
    found = []
    for run, options in zip(runs, every, strict=True):
        told = {_as_number(str(value)) for value in run.settings.values()}
        kept = []
        for at, (name, value) in enumerate(options):
            # One that is the seed of a single run may be anything: it has to go along with the seeds.
            follows = [own[at][1] if at < len(own) else "" for own in every] == seeds and len(set(seeds)) > 1
            if not (follows or value in told or "/" in value or "seed" in name.lower()):
                kept.append(name if name == value else f"{name} {value}")
        found.append(kept)
    return found


def _options(run: RunSummary) -> list[tuple[str, str]]:
    """Each argument of its program, with the name of the option that it belongs to, or with itself."""
    text = str(run.environment.get("arguments") or "").replace("=", " ")
    words = [each.split() for each in re.findall(r"-\S*(?:\s+(?!-\D)\S+)?|\S+", text)]
    return [(each[0] if len(each) > 1 else _as_number(each[0]), _as_number(each[-1])) for each in words]


def _as_number(text: str) -> str:
    """``text``, or where it is a number that number in one way of writing it."""
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def _signatures(sides: Sides) -> Iterator[Caveat]:
    """Options and versions that decide about a score, where a quality has any."""
    found = [_fact(run.environment, "signatures") for run in sides.runs if run.status == "done"]
    signed = [each for each in found if isinstance(each, Mapping)]
    if changed := _unlike([{name: str(text) for name, text in each.items()} for each in signed]):
        yield Caveat("quality", "no verdict", f"the figures of {', '.join(changed)} were computed with other options")


def _machine(sides: Sides) -> Iterator[Caveat]:
    if not sides.one_machine:
        weight: Weight = "doubt" if sides.across_machines else "no verdict"
        do = "" if sides.across_machines else "; --across-machines gives one all the same"
        known = all(isinstance(run.environment.get("machine"), Mapping) for run in sides.runs)
        where = "they ran on different machines" if known else "on which machine some ran is not known"
        yield Caveat("machine", weight, f"{where}{do}")


_SETTINGS: tuple[tuple[str, str, Weight], ...] = (
    ("framework.threads", "threads", "doubt"),
    ("framework.deterministic", "kernels", "doubt"),
    ("threads", "threads", "doubt"),
    ("malloc", "memory allocator", "doubt"),
    ("libraries.python.traced", "tracing", "doubt"),
    ("libraries", "versions", "note"),
    ("machine.cpu", "processor", "doubt"),
    ("machine.cores", "processor", "doubt"),
    ("machine.cgroup", "processor", "doubt"),
    ("machine.governor", "frequency", "doubt"),
    ("machine.turbo", "frequency", "doubt"),
    ("machine.frequency", "frequency", "doubt"),
    ("machine", "system", "note"),
    ("accelerators", "driver", "doubt"),
    ("git", "commit", "note"),
)
"""Where in an environment, what it is about, how much it weighs. The machine itself and its load have other checks."""
_ALWAYS_SAID = ("threads.settings", "threads.niceness", "malloc")
"""What is not set there is set otherwise; elsewhere it is what the other framework does not load."""


def _environment(sides: Sides) -> Iterator[Caveat]:
    """Threads, versions, kernels and settings: one caveat for each, with the values of both sides."""
    told: dict[tuple[str, Weight], list[str]] = {}
    # What one process alone loads is not all that ranks load, which communicate through another framework.
    a, b = sides.a.specification, sides.b.specification
    same_framework = a.framework == b.framework
    same_software = same_framework and (a.distribution is None) == (b.distribution is None)
    for path in dict.fromkeys(each.path for each in sides.differences):
        rule = next((each for each in _SETTINGS if path == each[0] or path.startswith(f"{each[0]}.")), None)
        rule = rule or next((each for each in _SETTINGS if path.startswith(f"{each[0]}_")), None)
        if rule is None or path == "machine.id" or (rule[0].startswith("machine") and not sides.one_machine):
            continue
        values_a, values_b = (_values(runs, path) for runs in (sides.runs_a, sides.runs_b))
        if not same_software and not path.startswith(_ALWAYS_SAID) and "not there" in (*values_a, *values_b):
            continue
        weight = "doubt" if same_framework and _is_framework(path, sides) else rule[2]
        mixed = values_a == values_b
        text = (
            f"{path} both have {_listed(values_a)}"
            if mixed
            else f"{path} {_listed(values_a)} against {_listed(values_b)}"
        )
        told.setdefault((rule[1], weight), []).append(text)
    for (subject, weight), lines in told.items():
        more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        yield Caveat(subject, weight, f"{subject} differ{'' if subject in _PLURAL else 's'}: "
                                      f"{'; '.join(lines[:_SHOWN])}{more}")  # fmt: skip


_PLURAL = ("threads", "kernels", "versions")


def _is_framework(path: str, sides: Sides) -> bool:
    """Whether it is the version of what is compared with itself, or of what computes for it."""
    name = sides.a.specification.framework
    return path in (f"libraries.{name}", f"libraries.{name}lib") or path.startswith("libraries.blas")


def _values(runs: Sequence[RunSummary], path: str) -> list[str]:
    found = [_fact(run.environment, *path.split(".")) for run in runs]
    return sorted({"not there" if value is None else str(value) for value in found})


def _fact(tree: object, *path: str) -> object:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _started(sides: Sides) -> Iterator[Caveat]:
    """Forked or as new interpreters; older records were all the latter, and do not say it."""
    ways = [
        _distinct(str(_fact(run.environment, "started") or "spawn") for run in runs)
        for runs in (sides.runs_a, sides.runs_b)
    ]
    if len({*ways[0], *ways[1]}) > 1:
        words = [_listed(sorted(each)) for each in ways]
        text = f"their processes were started in different ways ({words[0]} against {words[1]})"
        yield Caveat("start of processes", "doubt", f"{text}: make the runs of both with one command, or with --spawn")


def _budgets(sides: Sides) -> Iterator[Caveat]:
    names = {
        "budget_epochs": "epochs",
        "budget_s": "seconds",
        "budget_samples": "samples",
        "budget_j": "joules",
        "plateau": "evaluations without a better one",
    }
    a, b = sides.a.specification, sides.b.specification
    unlike = [
        f"{_amount(getattr(a, name))} against {_amount(getattr(b, name))} {unit}"
        for name, unit in names.items()
        if getattr(a, name) != getattr(b, name)
    ]
    if unlike:
        yield Caveat("budgets", "note", f"they were given up at different budgets: {'; '.join(unlike)}")
    if a.evaluate_every != b.evaluate_every:
        text = f"they were evaluated every {a.evaluate_every} and every {b.evaluate_every}"
        yield Caveat("evaluations", "note", f"{text}: whoever looks more often sees the target sooner")


def _left_out(sides: Sides) -> Iterator[Caveat]:
    """A clock that leaves out phases is made for those that are alike; work that was moved there is not gone."""
    reached = [[run for run in runs if run.time_to_accuracy_s] for runs in (sides.runs_a, sides.runs_b)]
    if not all(reached):
        return
    out_s = [[sum(run.excluded_s.values()) for run in runs] for runs in reached]
    if changed := _made_up_for(sides, reached, out_s):
        a, b = (f"{math.fsum(each) / len(each):.3g} s" for each in out_s)
        text = f"the clock {sides.runs[0].clock} leaves out {a} of {sides.a.label} and {b} of {sides.b.label}"
        yield Caveat("clock", "doubt", f"{text}; {changed}: see --clock wall")
    if all("after training" in (run.held_out or "") for runs in reached for run in runs):
        yield from _after_the_clock(sides, reached)
    in_place = all(run.environment.get("started") == "in place" for runs in reached for run in runs)
    if in_place and sides.a.specification.framework == sides.b.specification.framework:
        yield from _before_the_clock(sides, reached)


def _after_the_clock(sides: Sides, reached: Sequence[Sequence[RunSummary]]) -> Iterator[Caveat]:
    """What a program does once it has said that it is trained is to be predicting, and might be training."""
    after_s = [[run.wall_s - (run.time_to_accuracy_s or 0.0) for run in runs] for runs in reached]
    a_s, b_s = (math.fsum(each) / len(each) for each in after_s)
    least_s = min(map(min, after_s))
    more_s = [[each - least_s for each in arm] for arm in after_s]
    if abs(a_s - b_s) > _PREDICTING_APART_S and (changed := _made_up_for(sides, reached, more_s, *_OF_PREDICTING)):
        text = f"after their clocks {sides.a.label} went on for {a_s:.2g} s and {sides.b.label} for {b_s:.2g} s"
        do = "say that it is trained when it is, or give the inputs before training (--reveal-inputs before)"
        yield Caveat("clock", "doubt", f"{text}; {changed}: {do}")


def _before_the_clock(sides: Sides, reached: Sequence[Sequence[RunSummary]]) -> Iterator[Caveat]:
    """Work before the clock takes processor time, or time in which the program waits for whoever does it."""
    before_s = []
    for runs in reached:
        cpu_s, wall_s = (
            [_number(_fact(run.environment, "before_clock", name)) for run in runs] for name in ("cpu_s", "wall_s")
        )
        # A first import from a cold disk is no work: one slow start does not count, those of most runs do.
        usual_s = statistics.median(wall_s)
        before_s.append([max(each, usual_s) for each in cpu_s])
    # What all of them spend is what their imports take.
    least_s = min(map(min, before_s))
    more_s = [[each - least_s for each in arm] for arm in before_s]
    a_s, b_s = (math.fsum(each) / len(each) for each in before_s)
    if abs(a_s - b_s) > max(_LEAST_SAVED_S, _APART * min(a_s, b_s)) and (
        changed := _made_up_for(sides, reached, more_s)
    ):
        text = f"before their clocks started {sides.a.label} took {a_s:.2g} s and {sides.b.label} {b_s:.2g} s"
        yield Caveat("clock", "doubt", f"{text}; {changed}: begin to track before anything is trained")


def _made_up_for(
    sides: Sides,
    reached: Sequence[Sequence[RunSummary]],
    out_s: Sequence[Sequence[float]],
    told: float = 0.05,
    remains: float = 0.25,
) -> str:
    """What the ratio is with the times that were left out, where little is left of the difference; else empty.

    A difference of less than ``told`` is none, and what ``remains`` of one is a share of its logarithm.
    """
    if not any(map(any, out_s)):
        return ""
    times_s = [[run.time_to_accuracy_s or 0.0 for run in runs] for runs in reached]
    alone = _log_ratio(*times_s)
    together = _log_ratio(*([t + x for t, x in zip(*each, strict=True)] for each in zip(times_s, out_s, strict=True)))
    if abs(alone) <= told or together * math.copysign(1.0, alone) >= remains * abs(alone):
        return ""
    return f"with that, {sides.b.label} takes {math.exp(together):.3g} times as long instead of {math.exp(alone):.3g}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


_APART = 0.2
"""Imports vary by less than this share of what they take."""
_PREDICTING_APART_S, _OF_PREDICTING = 0.05, (0.02, 0.5)
"""To predict for the same inputs takes as long on both sides but for so many seconds, so that less is told there."""


def _log_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(map(math.log, b)) / len(b) - math.fsum(map(math.log, a)) / len(a)


def _amount(value: float | None) -> str:
    return "no limit of" if value is None else f"{value:g}"


def _pairing(sides: Sides) -> Iterator[Caveat]:
    """Pairing takes the luck of the seed out of a ratio: whether there was any is always said."""
    a, b = ([run.seed for run in runs] for runs in (sides.runs_a, sides.runs_b))
    for group in (sides.a, sides.b):
        if group.repeats:
            text = f"{group.label} has several runs of seed {_ranges(run.seed for run in group.repeats)}"
            yield Caveat("seeds", "note", f"{text}: the earliest of each counts, as the seed is the replicate")
    if set(a) != set(b):
        yield Caveat("pairing", "note", f"not paired by seed: the seeds differ ({_ranges(a)} against {_ranges(b)})")
    elif a != b:
        yield Caveat("pairing", "note", "not paired by seed: a seed has more runs on one side than on the other")


def _looks(sides: Sides) -> Iterator[Caveat]:
    """Runs that were added after a look, or made again until they pleased, by the hand of whoever saw the results."""
    for group, runs in ((sides.a, sides.runs_a), (sides.b, sides.runs_b)):
        for doubt in in_steps(group.label, "runs", runs):
            yield Caveat("looks", "doubt", doubt)
        again = [run.replaced for run in runs if run.replaced]
        if again:
            text = f"{len(again)} of {len(runs)} runs of {group.label} replace earlier ones (--fresh)"
            weight: Weight = "doubt" if max(again) > 1 else "note"
            times = f", one of them {max(again)}" if max(again) > 1 else ""
            yield Caveat("fresh runs", weight, f"{text}{times}: levelbench list runs --all shows what they replaced")


def removed(planned: Iterable[int], seeds: Iterable[int]) -> str:
    """What to say where a command asked for more runs of an arm than there are seeds of it; empty if it did not."""
    most, found = max(planned, default=0), len(set(seeds))
    return f"{most} runs were asked for by one command, and {found} are here" if found < most else ""


def _removed(sides: Sides) -> Iterator[Caveat]:
    """Whoever removes the slow ones of an arm has chosen its runs."""
    for group in (sides.a, sides.b):
        every = [*group.runs, *group.unfinished, *group.repeats]
        # With --until-clear nothing is planned but the most that there may be.
        planned = [run.planned_runs for run in every if not run.planned_effect]
        said = removed(planned, [run.seed for run in every])
        # Looks go on with the next seed, so that there are no gaps in what they have made.
        looked = sorted(run.seed for run in every if run.planned_effect)
        gone = set(range(looked[0], looked[-1])) - {run.seed for run in every} if looked else set()
        if gone and not said:
            said = f"--until-clear made seeds {looked[0]} to {looked[-1]}, and {_ranges(gone)} are not here"
        # A tracked program that is given no seed takes the first that is free, from 0 on.
        picked = [run.seed for run in every if run.environment.get("seed_picked")]
        gone = set(range(max(picked, default=0))) - {run.seed for run in every}
        if gone and not said:
            said = f"its program took seeds 0 to {max(picked)}, and {_ranges(gone)} are not here"
        if said:
            text = f"of {group.label} {said}"
            yield Caveat("missing runs", "doubt", f"{text}: levelbench run makes the others, or makes them again")


def _unfinished(sides: Sides) -> Iterator[Caveat]:
    """Whoever ends the slow ones of an arm has chosen its runs."""
    for group in (sides.a, sides.b):
        made = {run.seed: run.wall_s for run in (*group.repeats, *group.runs)}
        # One that was made again, and had not yet taken as long as that, was no slow one that somebody ended.
        left = [
            run
            for run in group.unfinished
            if run.status == "interrupted" and (run.seed not in made or run.wall_s > made[run.seed])
        ]
        if left:
            text = f"{len(left)} run{'s' * (len(left) > 1)} of {group.label} {'were' if len(left) > 1 else 'was'}"
            yield Caveat("interrupted runs", "doubt", f"{text} interrupted and not counted: levelbench run makes them")


def _ranges(seeds: Iterable[int]) -> str:
    """``0-4, 7`` of 0, 1, 2, 3, 4 and 7."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in parts)


def _doubts(sides: Sides) -> Iterator[Caveat]:
    yield from doubts_of([sides.a, sides.b])


def doubts_of(groups: Sequence[RunGroup]) -> list[Caveat]:
    """Each reason to doubt the runs of ``groups``, once, with how many runs of which group it concerns."""
    suspects = [[run.suspect for run in ended(group)] for group in groups]
    caveats = [
        Caveat("doubts", "doubt", each) for each in told_doubts([each.label for each in groups], suspects, "runs")
    ]
    looks = (_repeated, _carried_over)
    return [*caveats, *(caveat for group in groups for look in looks for caveat in look(group))]


def _repeated(group: RunGroup) -> Iterator[Caveat]:
    """A seed that draws weights and batches makes losses of its own."""
    runs = ended(group)
    seeds: dict[str, set[int]] = {}
    for run in runs:
        if run.losses_digest:
            seeds.setdefault(run.losses_digest, set()).add(run.seed)
    if count := sum(len(each) for each in seeds.values() if len(each) > 1):
        text = f"{count} of {len(runs)} runs of {group.label} have other seeds and the same losses to the last digit"
        yield Caveat("copies", "doubt", f"{text}: the seed changes nothing, or they are copies of one run")
    # Qualities are coarse: some runs may share theirs by chance, and all of them will not.
    elif len(runs) >= _TOO_MANY and len({run.qualities_digest for run in runs}) == 1 and runs[0].qualities_digest:
        text = f"all {len(runs)} runs of {group.label} have the same qualities to the last digit"
        do = "give the program its seed ({seed} in the command, LEVELBENCH_SEED, run.seed)"
        yield Caveat("copies", "doubt", f"{text}, and show one draw of weights and batches: {do}")


_TOO_MANY = 3


def _carried_over(group: RunGroup) -> Iterator[Caveat]:
    """What the first run has left behind on disk, a checkpoint or a cache, the later ones may have begun with."""
    runs = sorted(ended(group), key=lambda run: run.started)
    if len(runs) < _TOO_MANY:
        return
    first, later = runs[0], runs[1:]
    begun = [run.first_quality for run in later if run.first_quality is not None]
    if len(begun) == len(later) and first.first_quality is not None and _began_ahead(first, begun):
        text = f"the first run of {group.label} began at {first.target.metric} {first.first_quality:.3g}, the others"
        do = "look whether they go on from what it left on disk, such as a checkpoint"
        yield Caveat("runs before", "doubt", f"{text} at {min(begun):.3g} to {max(begun):.3g}: {do}")
    for part, seconds in _SET_UP.items():
        took_s, *others_s = (seconds(run) for run in runs)
        saved_s = took_s - max(others_s)
        factor, least_s = 2.0, max(_LEAST_SAVED_S, _SAVED * min(run.wall_s for run in later))
        if part == _TO_FIRST:
            # Programs that stop by themselves vary: the first has to stand out from how the others do.
            factor = _MUCH_LONGER[len(runs) >= _MANY]
            least_s = max(least_s, _APART_FROM * (max(others_s) - min(others_s)))
        if took_s > factor * max(others_s) and saved_s > least_s:
            text = f"the first run of {group.label} took {took_s:.2g} s {part}, the others {max(others_s):.2g} s"
            do = "where they use what it left on disk, such as a cache, clear or fill that before each run"
            yield Caveat("runs before", "doubt", f"{text} at most: {do}")


def _began_ahead(first: RunSummary, begun: Sequence[float]) -> bool:
    """Whether all later runs began better than the first by more than chance and than a little of the way."""
    from levelbench.measure.crossing import sign_of
    from levelbench.measure.statistics import t_quantile

    own, target, count = first.first_quality, first.target, len(begun)
    if own is None or count < _LEAST_LATER or not all(map(math.isfinite, (own, *begun))):
        return False
    sign = sign_of(target.direction)
    gap = min(sign * (each - own) for each in begun)
    way = max(sign * (target.threshold - own), 0.0)
    spread = max(_FAR_OFF, t_quantile(_SURELY, count - 1)) * statistics.stdev(begun)
    if target.low == 0 and target.high is not None:
        # Few runs may agree by chance to the last example, so that chance among the examples is the least.
        share = statistics.fmean(begun) / target.high
        examples = first.dataset.sizes.get(target.split, 0) if first.dataset else 0
        error = math.sqrt(max(share * (1 - share), 0.0) / (examples or _SUPPOSED_EXAMPLES))
        spread = max(spread, _ERRORS * error * target.high)
    return gap > max(_LITTLE * way, spread * math.sqrt(1 + 1 / count), 0.0)


_LEAST_LATER, _SURELY, _FAR_OFF = 3, 0.999, 8.0
"""First qualities may have a long tail, so that many of them still need so many standard deviations."""
_ERRORS, _SUPPOSED_EXAMPLES, _LITTLE = 5, 1000, 0.1
_TO_FIRST = "until its first evaluation"
_SET_UP: dict[str, Callable[[RunSummary], float]] = {
    "to prepare": lambda run: run.phases_s.get("prepare", 0.0),
    "to compile": lambda run: run.phases_s.get("compile", 0.0),
    "for its first step": lambda run: run.first_step_s or 0.0,
    # Levelbench's own runs do nothing before it but these and their training.
    _TO_FIRST: lambda run: run.first_evaluation_s or 0.0 if run.scored_by else 0.0,
}
_MUCH_LONGER, _MANY, _APART_FROM = (2.0, 1.5), 5, 3.0
_LEAST_SAVED_S, _SAVED = 0.5, 0.05


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _short(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(_short(each, 40) for each in values[:_SHOWN]) + more


_CHECKS: tuple[Callable[[Sides], Iterator[Caveat]], ...] = (
    _contradictions,
    _shared_runs,
    _copies,
    _rules,
    _view,
    _data,
    _definition,
    _signatures,
    _arguments,
    _without_effect,
    _machine,
    _started,
    _budgets,
    _left_out,
    _pairing,
    _unfinished,
    _removed,
    _looks,
    _environment,
    _chains,
    _doubts,
)
"""All checks, in the order in which findings of one weight are said."""
