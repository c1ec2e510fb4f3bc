"""A tree of MLPerf inference results, read into submissions: one for each benchmark on each system.

The one idea: ``<org>/results/<system>/<benchmark>/<scenario>/{performance/run_1,accuracy}`` names what a summary does
not say; a folder outside of such a tree is one submission whose task has to be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from levelbench.errors import LevelbenchError, RecordError
from levelbench.records.exchange.loadgen.answers import parse_accuracy, parse_answers
from levelbench.records.exchange.loadgen.detail import Detail, parse_detail
from levelbench.records.exchange.loadgen.inference import inference_of
from levelbench.records.exchange.loadgen.summary import SUMMARY_LIMIT, parse_summary
from levelbench.records.exchange.mlperf.results import system_of
from levelbench.records.exchange.mlperf.sources import Tree, read_tree
from levelbench.records.exchange.mlperf.systems import hardware_of, text_of
from levelbench.records.rulesets.registry import ruleset as rules_of
from levelbench.records.rulesets.registry import task_rules
from levelbench.records.schema import Target
from levelbench.records.submissions.schema import SUBMISSION_SCHEMA, Author, Hardware, Inference, Origin, Submission

__all__ = ["Stated", "read_results"]

_SUMMARY, _DETAIL, _ANSWERS = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"
_FILES = re.compile(r"mlperf_log_(summary|detail)\.txt|mlperf_log_accuracy\.json|accuracy\.txt")
_NOT_STATED = "not stated"
_RULESET = "levelbench-1.0"


class Stated(NamedTuple):
    """What logs outside of a results tree do not say; ``None``: as the tree says."""

    task: str | None = None
    author: str | None = None
    model: str | None = None
    hardware: str | None = None
    framework: str | None = None


def read_results(
    path: str | Path, *, ruleset: str | None = None, **stated: str | None
) -> tuple[list[Submission], list[str]]:
    """The submissions below ``path`` (a folder, or a tar archive of one), and the problems: what could not be read.

    ``stated`` are the fields of :class:`Stated`, for logs outside of a results tree, which say none. The target is that
    of ``ruleset`` (levelbench-1.0) for the task; without one there is none, and that is a doubt. Audit runs
    (``TEST01``, ...) are not
    read. Raises ``RecordError`` where there is no such path, or no summary of a performance run below it.
    """
    path = Path(path)
    asked = f"reading the LoadGen results in {path}"
    tree = read_tree(path if path.is_dir() or path.suffix != ".txt" else path.parent, _FILES, asked)
    folders = [name.parent for name in tree if name.name == _SUMMARY and not _is_audit(name) and not _is_accuracy(name)]
    if not folders:
        raise RecordError(asked, f"there is no {_SUMMARY} in it", "give a folder that LoadGen wrote to")
    problems: list[str] = []
    groups: dict[PurePosixPath, list[tuple[Inference, list[str], Detail | None]]] = {}
    for folder in folders:
        try:
            groups.setdefault(_entry_of(folder), []).append(_read_run(tree, folder))
        except LevelbenchError as error:
            problems.append(str(error))
    said, named = Stated(**stated), path.resolve().name
    return [
        _submission(tree, at, runs, said, ruleset or _RULESET, named) for at, runs in groups.items() if runs
    ], problems


def _is_audit(name: PurePosixPath) -> bool:
    return any(re.fullmatch(r"TEST\d\d", part) for part in name.parts)


def _is_accuracy(name: PurePosixPath) -> bool:
    return name.parent.name == "accuracy"


def _entry_of(folder: PurePosixPath) -> PurePosixPath:
    """The folder of the benchmark in a results tree; the folder itself outside of one."""
    if "results" in folder.parts:
        at = len(folder.parts) - folder.parts[::-1].index("results")
        if len(folder.parts) >= at + 3:
            return PurePosixPath(*folder.parts[: at + 2])
    return folder


def _read_run(tree: Tree, folder: PurePosixPath) -> tuple[Inference, list[str], Detail | None]:
    content = tree[folder / _SUMMARY]
    asked = f"reading {folder / _SUMMARY}"
    if len(content) > SUMMARY_LIMIT:
        raise RecordError(asked, f"it is larger than {SUMMARY_LIMIT} bytes", "give a summary of LoadGen's")
    detail = tree.get(folder / _DETAIL)
    read = None if detail is None else parse_detail(detail, f"reading {folder / _DETAIL}")
    found, doubts = inference_of(parse_summary(content, asked), read, asked)
    scenario = folder.parent.parent if folder.parent.name == "performance" else folder
    quality, samples, said = _quality(tree, scenario / "accuracy")
    if quality is not None:
        found = msgspec.structs.replace(found, quality=quality, quality_samples=samples)
    return found, [f"{found.scenario}: {each}" for each in (*doubts, *said)], read


def _quality(tree: Tree, folder: PurePosixPath) -> tuple[float | None, int | None, list[str]]:
    """The share of right answers that the submitter's script printed, of how many samples, and what is doubtful."""
    said = parse_accuracy(tree[folder / "accuracy.txt"]) if folder / "accuracy.txt" in tree else None
    if said is None:
        return None, None, ["no accuracy is stated that can be read"]
    doubts = []
    if folder / _ANSWERS in tree:
        answers = parse_answers(tree[folder / _ANSWERS], f"reading {folder / _ANSWERS}")
        distinct = len({answer.qsl_idx for answer in answers})
        if distinct != len(answers) or distinct != said[1]:
            doubts.append(f"{len(answers)} answers of {distinct} samples are logged, and accuracy.txt counts {said[1]}")
    return said[0], said[1], [*doubts, "accuracy is of a run of its own, not of the one that was timed"]


def _submission(
    tree: Tree,
    at: PurePosixPath,
    runs: Sequence[tuple[Inference, list[str], Detail | None]],
    stated: Stated,
    ruleset: str,
    named: str,
) -> Submission:
    inside = at.parts[-2:-1] != () and "results" in at.parts[:-2]
    system, doubt = system_of(tree, at)
    name = stated.task or (at.name if inside else None) or _NOT_STATED
    organisation = stated.author or text_of(system.get("submitter")) or _organisation(at) or _NOT_STATED
    rules = task_rules(rules_of(ruleset), name)
    doubts = [each for _, said, _ in runs for each in said] + ([doubt] if doubt else [])
    if rules is None:
        doubts.append(f"{ruleset} has no task {name!r}: its target is not known, and 0 stands in its place")
    details = [each for _, _, each in runs if each is not None]
    days = sorted(each.day for each in details if each.day is not None)
    versions = {each.version for each in details if each.version is not None}
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=ruleset,
        task=name,
        mode="inference",
        author=Author(name=organisation, organisation=organisation),
        submitted=days[-1] if days else _NOT_STATED,
        model=stated.model or (at.name if inside else name),
        framework=stated.framework or text_of(system.get("framework")) or _NOT_STATED,
        hardware=_hardware(system, stated.hardware, at.parent.name if inside else _NOT_STATED),
        target=rules.target if rules is not None else Target("accuracy", 0.0),
        division="closed" if system.get("division") == "closed" else "open",
        inference=[found for found, _, _ in runs],
        origin=Origin(
            format="loadgen",
            file=str(at) if str(at) != "." else named,
            doubts=[each[:4000] for each in doubts],
            fields={"loadgen_version": ", ".join(sorted(versions)) or None},
        ),
    )


def _hardware(system: Mapping[str, Any], stated: str | None, otherwise: str) -> Hardware:
    found = hardware_of(system, otherwise)
    return found if stated is None else msgspec.structs.replace(found, description=stated)


def _organisation(at: PurePosixPath) -> str | None:
    """The folder above ``results``."""
    before = at.parts[: len(at.parts) - 1 - at.parts[::-1].index("results")] if "results" in at.parts else ()
    return before[-1] if before else None
