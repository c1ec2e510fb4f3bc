"""Whether two groups of runs did the same work: the task, its rules, its data, and the code that scores it."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from levelbench.measure.crossing import RULES
from levelbench.measure.policies import POLICIES
from levelbench.records.caveats import (
    Caveat,
    Sides,
    canonical,
    distinct_texts,
    fact,
    is_tracked,
    is_watched,
    kind_of,
    listed,
    read_by_few,
    shortened,
    versions_of,
)
from levelbench.records.schema import DatasetFacts, key_of, source_of_text
from levelbench.records.summary import RunSummary

__all__ = ["arguments", "checksums_of_records", "contradictions", "contradictions_of", "data", "data_of", "definition"]
__all__ += ["rules", "settings_read", "settings_without_effect", "signatures", "view"]

_KEY_DIGITS = 64


def contradictions(sides: Sides) -> Iterator[Caveat]:
    """Records that contradict themselves, on either side."""
    yield from contradictions_of(sides.runs)


def contradictions_of(runs: Iterable[RunSummary]) -> Iterator[Caveat]:
    """Records of ``runs`` that contradict themselves."""
    for run in runs:
        if found := run.contradictions:
            yield Caveat("contradictions", "refuse", f"the record of run {run.id} contradicts itself: {found[0]}")


def checksums_of_records(sides: Sides) -> Iterator[Caveat]:
    """Records of the first schema have no checksums; neither have records from which someone removed them."""
    counts = [sum(not run.chained for run in runs) for _, runs in sides.each]
    if not any(counts):
        return
    text = "1 run was" if sum(counts) == 1 else f"{sum(counts)} runs were"
    text += " written without checksums, so edits to them go unnoticed"
    if all(counts):
        yield Caveat("checksums of records", "doubt", f"{text}: run them again")
        return
    which = sides.a if counts[0] else sides.b
    yield Caveat("checksums of records", "no verdict", f"{text}, and all of them are of {which.label}: run them again")


def rules(sides: Sides) -> Iterator[Caveat]:
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
            # A schedule of fixed length can only be judged at its end; its time may be compared with a confirmed one.
            at_end = sides.a if x == "final" else sides.b
            text = f"{at_end.label} is judged at the end of its schedule, the other at a confirmed target"
            yield Caveat(subject, "note", text)
        else:
            yield Caveat(subject, "refuse", f"they differ in {subject}: {x} against {y}")


def view(sides: Sides) -> Iterator[Caveat]:
    """Among many targets and rules some favour one arm, and someone who knows the results can pick one of those."""
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
    return f"{run.target.name(run.scored_by)} {sign} {run.target.threshold:g}"


def data(sides: Sides) -> Iterator[Caveat]:
    """Data that differs, within or between the sides."""
    yield from data_of(sides.runs)


def data_of(runs: Iterable[RunSummary]) -> Iterator[Caveat]:
    """Files, split rule, split sizes, labels and inputs that differ; runs that read no data are left out."""
    runs = list(runs)
    differing = _differing([run.checksums for run in runs if run.checksums])
    if differing:
        yield Caveat("checksums", "refuse", f"they differ in the content of {', '.join(differing)}")
    facts = [run.dataset for run in runs if run.dataset is not None]
    if not facts:
        return
    for subject, what, values in (
        ("dataset", "the name of the data", distinct_texts(each.name for each in facts)),
        ("split rule", "the rule of the split", distinct_texts(each.split_rule for each in facts)),
        ("split sizes", "the sizes of the splits", distinct_texts(map(_sizes, facts))),
    ):
        if len(values) > 1:
            yield Caveat(subject, "refuse", f"they differ in {what}: {' against '.join(map(shortened, values[:2]))}")
    if changed := _differing([each.digests for each in facts if each.digests]):
        yield Caveat("labels", "refuse", f"they differ in the labels of the {', '.join(changed)} split")
    # Older records have a digest of some inputs only, which newer ones keep as well.
    some = _differing([each.inputs for each in facts if each.inputs])
    whole = _differing([each.whole_inputs for each in facts if each.whole_inputs])
    if changed := sorted({*some, *whole}):
        yield Caveat("inputs", "refuse", f"they differ in the inputs of the {', '.join(changed)} split")


def _sizes(facts: DatasetFacts) -> str:
    return ", ".join(f"{size} {name}" for name, size in facts.sizes.items())


def _differing(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """The names under which any two differ."""
    names = sorted({name for each in facts for name in each})
    return [name for name in names if len({each.get(name) for each in facts}) > 1]


def _scores_apart(runs: Iterable[RunSummary]) -> Iterator[float]:
    """The lowest and the highest quality of the same answers to the same examples, where they differ."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.fixed_answers is not None and run.dataset is not None:
            found.setdefault((run.target.metric, run.dataset.digests.get("validation", "")), []).append(
                run.fixed_answers
            )
    for values in found.values():
        if not math.isclose(min(values), max(values), rel_tol=_ALIKE, abs_tol=_ALIKE):
            yield from (min(values), max(values))
            return


_ALIKE = 1e-4
"""Frameworks sum float32 in different orders."""


def definition(sides: Sides) -> Iterator[Caveat]:
    """The code that scores the network and loads the data; the code of the recipes is what is being compared."""
    known = [run for run in sides.runs if run.quality_digest]
    if len({run.quality_digest for run in known}) > 1:
        text = "the sides compute the quality with different code, so their targets may not be the same"
        yield Caveat("task definition", "no verdict", text)
    elif values := [*_scores_apart(sides.runs)]:
        text = f"made-up answers, the same for all runs, score {values[0]:.4g} in some and {values[1]:.4g} in others"
        text += ": the quality is not computed alike, so look for what changes it, such as a recipe"
        yield Caveat("task definition", "no verdict", text)
    if len({run.data_digest for run in known}) > 1:
        yield Caveat("task definition", "doubt", "the sides load the data with different code")
    sources = {run.source_digest for run in sides.runs}
    ways = {run.scored_by for run in sides.runs}
    unknown = "whether both measure the same thing is unknown"
    if len({run.held_out for run in sides.runs}) > 1:
        text = "they were scored on different held-out data, or one after training and the other during it"
        yield Caveat("held-out data", "no verdict", text)
    elif len(ways) > 1:
        text = "the program of one side reports its own quality, and levelbench measured that of the other"
        yield Caveat("quality", "doubt", f"{text}: {unknown}")
    if ways != {None} and {run.clock for run in sides.runs} != {"wall"}:
        text = "a program names its own phases, and time in none of them counts as other"
        yield Caveat("clock", "doubt", f"{text}: only the wall clock includes all of its time")
    if ways == {"program"}:
        yield from _own_qualities(sides, f"and each reports its own quality: {unknown}")
        return
    if len(sources) < 2 or ways == {"held-out"}:
        return
    alone = [*_read_by_one_side(sides)]
    yield from alone
    if around := _changed_around_recipes(sides):
        text = f"the code around the recipes differs too ({around}), so what scores or feeds the runs may differ"
        yield Caveat("source", "doubt", f"{text}: repeat the runs of both sides with one version of it")
    elif len(known) < len(sides.runs):
        text = "the task files differ, and the older records do not say whether in more than the recipe"
        yield Caveat("source", "doubt", text)
    elif not alone and sides.a.specification.recipe == sides.b.specification.recipe:
        yield Caveat("source", "note", f"the file of recipe {sides.a.specification.recipe} differs between the sides")


def _own_qualities(sides: Sides, but: str) -> Iterator[Caveat]:
    """Programs that report their own qualities: two that differ, or one with options that may change what it scores."""
    one, other = (str(runs[0].settings.get("command", "")) for _, runs in sides.each)
    (program, mine), (its, others) = map(_program_and_options, (one, other))
    differing = [name for name in {**mine, **others} if mine.get(name) != others.get(name)]
    scoring = [name for name in differing if _may_change_scores(name)]
    differ = len({run.source_digest for run in sides.runs}) > 1
    # Of a program that is no file, such as make, the command alone is known.
    by_name = all(run.source_digest in map(_digest_of, (one, other)) for run in sides.runs)
    if differ and not (by_name and program == its):
        yield Caveat("quality", "doubt", f"the programs differ, {but}")
    elif scoring:
        values = listed([_against(name, mine, others) for name in scoring])
        text = f"each reports its own quality, under different options ({values})"
        yield Caveat("quality", "note", f"{text}, which by their names may change what is scored")
    elif differ and differing:
        values = listed([_against(name, mine, others) for name in differing])
        text = f"each reports its own quality, and their commands differ in {values} alone"
        yield Caveat("quality", "note", f"{text}: targets are the same unless that changes what is scored")


def _digest_of(command: str) -> str:
    return source_of_text("", command).digest


def _against(name: str, mine: Mapping[str, str], others: Mapping[str, str]) -> str:
    values = " against ".join(each.get(name, "nothing") or "set" for each in (mine, others))
    return f"{name} {values}"


_SETTING = re.compile(r"([-+]*\w[\w.-]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z]")


def _program_and_options(command: str) -> tuple[list[str], dict[str, str]]:
    """The words of a command that say what it starts, and its options and settings with their values."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    program, options, last = list[str](), dict[str, str](), ""
    for word in words:
        if setting := _SETTING.fullmatch(word):
            options[setting[1]], last = setting[2], ""
        elif _OPTION.match(word) and word not in ("-c", "-m"):
            options[word], last = "", word
        elif last and (last.startswith("--") or re.match(r"[-+.]?\d", word)):
            options[last], last = word, ""
        else:
            # What follows a short option may be no value of it, as in make -k test.
            program.append(word)
            last = ""
    return program, options


_SCORING = {"data", "dataset", "dev", "eval", "evaluation", "fold", "folds", "heldout", "holdout", "metric", "metrics"}
_SCORING |= {"scorer", "split", "test", "val", "valid", "validation"}
_WHEN_OR_HOW_FAST = {"batchsize", "bs", "cache", "delay", "every", "freq", "frequency", "interval", "period"}
_WHEN_OR_HOW_FAST |= {"strategy", "threads", "verbose", "workers"}


def _may_change_scores(option: str) -> bool:
    """Whether it is by its name about what is scored, and not about when or how fast."""
    parts = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", option).lower())
    fast = _WHEN_OR_HOW_FAST.intersection(parts) or re.search(r"batch[ _-]?size", " ".join(parts))
    return bool(_SCORING.intersection(parts)) and not fast


def _changed_around_recipes(sides: Sides) -> str:
    """Where runs of one recipe or file differ outside of recipes; for other runs, the modules that both import."""
    one = sides.runs[0]
    same_file = all(run.source_name == one.source_name for run in sides.runs)
    same = sides.a.specification.recipe == sides.b.specification.recipe or (same_file and bool(one.source_name))
    found = ["the task's file"] if same and len({run.around_digest for run in sides.runs}) > 1 else []
    # Which settings it read is in the record of a run that has finished.
    runs = [run for run in sides.runs if run.status == "done"] or sides.runs
    shared = {name for name in runs[0].modules if all(name in run.modules for run in runs)}
    alone = {name for names in _read_alone(sides) for name in names}
    changed = [each for each in _differing([run.modules for run in runs]) if each not in alone]
    return listed([*found, *(name for name in changed if same or name in shared)])


def _read_by_one_side(sides: Sides) -> Iterator[Caveat]:
    """Settings that the recipe of one side reads, and that of the other does not, belong to what is compared."""
    for group, names in zip((sides.a, sides.b), _read_alone(sides), strict=True):
        if names:
            text = f"only {group.label} uses {listed(names)}: what it sets is part of the difference that was measured"
            yield Caveat("source", "note", text)


def _read_alone(sides: Sides) -> tuple[list[str], list[str]]:
    """For each side the files and variables that all of its finished runs read alike, and none of the other."""
    one, other = ([run for run in runs if run.status == "done"] for _, runs in sides.each)
    if not one or not other:
        return [], []
    a, b = sides.a.specification.framework, sides.b.specification.framework
    return _only_in(one, other, b), _only_in(other, one, a)


def _only_in(own: Sequence[RunSummary], others: Sequence[RunSummary], framework: str) -> list[str]:
    strange = {framework, *(name for run in others for name in run.modules)}
    alike = [name for name in own[0].settings_read if len({run.modules.get(name) for run in own}) == 1]
    return [name for name in alike if name not in strange]


def settings_without_effect(sides: Sides) -> Iterator[Caveat]:
    """If a recipe does not use the setting that differs, a comparison compares something with itself."""
    a, b = sides.a.specification, sides.b.specification
    differing = [name for name in {**a.settings, **b.settings} if a.settings.get(name) != b.settings.get(name)]
    own, other = ({run.seed: run.losses_digest for run in runs} for _, runs in sides.each)
    shared = [own[seed] for seed in own if seed in other and own[seed] == other[seed]]
    if differing and own and len(shared) == len(own) == len(other) and all(shared):
        text = "for every seed both sides have the same losses to the last digit"
        yield Caveat("settings", "note", f"{text}: {listed(differing)} does not change what is learned")


def data_files(sides: Sides) -> Iterator[Caveat]:
    """Data files that programs read by themselves, of which no task knows; equal ones may have different names."""
    read, few_runs = [], False
    for group, runs in sides.each:
        known = [run.data_read for run in runs if run.status == "done"]
        watched = all(map(is_watched, runs))
        few_runs = few_runs or (watched and len(known) < _MANY_RUNS)
        if few := read_by_few(known) if watched else set():
            text = f"some of the {len(known)} runs of {group.label} read {listed(sorted(few))}"
            yield Caveat("data files", "note", f"{text}, unless another program did")
        read.append({digest: name for each in known for name, digest in each.items() if name not in few})
    one, other = read
    alone = [[mine[each] for each in mine.keys() - theirs] for mine, theirs in ((one, other), (other, one))]
    if not (one and other and any(alone)):
        return
    # Shards of one set, or images of one folder: a side that is at its target sooner reads fewer of them.
    kinds = Counter(kind_of(PurePath(one[each]).name) for each in one.keys() & other.keys())
    both = {*alone[0]} & {*alone[1]}
    more = [each for side in alone for each in side if kinds[kind_of(PurePath(each).name)] < _SHARDS or each in both]
    words = " against ".join(listed(sorted(each)) if each else "nothing more" for each in alone)
    scored = {run.scored_by for run in sides.runs} == {"held-out"}
    if more:
        unknown = "whether both learn from" + (" the same" if scored else " and are scored on the same") + " is unknown"
    else:
        unknown = "they have others of these kinds in common, and one may have needed fewer"
    words += ", unless another program read them" if few_runs else ""
    text = f"they read different data files ({words}): {unknown}"
    yield Caveat("data files", "note" if scored or not more else "doubt", text)


_MANY_RUNS = 3

_SHARDS = 3
"""So many files of one kind that both sides read are one set."""


def settings_read(sides: Sides) -> Iterator[Caveat]:
    """Files of settings and environment variables that tracked programs read, and that the sides do not share."""
    read: list[dict[str, set[str]]] = []
    for _, runs in sides.each:
        found: dict[str, set[str]] = {}
        for name, digest in (item for run in runs if is_tracked(run) for item in run.files_read.items()):
            found.setdefault(name, set()).add(digest)
        read.append(found)
    one, other = read
    if differing := sorted(name for name in one.keys() & other.keys() if one[name].isdisjoint(other[name])):
        yield Caveat("settings read", "note", f"their programs read {versions_of(differing)}")


def arguments(sides: Sides) -> Iterator[Caveat]:
    """Arguments of programs that track their runs, apart from those that are settings."""
    for group, runs in sides.each:
        given = distinct_texts(map(" ".join, _unrecorded_arguments(runs)))
        if len(given) > 1:
            text = f"runs of {group.label} had different arguments"
            words = " against ".join(each or "none" for each in given[:2])
            yield Caveat("arguments", "doubt", f"{text}: {words}: pass what they set to track(settings=)")
    one, other = ({word for words in _unrecorded_arguments(runs) for word in words} for _, runs in sides.each)
    if one != other:
        words = " against ".join(" ".join(sorted(each)) or "none" for each in (one - other, other - one))
        yield Caveat("arguments", "note", f"their programs had different arguments: {words}")


def _unrecorded_arguments(runs: Sequence[RunSummary]) -> list[list[str]]:
    """The arguments of each run, except paths and those that are a setting or the seed."""
    every = [_options(run) for run in runs]
    seeds = [str(run.seed) for run in runs]
    found = []
    for run, options in zip(runs, every, strict=True):
        recorded = {canonical(str(value)) for value in run.settings.values()}
        kept = []
        for at, (name, value) in enumerate(options):
            # A single run may have the number of its seed as another argument: the seed's follows those of all runs.
            follows = [own[at][1] if at < len(own) else "" for own in every] == seeds and len(set(seeds)) > 1
            if not (follows or value in recorded or _is_place(value) or "seed" in name.lower()):
                kept.append(name if name == value else f"{name} {value}")
        found.append(kept)
    return found


def _is_place(value: str) -> bool:
    """Whether it says where something lies, and not which settings are read."""
    return "/" in value and not value.endswith((".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".json"))


def _options(run: RunSummary) -> list[tuple[str, str]]:
    """Each argument of the run's program after the option that it belongs to; if to none, twice."""
    text = str(run.environment.get("arguments") or "").replace("=", " ")
    words = [each.split() for each in re.findall(r"-\S*(?:\s+(?!-\D)\S+)?|\S+", text)]
    return [(each[0] if len(each) > 1 else canonical(each[0]), canonical(each[-1])) for each in words]


def signatures(sides: Sides) -> Iterator[Caveat]:
    """Options and versions that affect a score, for qualities that have any."""
    found = [fact(run.environment, "signatures") for run in sides.runs if run.status == "done"]
    signed = [each for each in found if isinstance(each, Mapping)]
    if changed := _differing([{name: str(text) for name, text in each.items()} for each in signed]):
        text = f"the figures of {', '.join(changed)} were computed with different options"
        yield Caveat("quality", "no verdict", text)
