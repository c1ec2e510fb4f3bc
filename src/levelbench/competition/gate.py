"""Puts the entries of a board before the gate of every comparison, ``levelbench.records.comparable``.

A ranking compares every entry with every other, so what would speak against a comparison of two runs is said of an
entry that differs from most of its board. Entries carry what the gate asks about the data (checksums, split, labels),
the code of the task and the options of a quality; target, clock and crossing are the ruleset's, and machines, threads
and versions are what is ranked. What most entries say decides nothing about who is right, so nothing here keeps an
entry off its board: it is told, and shown beside the rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from levelbench.competition.checks.findings import CODES, EntryFinding, note, warning
from levelbench.competition.entries import Submission
from levelbench.records import RunGroup, RunSummary, comparable
from levelbench.records.schema import DatasetFacts, Target

_SIGNATURES = "signatures."
_SUBJECTS = frozenset(
    {"checksums", "dataset", "split rule", "split sizes", "labels", "task definition", "source", "quality"}
)
"""What the gate looks at that entries of one board have in common."""
_CODE_OF = {"refuse": "B260", "no verdict": "B260", "doubt": "B261", "note": "B262"}
_BESIDE_RANK = frozenset({"B155", "B241", "B242", "B243", "B244", "B260", "B261"})


class BoardFacts(Struct, frozen=True, array_like=True, gc=False):
    """What an entry says of what is the same for all entries of a board; empty where it says nothing."""

    recipe: str = ""
    dataset: str = ""
    split_rule: str = ""
    sizes: dict[str, int] = {}
    labels: dict[str, str] = {}
    checksums: dict[str, str] = {}
    quality_digest: str = ""
    data_digest: str = ""
    source_digest: str = ""
    signatures: dict[str, str] = {}


def board_facts(submission: Submission) -> BoardFacts:
    """The facts of any submission."""
    stated = submission.provenance
    return BoardFacts(
        recipe=str(submission.settings.get("recipe", "")),
        dataset=stated.dataset or "",
        split_rule=stated.split_rule or "",
        sizes=stated.split_sizes,
        labels=stated.labels,
        checksums=stated.checksums,
        quality_digest=stated.quality_digest or "",
        data_digest=stated.data_digest or "",
        source_digest=stated.source_digest or "",
        signatures={
            name.removeprefix(_SIGNATURES): text
            for name, text in stated.environment.items()
            if name.startswith(_SIGNATURES)
        },
    )


def compared_with_board(entries: Iterable[tuple[str, tuple[str, ...], BoardFacts]]) -> Iterator[EntryFinding]:
    """What the gate finds between each entry (its file, board and facts) and what most entries of its board say."""
    boards: dict[tuple[str, ...], dict[bytes, tuple[BoardFacts, list[str]]]] = {}
    for file, board, facts in entries:
        # Most entries of a board say the same: each kind is compared once.
        kinds = boards.setdefault(board, {})
        kinds.setdefault(msgspec.msgpack.encode(facts, order="deterministic"), (facts, []))[1].append(file)
    for board, kinds in boards.items():
        if len(kinds) < 2:
            continue
        usual = _usual([(facts, len(files)) for facts, files in kinds.values()])
        for facts, files in kinds.values():
            for caveat in _caveats(board, usual, facts):
                for file in files:
                    yield _finding(caveat.weight, file, caveat.sentence)


def _usual(kinds: Sequence[tuple[BoardFacts, int]]) -> dict[str, Any]:
    """Of each fact what most entries say that say anything; of as many what comes first."""
    found: dict[str, Any] = {}
    for name in BoardFacts.__struct_fields__:
        counts: Counter[bytes] = Counter()
        for facts, count in kinds:
            if value := getattr(facts, name):
                counts[msgspec.msgpack.encode(value, order="deterministic")] += count
        if counts:
            found[name] = msgspec.msgpack.decode(counts.most_common(1)[0][0])
    return found


def _caveats(board: tuple[str, ...], usual: Mapping[str, Any], facts: BoardFacts) -> Iterator[Any]:
    # What the entry does not say is not compared.
    stated = {name: value for name, value in usual.items() if getattr(facts, name)}
    reference = BoardFacts(**{**stated, "recipe": facts.recipe})
    if reference == facts:
        return
    gate = comparable(_group("most entries", board[1], reference), _group("the entry", board[1], facts))
    yield from (each for each in gate.caveats if each.subject in _SUBJECTS)


def _finding(weight: str, file: str, sentence: str) -> EntryFinding:
    code = _CODE_OF[weight]
    say = note if code == "B262" else warning
    found = f"it and most entries of its board: {sentence}"
    return say(code, file, "provenance", found, "see which of them ran the task as it is meant")


def _group(label: str, task: str, facts: BoardFacts) -> RunGroup:
    """The facts as the gate takes them: a group of one run that came to its end."""
    known = facts.dataset or facts.split_rule or facts.sizes or facts.labels
    run = RunSummary(
        id=label,
        key="",
        task=task,
        recipe=facts.recipe,
        framework="",
        device="",
        settings={},
        seed=0,
        status="done",
        reached=True,
        target=Target("", 0.0),
        crossing="",
        clock="",
        time_to_accuracy_s=None,
        given_up_s=None,
        excluded_s={},
        epochs_to_target=None,
        samples_to_target=None,
        steps_to_target=None,
        time_per_step_s=None,
        phases_s={},
        quality={},
        peak_memory_bytes=None,
        energy_j=None,
        energy_method=None,
        energy_reason=None,
        environment={"signatures": facts.signatures} if facts.signatures else {},
        started="",
        wall_s=0.0,
        error=None,
        suspect=[],
        path="",
        synthetic=False,
        checksums=facts.checksums,
        dataset=DatasetFacts(facts.dataset, facts.sizes, {}, facts.split_rule, "", digests=facts.labels)
        if known
        else None,
        quality_digest=facts.quality_digest,
        data_digest=facts.data_digest,
        source_digest=facts.source_digest,
    )
    return RunGroup(label, "", run.specification, (run,))


def doubts_beside_rank(findings: Iterable[EntryFinding]) -> list[str]:
    """What is shown beside an entry's rank: the doubts that the gate, its own runs or other entries cast on it."""
    told = {f"{CODES[each.code]}: {each.found}": None for each in findings if each.code in _BESIDE_RANK}
    return list(told)
