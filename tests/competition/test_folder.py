"""A whole leaderboard: every file is judged, entries are compared, and no link leads out of the folder."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

import levelbench.competition as package
from levelbench.competition.checks import CODES, warning, worst
from levelbench.competition.entries import encode
from levelbench.competition.leaderboard import (
    RULES,
    SITE_MARKER,
    check_file,
    checked_folder,
    record_digests,
)
from levelbench.competition.rulesets import rulesets
from levelbench.errors import RecordError


def faster(by):
    """Changes that make other runs of them: qualities of their own, times scaled."""
    changes = {}
    for at in range(5):
        changes[f"runs[{at}].record_digest"] = f"{at}{by:.0f}"[:2] * 32
        changes[f"runs[{at}].record_id"] = f"b{at}{by}"
        changes[f"runs[{at}].curve.quality"] = lambda q, by=by: [*(v - 0.001 * by for v in q[:3]), *q[3:]]
        changes[f"runs[{at}].curve.time_s"] = lambda t, by=by: [v + 0.01 * by * i * i for i, v in enumerate(t)]
        changes[f"runs[{at}].time_to_target_s"] = lambda t, by=by: t + 0.01 * by * 16
        changes[f"runs[{at}].phases_s"] = lambda p, by=by: {"forward": sum(p.values()) + 0.25 * by}
    return changes


@pytest.fixture
def board(clean, tmp_path):
    """A leaderboard to put entries into: ``put(name, kind, changes)``."""

    def put(name, kind="training", changes=None, folder=None):
        submission = clean.make(kind, changes or {})
        path = tmp_path / (folder or f"{submission.task}/{submission.mode}") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(submission))
        return path

    put.root = tmp_path
    put.severities = lambda: {
        (each.code, each.severity, each.file if each.file.endswith("/a.json") else Path(each.file).name)
        for each in checked_folder(tmp_path, today=clean.today)[1]
    }
    put.codes = lambda: sorted((each.code, each.file) for each in checked_folder(tmp_path, today=clean.today)[1])
    return put


def test_a_clean_leaderboard_has_no_finding(board, clean):
    board("a.json")
    board("b.json", changes=faster(2))
    board("c.json", "dawnbench")
    board("d.json", "inference")
    (board.root / "README.md").write_text("read me")
    (board.root / "board.toml").write_text("")
    (board.root / ".git").mkdir()
    assert checked_folder(board.root, today=clean.today) == (4, [])


def test_a_broken_file_hides_no_other(board):
    board("a.json", changes={"submitted": "x"})
    (board.root / "digits/training/broken.json").write_bytes(b"{")
    (board.root / "digits/training/list.json").write_bytes(b"[]")
    assert board.codes() == [
        ("B101", "digits/training/broken.json"),
        ("B105", "digits/training/list.json"),
        ("B117", "digits/training/a.json"),
    ]


def test_the_same_entry_twice_is_an_error(board, clean):
    board("a.json")
    board("b.json")
    found = checked_folder(board.root, today=clean.today)[1]
    assert [(each.code, each.severity, each.file) for each in found] == [
        ("B240", "warning", "digits/training/a.json"),
        ("B240", "error", "digits/training/b.json"),
    ]


def test_a_run_belongs_to_one_entry(board):
    board("a.json")
    taken = board("b.json", changes={**faster(2), "runs[3].record_digest": lambda _: None})
    assert board.codes() == [("B178", "digits/training/b.json")]
    digest = sha256(b"record 3").hexdigest()
    board(taken.name, changes={**faster(2), "runs[3].record_digest": digest})
    # The owner is unknown: both get a finding, and neither leaves the board for its file name.
    assert board.severities() == {("B241", "warning", "digits/training/a.json"), ("B241", "warning", taken.name)}


@pytest.mark.parametrize("copy", ["0.json", "z.json"])
@pytest.mark.parametrize("day", ["2026-11-29", "2026-12-01"])
def test_a_copy_never_throws_the_original_off_whatever_its_day(board, copy, day):
    board("a.json")
    earlier = {f"runs[{at}].started": lambda text: text and day + text[10:] for at in range(5)}
    board(copy, changes={**earlier, "author.name": "Eve", "submitted": day, "price.read_on": day})
    found = {each for each in board.severities() if each[0] == "B241"}
    assert found == {("B241", "warning", "digits/training/a.json"), ("B241", "warning", copy)}


def test_of_two_entries_of_one_author_the_earlier_one_keeps_a_run(board):
    board("a.json")
    board("b.json", changes={"submitted": "2026-12-01"})
    found = {each for each in board.severities() if each[0] == "B241"}
    assert found == {("B241", "warning", "digits/training/a.json"), ("B241", "error", "b.json")}


@pytest.mark.parametrize(("factor", "constant"), [(0.5, 0.0), (1.0, -0.9), (0.5, 0.5)])
def test_times_of_another_run_up_to_a_factor_or_a_constant_are_reported_beside_other_qualities(
    board, clean, factor, constant
):
    fine = [1.0123456789, 2.1345678912, 3.0987654321, 4.4321987654, 5.0123987654]

    def run_of(factor, constant, step):
        changes = {}
        for at in range(5):
            curve = f"runs[{at}].curve"
            changes[f"{curve}.time_s"] = lambda t, at=at: [
                constant + factor * (each + 0.01 * at * each**2) for each in fine[: len(t)]
            ]
            changes[f"{curve}.quality"] = lambda q: [*(each - 0.003 * step for each in q[:-2]), *q[-2:]]
        return changes

    board("a.json", changes=run_of(1.0, 0.0, 0))
    board("b.json", changes={**faster(2), **run_of(factor, constant, 1), "author.name": "Eve"})
    found = [each for each in checked_folder(board.root, today=clean.today)[1] if each.code == "B242"]
    assert {(each.file, each.field) for each in found} == {
        (f"digits/training/{name}.json", f"runs[{at}].curve") for at in range(5) for name in "ab"
    }
    assert all("up to a factor" in each.found for each in found)


@pytest.mark.parametrize("part", [slice(1, None), slice(None, -1)], ids=["without the first", "without the last"])
def test_times_of_another_run_up_to_a_factor_are_reported_if_a_point_was_left_out(board, clean, part):
    fine = [0.1, 1.0123456789, 2.1345678912, 3.0987654321, 4.4321987654, 5.0123987654]
    columns = {"epoch": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "samples": [1000 * at for at in range(1, 7)]}

    def run_of(factor, part, qualities):
        changes = {}
        for at in range(5):
            lists = {
                "time_s": [factor * (each + 0.01 * at * each**2) for each in fine],
                "quality": qualities,
                **columns,
            }
            changes |= {f"runs[{at}].curve.{name}": lambda _, each=each: each[part] for name, each in lists.items()}
        return changes

    board("a.json", changes=run_of(1.0, slice(None), [0.5, 0.6, 0.7, 0.8, 0.97, 0.97]))
    copy = run_of(0.7, part, [0.51, 0.61, 0.71, 0.975, 0.975, 0.975])
    board("b.json", changes={**faster(2), **copy, "author.name": "Eve"})
    found = [each for each in checked_folder(board.root, today=clean.today)[1] if each.found.startswith("the times of")]
    assert sorted((each.file, each.field) for each in found if " of digits/" in each.found) == [
        (f"digits/training/{name}.json", f"runs[{at}].curve") for name in "ab" for at in range(5)
    ]


@pytest.mark.parametrize("copy", ["0.json", "z.json"])
@pytest.mark.parametrize("day", ["2026-11-29", "2026-12-01"])
@pytest.mark.parametrize("scale", [0.5, 0.9])
def test_neither_a_name_nor_a_day_says_which_of_two_authors_copied(board, copy, day, scale):
    board("a.json")
    changes = {"author.name": "Eve", "submitted": day, "price.read_on": day}
    for at in range(5):
        changes[f"runs[{at}].curve.time_s"] = lambda t: [scale * each for each in t]
        changes[f"runs[{at}].time_to_target_s"] = lambda t: scale * t
        changes |= {f"runs[{at}].record_digest": f"{at}e" * 32, f"runs[{at}].record_id": f"b{at}"}
        changes[f"runs[{at}].started"] = f"2026-11-29T02:00:0{at}+00:00"
    path = board(copy, changes=changes)
    found = Counter(file for code, file in board.codes() if code == "B242")
    assert found == {"digits/training/a.json": 5, path.relative_to(board.root).as_posix(): 5}


@pytest.mark.parametrize(("scale", "constant"), [(1.0, 0.0), (0.5, 0.0), (1.0, -0.004), (0.8, -0.002)])
def test_latencies_of_another_measurement_up_to_a_factor_or_a_constant_are_reported(board, scale, constant):
    def measured(factor, constant):
        quantiles = {"0.5": 0.01, "0.9": 0.011, "0.99": 0.013, "1": 0.02}
        mean, estimate = (constant + factor * each for each in (0.010123456789, 0.0112))
        return {
            "inference[0].quantiles_s": {name: constant + factor * each for name, each in quantiles.items()},
            **{"inference[0].mean_latency_s": mean, "inference[0].estimate_s": estimate},
            **{"inference[0].queries": int(20 / mean), "inference[0].cost_usd": lambda _: None},
        }

    board("a.json", "inference", measured(1.0, 0.0))
    other = {"inference[0].record_digest": "c" * 64, "inference[0].duration_s": 20.5, "author.name": "Eve"}
    board("b.json", "inference", measured(scale, constant) | other)
    found = [code for code, _ in board.codes() if code == "B243"]
    assert len(found) == 2


@pytest.mark.parametrize("changed", ["0.5", "0.9", "0.99", "0.999", "mean_latency_s"])
@pytest.mark.parametrize("factor", [1.004, None])
def test_latencies_of_which_a_copy_changes_or_leaves_out_one_are_reported(board, changed, factor):
    figures = {"0.5": 0.010019837, "0.9": 0.011034527, "0.99": 0.013249611, "0.999": 0.020151343}

    def measured(mean, quantiles):
        stated = {"mean_latency_s": mean, "quantiles_s": quantiles, "estimate_s": 1.01 * figures["0.9"]}
        stated |= {"queries": 1900, "samples": 1900, "duration_s": 20.0, "cost_usd": None, "throughput_per_s": 95.0}
        return {f"inference[0].{name}": (lambda _, value=value: value) for name, value in stated.items()}

    board("a.json", "inference", measured(0.010123456789, figures))
    copied = {**figures, "mean_latency_s": 0.010123456789}
    copied = {name: 0.8 * each for name, each in copied.items()}
    copied[changed] = copied[changed] * factor if factor else None
    copied = {name: each for name, each in copied.items() if each is not None}
    other = {"inference[0].record_digest": "c" * 64, "author.name": "Eve"}
    board("b.json", "inference", measured(copied.pop("mean_latency_s", None), copied) | other)
    assert [code for code, _ in board.codes() if code == "B243"] == ["B243"] * 2


@pytest.mark.parametrize(("duration_s", "copied"), [(20.00013741, True), (20.0, False)])
def test_a_copy_that_changes_several_latencies_keeps_the_duration_with_another(board, duration_s, copied):
    for name, quantiles in (
        ("a", {"0.5": 0.010019837, "0.9": 0.011034527, "0.99": 0.013249611}),
        ("b", {"0.5": 0.009019111, "0.9": 0.010034777, "0.99": 0.013249611}),
    ):
        stated = {"mean_latency_s": quantiles["0.5"] * 1.01, "estimate_s": 1.01 * quantiles["0.9"], "cost_usd": None}
        stated |= {"quantiles_s": quantiles, "queries": 1900, "samples": 1900, "duration_s": duration_s}
        changes = {f"inference[0].{field}": (lambda _, value=value: value) for field, value in stated.items()}
        changes |= {"inference[0].throughput_per_s": 1900 / duration_s, "author.name": name * 5}
        board(f"{name}.json", "inference", changes | {"inference[0].record_digest": name * 64})
    assert [code for code, _ in board.codes() if code == "B243"] == ["B243"] * (2 * copied)


@pytest.mark.parametrize("tick_s", [1e-6, 1 / 2.4e7])
def test_latencies_of_coarse_clocks_that_agree_but_for_one_are_not(board, tick_s):
    for name, mean, ticks in (("a", 244.0123456789, (240, 250, 263, 400)), ("b", 247.0987654321, (245, 255, 268, 405))):
        quantiles = dict(zip(("0.5", "0.9", "0.99", "0.999"), (each * tick_s for each in ticks), strict=True))
        stated = {"mean_latency_s": mean * tick_s, "quantiles_s": quantiles, "estimate_s": 1.01 * quantiles["0.9"]}
        stated |= {"queries": 80_000, "samples": 80_000, "duration_s": 80_100 * mean * tick_s, "cost_usd": None}
        changes = {f"inference[0].{field}": (lambda _, value=value: value) for field, value in stated.items()}
        changes |= {"inference[0].throughput_per_s": 1 / (mean * tick_s), "author.name": name * 5}
        board(f"{name}.json", "inference", changes | {"inference[0].record_digest": name * 64})
    assert [code for code, _ in board.codes() if code == "B243"] == []


def test_one_run_that_was_made_into_several_by_scaling_its_times_is_reported(board, clean):
    fine = [1.0123456789, 2.1345678912, 3.0987654321, 4.4321987654, 5.0123987654]
    times = {f"runs[{at}].curve.time_s": lambda t, at=at: [(1 + 0.1 * at) * each for each in fine] for at in range(5)}
    board("a.json", changes=times)
    found = [each for each in checked_folder(board.root, today=clean.today)[1] if each.code == "B242"]
    assert [each.field for each in found] == [f"runs[{at}].curve" for at in range(1, 5)]
    assert all("the times of runs[0], up to a factor" in each.found for each in found)


def test_the_same_runs_may_be_submitted_under_two_rulesets(board):
    board("a.json")
    board("b.json", "olympic")
    assert board.codes() == []


@pytest.mark.parametrize("scale", [1.0, 0.8])
def test_a_copied_or_scaled_curve_is_reported(board, clean, scale):
    board("a.json")
    copied = {
        **faster(2),
        "runs[2].curve.quality": lambda q: [*q[:1], q[1], *q[2:]],
        "runs[2].curve.time_s": lambda t: [scale * v for v in t],
        "runs[2].time_to_target_s": lambda t: scale * t,
    }
    board("b.json", changes=copied)
    both = [each for each in checked_folder(board.root, today=clean.today)[1] if each.code == "B242"]
    assert {(each.severity, each.field) for each in both} == {("warning", "runs[2].curve")}
    said = {each.file: each.found for each in both}
    for file, other, factor in (("b", "a", "0.8"), ("a", "b", "1.25")):
        words = said[f"digits/training/{file}.json"]
        assert f"6 of 6 points as in runs[2] of digits/training/{other}.json" in words
        assert (f"with times scaled by {factor}" in words) == (scale != 1)


def test_a_run_that_is_padded_by_a_scaled_copy_of_another_is_reported(board, clean):
    path = board("a.json")
    entry = json.loads(path.read_bytes())
    curve = entry["runs"][0]["curve"]
    entry["runs"][4]["curve"] = {**curve, "time_s": [1.01 * t for t in curve["time_s"]]}
    for name in ("curve_digest", "time_to_target_s"):
        del entry["runs"][4][name]
    entry["runs"][4]["phases_s"] = {"forward": entry["runs"][4]["curve"]["time_s"][-1]}
    path.write_text(json.dumps(entry))
    found = {each.code: each for each in checked_folder(board.root, today=clean.today)[1]}
    assert set(found) == {"B136", "B154", "B242"}
    assert "as in runs[0], with times scaled by 1.01" in found["B242"].found


def of_a_linter(entry, file, known):
    """A finding of a linter that has something to say of every entry."""
    return [warning("LB126", file, "", f"{entry.model} under {len(known)} rulesets", "look")]


def test_what_a_linter_says_of_an_entry_is_reported_with_the_findings_of_the_rules(board, clean):
    path = board("a.json")
    (board.root / "digits/training/broken.json").write_bytes(b"{")
    plain, said = checked_folder(board.root, today=clean.today)[1], []
    for found in (
        checked_folder(board.root, today=clean.today, lint=of_a_linter)[1],
        check_file(path, root=board.root, today=clean.today, lint=of_a_linter),
    ):
        said += [(each.code, each.file, each.found) for each in found if each not in plain]
    entry = clean.make("training", {})
    assert said == [("LB126", "digits/training/a.json", f"{entry.model} under {len(rulesets())} rulesets")] * 2


def test_other_processes_judge_as_this_one_does(board, clean, monkeypatch):
    board("a.json", changes={"submitted": "x"})
    board("b.json", changes=faster(2))
    (board.root / "digits/training/broken.json").write_bytes(b"{")
    alone = checked_folder(board.root, today=clean.today)
    monkeypatch.setattr("levelbench.competition.leaderboard.FEW", 1)
    assert checked_folder(board.root, today=clean.today, processes=2) == alone


def test_names_that_differ_in_capitals_only_are_an_error(board):
    board("a.json")
    board("A.json", changes=faster(2))
    both = [("B115", "digits/training/A.json"), ("B115", "digits/training/a.json")]
    assert sorted(each for each in board.codes() if each[0] == "B115") == both


def test_links_are_reported_and_not_followed(board, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.json").write_bytes(b"{")
    (board.root / "digits").symlink_to(outside)
    (board.root / "a.json").symlink_to(outside / "a.json")
    assert board.codes() == [("B250", "a.json"), ("B250", "digits"), ("B254", ".")]


def test_a_file_outside_of_a_leaderboard_is_a_warning(board):
    path = board("a.json")
    path.with_name("archive.tar.gz").write_bytes(b"")
    assert board.codes() == [("B251", "digits/training/archive.tar.gz")]


def test_a_built_site_in_the_folder_is_not_an_entry(board):
    board("a.json")
    (board.root / "site").mkdir()
    (board.root / "site" / "leaderboard.json").write_text("{}")
    assert board.codes()
    (board.root / "site" / SITE_MARKER).write_text("")
    assert board.codes() == [("B253", "site")]


def test_a_mark_hides_no_entry(board):
    board("a.json", changes={"submitted": "x"})
    (board.root / "digits" / SITE_MARKER).write_text("")
    assert board.codes() == [("B117", "digits/training/a.json"), ("B253", "digits")]


def test_a_leaderboard_without_an_entry_is_a_warning(board, clean):
    (found,) = checked_folder(board.root, today=clean.today)[1]
    assert (found.code, found.severity) == ("B254", "warning")


def test_a_copy_under_the_tasks_other_name_is_reported(board):
    board("a.json", "dawnbench")
    board("b.json", "dawnbench", {"task": "CIFAR10", "author.name": "Eve"}, folder="CIFAR10/training")
    assert {code for code, *_ in board.severities()} == {"B241"}


def test_a_copy_with_digits_changed_that_nobody_measures_is_reported(board):
    board("a.json")
    changes = {}
    for at in range(5):
        changes[f"runs[{at}].curve.quality"] = lambda q: [v + 1e-12 for v in q]
        changes[f"runs[{at}].curve.time_s"] = lambda t: [v + 1e-9 for v in t]
        changes[f"runs[{at}].record_digest"] = f"{at}e" * 32
        changes[f"runs[{at}].record_id"] = f"b{at}"
        changes[f"runs[{at}].started"] = f"2026-11-19T1{at}:00:00+00:00"
    board("b.json", changes={**changes, "author.name": "Eve"})
    assert {each[0] for each in board.severities()} == {"B242"}
    assert len(board.codes()) == 10


OTHER = {"runs[0].record_id": "other", "runs[0].started": "2018-01-02T12:00:00+00:00"}


def test_copies_too_short_for_a_sketch_are_reported(board):
    short = {f"runs[0].curve.{name}": lambda c: c[3:5] for name in ("time_s", "quality", "epoch", "samples")}
    board("a.json", "dawnbench", short)
    board("b.json", "dawnbench", {**short, "runs[0].record_digest": "b" * 64, "author.name": "Eve", **OTHER})
    board("c.json", "inference")
    board("d.json", "inference", {"inference[0].record_digest": "c" * 64, "author.name": "Eve"})
    board("e.json", "inference", {"inference[0].record_digest": "d" * 64, "inference[0].duration_s": 20.5})
    assert Counter(code for code, _ in board.codes()) == {"B242": 2, "B243": 2}


def test_a_name_that_looks_like_another_entrys_author_is_reported(board):
    board("a.json")
    board("b.json", changes={**faster(2), "author.name": "ada  LOVELACE"})
    board("c.json", "dawnbench", {"author.name": "Ada Lovelace II"})
    assert board.codes() == [("B237", "digits/training/b.json")]


def test_a_name_that_is_parted_elsewhere_is_reported(board):
    board("a.json")
    board("b.json", changes={**faster(2), "author.name": "Ada Love-lace"})
    board("c.json", "dawnbench", {"author.name": "Team 1-2"})
    board("d.json", "inference", {"author.name": "Team 12"})
    assert board.codes() == [("B237", "digits/training/b.json")]


def test_a_leaderboard_may_have_rules_of_its_own(board):
    text = files("levelbench.competition.rulesets").joinpath("data/levelbench-1.0.toml").read_text()
    board("a.json", changes={"ruleset": "club-2.0"})
    assert board.codes() == [("B110", "digits/training/a.json")]
    (board.root / "rulesets").mkdir()
    rules = board.root / "rulesets" / "club.toml"
    rules.write_text("id = 3")
    assert [code for code, _ in board.codes()] == ["B110", "B252"]
    for old, new in (("-1.0", "-2.0"), ("levelbench-2", "club-2"), ('"levelbench"', '"club"'), ('"1.0"', '"2.0"')):
        text = text.replace(old, new)
    rules.write_text(text)
    assert board.codes() == []
    (board.root / "rulesets" / "again.toml").write_text(text)
    assert [code for code, _ in board.codes()] == ["B252"]
    (board.root / "rulesets" / "again.toml").unlink()
    rules.rename(board.root / "club.txt")
    rules.symlink_to(board.root / "club.txt")
    assert {code for code, _ in board.codes()} >= {"B110", "B252"}


def test_a_file_by_itself_is_judged_as_in_its_leaderboard(board, clean):
    path = board("a.json", folder="cifar10/training")
    assert [each.code for each in check_file(path, today=clean.today)] == ["B114"]
    loose = board.root / "a.json"
    loose.write_bytes(path.read_bytes())
    assert check_file(loose, today=clean.today) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no such folder"):
        checked_folder(tmp_path / "absent")


def test_digests_of_records_are_of_training_and_of_inference(tmp_path):
    for name in ("digits/a.jsonl", "inference/b.jsonlines", "digits/.hidden.jsonl", "digits/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert sorted(record_digests(tmp_path).values()) == [
        str(tmp_path / "digits/a.jsonl"),
        str(tmp_path / "inference/b.jsonlines"),
    ]


def test_the_gravest_finding_decides(board, clean):
    board("a.json", changes={"author": {"name": "Ada"}})
    assert worst(checked_folder(board.root, today=clean.today)[1]) == "note"
    assert worst([]) is None


def test_every_code_is_used_by_some_rule():
    folder = Path(package.__file__).parent
    said = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert [code for code in CODES if f'"{code}"' not in said] == []
    assert len(set(RULES)) == len(RULES)
