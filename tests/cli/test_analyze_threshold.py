"""``levelbench analyze threshold``: runs and boards at a sweep of targets."""

import csv
import json

import pytest
from tests.cli.conftest import specification, write_run
from tests.report.pages import needs_matplotlib

EARLY = [0.90, 0.930, 0.940, 0.945, 0.950, 0.952, 0.961, 0.962]
LATE = [0.60, 0.70, 0.963, 0.964]


@pytest.fixture
def turning(tmp_path):
    """Torch is slow to 0.93 and fast to 0.96; ten pairs of runs that take turns."""
    folder = tmp_path / "turning"
    for seed in range(10):
        noise = 1 + 0.01 * ((seed * 7) % 5 - 2)
        first, second = (0, 1) if seed % 2 else (1, 0)
        write_run(folder, specification(), seed, f"aaaa000{seed}", EARLY, noise, minute=2 * seed + first)
        write_run(folder, specification("torch"), seed, f"bbbb000{seed}", LATE, noise, minute=2 * seed + second)
    return folder


def test_a_ranking_that_turns_round_is_shown_with_its_verdicts(call, turning):
    code, out, _ = call("analyze", "threshold", "--store", turning, "--targets", "0.9,0.96")
    assert code == 0
    assert "the ranking flips: digits[framework=torch] is FASTER than digits[framework=numpy] at 0.96" in out
    assert "SLOWER at 0.9" in out
    assert "Pairs that change places" in out


def test_the_arm_that_is_named_first_is_the_baseline(call, store):
    for one, other in (("numpy", "torch"), ("torch", "numpy")):
        words = [f"digits[framework={each}]" for each in (one, other)]
        _, out, _ = call("analyze", "threshold", *words, "--store", store, "--targets", "0.91,0.94,0.96")
        assert f"Time against digits[framework={one}]" in out


@pytest.mark.parametrize(("seeds", "joint"), [(2, False), (5, True)])
def test_only_where_verdicts_have_intervals_these_are_said_to_hold_jointly(call, tmp_path, seeds, joint):
    for seed in range(seeds):
        noise = 1 + 0.01 * seed
        write_run(tmp_path / "s", specification(), seed, f"aaaa000{seed}", EARLY, noise, minute=2 * seed)
        write_run(tmp_path / "s", specification("torch"), seed, f"bbbb000{seed}", LATE, noise, minute=2 * seed + 1)
    _, out, _ = call("analyze", "threshold", "--store", tmp_path / "s", "--targets", "0.9,0.96")
    assert "Time against" in out
    assert ("Bonferroni" in out) == joint


def test_arms_of_one_order_show_no_flip(call, store):
    code, out, _ = call("analyze", "threshold", "--store", store, "--targets", "0.91,0.94,0.96")
    assert code == 0
    assert "no flip between digits[framework=torch] and digits[framework=numpy] is shown" in out
    assert "Time against digits[framework=numpy]" in out


def test_crossing_rules_stand_side_by_side(call, store):
    _, out, _ = call("analyze", "threshold", "digits[framework=numpy]", "--store", store, "--json")
    found = json.loads(out)
    first, interpolated, confirmed, sustained = (each["time_s"]["value"] for each in found["crossings"][0])
    assert interpolated < first == sustained < confirmed
    assert found["reference"] == 0.96
    assert 0.96 in found["targets"]


def test_one_arm_has_no_ranking(call, store):
    code, out, _ = call("analyze", "threshold", "digits[framework=numpy]", "--store", store)
    assert code == 0
    assert "How far they get" in out
    assert "The ranking" not in out


def test_runs_of_several_tasks_are_refused_with_their_names(call, store, write):
    write(0, "dddd0000", task="other")
    code, _, err = call("analyze", "threshold", "--store", store)
    assert code == 2
    assert "the runs have 2 scales: digits (validation top1), other (validation top1)" in err


def test_runs_of_several_targets_need_one_to_set_the_rules_side_by_side_at(call, store, write):
    for seed in range(3):
        write(seed, f"dddd000{seed}", threshold=0.95)
    words = ("digits[framework=numpy]", "--store", store)
    code, _, err = call("analyze", "threshold", *words)
    assert code == 2
    assert "0.95, 0.96" in err
    assert "--target" in err
    code, out, _ = call("analyze", "threshold", *words, "--target", "0.95", "--json")
    assert code == 0
    assert [each["label"] for each in json.loads(out)["arms"]] == ["digits[target=0.96]", "digits[target=0.95]"]


def test_targets_that_no_run_reached_have_an_answer_and_exit_4(call, store):
    code, out, _ = call("analyze", "threshold", "--store", store, "--targets", "0.99", "--target", "0.995")
    assert code == 4
    assert "no run reached it" in out
    assert "never: n = 5, at most 43 %" in out


def test_interrupted_runs_are_a_doubt(call, store, write):
    write(8, "cccc0008", status="interrupted")
    _, out, _ = call("analyze", "threshold", "digits[framework=numpy]", "--store", store)
    assert "doubt: 1 run of digits was interrupted and not counted" in out


def test_it_fits_80_columns(call, store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call("analyze", "threshold", "--store", store)
    # Sentences are wrapped on a terminal alone.
    tables = out[: out.index("no flip between")]
    assert max(map(len, tables.splitlines())) <= 80


def test_tables_are_written_every_point_first(call, store, tmp_path):
    words = ("--targets", "0.95,0.96", "--csv", tmp_path / "t.csv", "--markdown", tmp_path / "t.md")
    code, _, _ = call("analyze", "threshold", "--store", store, *words)
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [(each["arm"][-6:-1], each["target"]) for each in rows] == [
        ("numpy", "0.95"), ("numpy", "0.96"), ("torch", "0.95"), ("torch", "0.96"),
    ]  # fmt: skip
    assert (tmp_path / "t-limits.csv").exists()
    assert (tmp_path / "t.md").read_text().startswith("# Thresholds")


@needs_matplotlib
def test_the_time_to_each_target_is_drawn(call, store, tmp_path):
    code, _, _ = call("analyze", "threshold", "--store", store, "--plot", tmp_path / "t.svg")
    assert code == 0
    assert "<svg" in (tmp_path / "t.svg").read_text()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--targets", "high"), "could not convert"),
        (("--targets", ","), "names no target"),
        (("--targets", "0.9,1.5"), "its scale goes from 0 to 1"),
        (("--target", "1.5"), "1.5"),
        (("--task", "digits"), "--task without a board"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, store, words, found):
    code, _, err = call("analyze", "threshold", *words, "--store", store)
    assert code == 2
    assert found in err


@pytest.fixture
def board(call, store, tmp_path):
    """A leaderboard with an entry of each arm of the store."""
    for framework in ("numpy", "torch"):
        words = (f"digits[framework={framework}]", "--author", framework, "--hardware", "two cores", "--store", store)
        code, _, err = call("board", "submit", *words, "-o", tmp_path / "board")
        assert code == 0, err
    return tmp_path / "board"


def test_the_entries_of_a_board_are_arms(call, board):
    code, out, _ = call("analyze", "threshold", board, "--json")
    assert code == 0
    found = json.loads(out)
    assert [each["n"] for each in found["arms"]] == [5, 5]
    (ranking,) = (each["ranking"] for each in found["orders"] if each["target"] == 0.96)
    assert ["numpy" in each for each in ranking] == [True, False]
    assert found["verdicts"] == []


def test_an_entry_can_be_swept_alone(call, board):
    (file,) = board.rglob("*numpy*.json")
    code, out, _ = call("analyze", "threshold", file, "--targets", "0.95,0.96")
    assert code == 0
    assert file.stem[:20] in out


@pytest.mark.parametrize(
    ("words", "found"),
    [(("--task", "cifar10"), "cifar10"), (("--clock", "dawnbench"), "one clock only")],
)
def test_what_a_board_does_not_have_is_refused(call, board, words, found):
    code, _, err = call("analyze", "threshold", board, *words)
    assert code == 2
    assert found in err


def test_a_board_and_runs_are_not_mixed(call, board, store):
    code, _, err = call("analyze", "threshold", board, "digits", "--store", store)
    assert code == 2
    assert "not a board" in err


def test_what_the_gate_finds_is_said_once(call, store, write):
    write(7, "cccc0007", [0.90, 0.92, 0.93, 0.94])
    _, out, _ = call("analyze", "threshold", "--store", store, "--targets", "0.91,0.94,0.96")
    assert out.count("not paired by seed") == 1
    assert "needs runs of its own" in out


def test_arms_of_two_machines_have_times_and_no_verdict(call, write, tmp_path):
    for seed in range(3):
        write(seed, f"aaaa000{seed}", step_ms=1 + 0.01 * seed)
        write(seed, f"bbbb000{seed}", step_ms=1.5 + 0.01 * seed, framework="torch", machine="m2")
    code, out, _ = call("analyze", "threshold", "--store", tmp_path / "store", "--targets", "0.96")
    assert code == 0
    assert "no verdict on digits[framework=torch] against digits[framework=numpy]" in out
    assert "Time against" not in out


def write_on_two_machines(write):
    for seed in range(3):
        write(seed, f"aaaa000{seed}", step_ms=1 + 0.01 * seed)
        write(seed, f"bbbb000{seed}", step_ms=1.5 + 0.01 * seed, machine="m2")


def test_runs_of_two_machines_are_arms_of_their_own(call, write, tmp_path):
    write_on_two_machines(write)
    code, out, _ = call("analyze", "threshold", "--store", tmp_path / "store", "--targets", "0.96", "--json")
    assert code == 0
    arms = [(each["label"], each["n"]) for each in json.loads(out)["arms"]]
    assert arms == [("digits on machine 1 of 2", 3), ("digits on machine 2 of 2", 3)]


def test_seeds_of_two_machines_that_are_taken_together_count_once_with_a_doubt(call, write, tmp_path):
    write_on_two_machines(write)
    words = ("--store", tmp_path / "store", "--targets", "0.96", "--across-machines")
    code, out, _ = call("analyze", "threshold", *words)
    assert code == 0
    assert "doubt: of digits 3 runs are not counted, since another machine ran the same seeds" in " ".join(out.split())


def test_a_run_that_never_moves_gets_no_target_but_its_own(call, write, tmp_path):
    write(0, "aaaa0000", qualities=[0.1] * 5)
    code, out, _ = call("analyze", "threshold", "--store", tmp_path / "store", "--json")
    assert code == 4
    assert json.loads(out)["targets"] == [0.96]
