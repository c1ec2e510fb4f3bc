"""list, show, compare and report on a store of known records: what is printed, and the exit code."""

import csv
import gc
import json
import re
import shutil
import subprocess
import sys
import weakref

import pytest
from msgspec import structs
from tests.cli.conftest import REACHES, specification, write_run
from tests.records.stores import edit

from levelbench.analysis.comparison import compare_all
from levelbench.cli.options import present
from levelbench.cli.run_verb import answer_lines, remark_lines, short_forms
from levelbench.records import group_runs
from levelbench.records import store as store_module
from levelbench.report.runs import groups_table
from levelbench.report.tables import Absent, Column, Table

pytestmark = pytest.mark.usefixtures("undrawn")


def test_help_names_every_verb_and_the_exit_codes(call, golden, width):
    code, out, _ = call("--help")
    assert code == 0
    golden(f"help_{width}", out)


def test_show_prints_a_runs_facts_phases_and_curve(call, store, golden, width):
    code, out, _ = call("show", "aaaa0001", "--store", store)
    assert code == 0
    golden(f"show_{width}", out, replace=[(str(store), "STORE"), (r"/[0-9a-f]{8}-s1-", "/KEY-s1-")])


def test_show_without_an_argument_shows_the_latest(call, store):
    assert "bbbb0004" in call("show", "--store", store)[1]


def test_show_under_another_clock_says_what_it_leaves_out(call, store):
    out = call("show", "aaaa0001", "--clock", "dawnbench", "--store", store)[1]
    assert "left out: evaluate" in out


def test_show_under_another_target_reads_the_same_record_anew(call, store):
    assert "missed after" in call("show", "aaaa0001", "--target", "0.99", "--store", store)[1]


def test_show_as_json_holds_the_promised_keys(call, store):
    (run,) = json.loads(call("show", "aaaa0001", "--json", "--store", store)[1])
    promised = (
        "id task recipe framework seed status reached time_to_accuracy_s epochs_to_target samples_to_target "
        "time_per_step_s phases_s quality peak_memory_bytes energy_j environment"
    )
    assert set(promised.split()) <= set(run)
    assert set(run["quality"]) == {"validation", "test"}
    assert run["samples_to_target"] == 640 * 4


def test_a_run_that_contradicts_itself_is_refused_by_show_lint_and_board_submit(call, store):
    path = next(store.rglob("*aaaa0001.jsonl"))
    edit(path, '"step":10,', '"step":11,')
    board = ("--author", "A", "--email", "a@b.org", "--code-url", "https://b.org/a", "-o", store.parent / "board")
    for words in (("show", "aaaa0001"), ("board", "submit", "digits[framework=numpy]", *board)):
        code, _, err = call(*words, "--store", store)
        assert code == 2
        assert "aaaa0001" in err
        assert "contradicts itself" in err
    assert "contradicts itself" in call("lint", f"{path}", "--store", store)[2]


def test_compare_does_not_leave_a_damaged_record_out_without_a_word(call, store):
    path = next(store.rglob("*aaaa0001.jsonl"))
    path.write_bytes(path.read_bytes().replace(b'"step":10,', b'"step":11,'))
    code, _, err = call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)
    assert code == 2
    assert "line 3 is damaged" in err


def test_list_runs_prints_the_newest_first(call, store, golden, width):
    code, out, _ = call("list", "runs", "--store", store, "--limit", "4")
    assert code == 0
    golden(f"list_runs_{width}", out)


def test_list_runs_shows_of_the_settings_those_in_which_runs_differ(call, store, write):
    assert "settings" not in call("list", "runs", "--store", store)[1]
    write(0, "cccc0000", threshold=0.9)
    out = call("list", "runs", "--store", store)[1]
    assert [line.split()[5] for line in out.splitlines() if line.startswith("cccc0000") and "numpy" in line] == [
        "target=0.9"
    ]
    assert "lr=" not in out


def test_list_runs_sorts_and_filters(call, store):
    rows = json.loads(
        call("list", "runs", "digits[framework=torch]", "--sort", "time_to_accuracy_s", "--json", "--store", store)[1]
    )
    times = [row["time_to_accuracy_s"] for row in rows]
    assert len(times) == 5
    assert times == sorted(times)


def test_list_runs_of_an_empty_store_says_how_to_make_some(call, tmp_path):
    code, out, _ = call("list", "runs", "--store", tmp_path / "none")
    assert code == 0
    assert "try levelbench run digits" in out


def test_list_says_of_each_item_what_it_lacks(call):
    found = json.loads(call("list", "--json")[1])
    assert {row["framework"] for row in found["frameworks"]} >= {"numpy", "torch"}
    assert next(row for row in found["frameworks"] if row["framework"] == "numpy")["lacks"] is None
    assert {row["task"] for row in found["tasks"]} >= {"digits", "fashion-mnist"}


def test_list_says_which_package_the_metric_of_a_task_lacks(call, monkeypatch):
    monkeypatch.setattr("levelbench.training.precision.find_spec", lambda name: None)
    monkeypatch.setattr("levelbench.training.datasets.scenes.Scenes.lacks", lambda *_: None)
    rows = {row["task"]: row for row in json.loads(call("list", "tasks", "--json")[1])["tasks"]}
    assert 'pip install "levelbench[detection]"' in rows["detection"]["lacks"]


def test_list_frameworks_says_how_to_get_one_that_is_missing(call, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else find(name, *a))
    rows = {row["framework"]: row for row in json.loads(call("list", "frameworks", "--json")[1])["frameworks"]}
    assert 'pip install "levelbench[torch]"' in rows["torch"]["lacks"]
    runnable = json.loads(call("list", "frameworks", "--runnable", "--json")[1])["frameworks"]
    assert "torch" not in {row["framework"] for row in runnable}


def test_compare_ends_in_a_verdict_with_its_reason(call, store, golden, width):
    code, out, _ = call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)
    assert code == 1
    golden(f"compare_{width}", out)


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns with colours, as rich sees one."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


SIDES = ("digits[framework=numpy]", "digits[framework=torch]")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def test_the_answer_fits_a_terminal_of_24_lines_of_80_characters(call, store, terminal):
    _, out, _ = call("compare", *SIDES, "--store", store)
    lines = ESCAPE.sub("", out).splitlines()
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("SLOWER: digits[framework=torch] takes 1.3")


def doubted(*doubts):
    table = Table.of(
        "t",
        "Time",
        ["numpy", "torch"],
        (Column("run", "run"), str),
        (Column("energy", "energy"), lambda _: Absent("no meter")),
    )
    present([table], doubts, dict, dict, answer=["UNCLEAR: n = 3 + 3"] * 14, as_json=False)


MANY = "3 of 5 runs of digits[framework=numpy] and 2 of 5 runs of digits[framework=torch]"
BUSY = f"  doubt: {MANY}: other programs kept 0.3 of 2 cores busy: stop them and measure again"


def test_doubts_are_shortened_where_the_answer_would_leave_the_terminal(terminal, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "24")
    doubted(BUSY)
    lines = ESCAPE.sub("", capsys.readouterr().out).splitlines()
    assert len(lines) < 24
    assert "  doubt: 5 of 10 runs: other programs kept 0.3 of 2 cores busy" in lines
    assert "--wide has doubts and notes in full" in lines[-1]


def test_a_shortened_doubt_counts_the_runs_of_all_arms_that_it_names(terminal, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "24")
    doubted("  doubt: 3 of 5 runs of a, of b and of 2 others, and 1 of 5 runs of c: busy: stop them")
    assert "  doubt: 13 of 25 runs: busy" in ESCAPE.sub("", capsys.readouterr().out).splitlines()


def test_doubts_are_in_full_where_there_is_room(terminal, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "40")
    doubted(BUSY)
    out = " ".join(ESCAPE.sub("", capsys.readouterr().out).split())
    assert BUSY.strip() in out
    assert "no meter" in out


def answer_on(folder, arms, doubt=(), long_names=False, task="digits", command=""):
    """What ``run`` prints of ``arms`` learning rates with three runs each, the first on a busy machine.

    With ``long_names``, the recipe and the framework differ as well, no verdict is clear, and one recipe is judged at
    its end. With ``command``, they are runs of a program.
    """
    for at in range(arms):
        settings = {"command": f"{command} --lr 0.{at}"} if command else {"lr": (at + 1) / 10}
        spec = structs.replace(specification(), task=task, settings=settings)
        if long_names:
            recipe, crossing = ("onecycle", "final") if at in (1, 3) else ("mlp", "confirmed")
            spec = structs.replace(spec, recipe=recipe, crossing=crossing, framework=("numpy", "torch")[at // 2 % 2])
        for seed in range(3):
            turn = seed * arms + (arms - 1 - at if seed % 2 else at)
            step_ms, suspect = 1 + at / 4 + (7 * at + 3 * seed) % 5 / (2 if long_names else 50), () if at else doubt
            write_run(folder, spec, seed, f"aaa{at}000{seed}", REACHES, step_ms, minute=turn, suspect=suspect)
    groups = group_runs(store_module.Store(folder).summaries())
    comparisons, refusals = compare_all(groups, 0.02, 0.95)
    answer, lines = answer_lines(comparisons, refusals), remark_lines(groups, comparisons)
    present(
        [groups_table(groups)],
        lines,
        dict,
        lambda: {"report": "levelbench-results/report.html"},
        answer=answer,
        as_json=False,
        shorter=lambda width: short_forms(groups, comparisons, refusals, width),
    )


@pytest.mark.parametrize("arms", [3, 4, 5, 6])
def test_the_answer_on_several_sides_fits_a_terminal_of_24_lines_of_80_characters(
    tmp_path, terminal, monkeypatch, capsys, golden, arms
):
    monkeypatch.setenv("LINES", "24")
    answer_on(tmp_path, arms, ["busy: other programs kept 1.4 of 2 cores busy during the measurement: stop them"])
    out = ESCAPE.sub("", capsys.readouterr().out)
    lines = out.strip().splitlines()
    assert len(lines) < 24
    assert all(len(line) <= 80 for line in lines)
    assert sum(": lr=" in line for line in lines) == arms - 1
    golden(f"run_{arms}_sides_80", out)


def test_the_answer_on_six_sides_with_long_names_fits_24_lines_of_80_characters(
    tmp_path, terminal, monkeypatch, capsys, golden
):
    monkeypatch.setenv("LINES", "24")
    busy = "busy: other programs kept 1.4 of 2 cores busy during the measurement: stop them"
    answer_on(tmp_path, 6, [busy, "swap: the machine was swapping: close programs"], long_names=True)
    out = ESCAPE.sub("", capsys.readouterr().out)
    lines = out.strip().splitlines()
    assert len(lines) < 24
    assert all(len(line) <= 80 for line in lines)
    assert sum("UNCLEAR: " in line for line in lines) == 5
    golden("run_6_long_sides_80", out)


def test_the_answer_on_two_sides_of_a_task_with_a_long_name_fits_24_lines_and_breaks_no_name(
    tmp_path, terminal, monkeypatch, capsys
):
    monkeypatch.setenv("LINES", "24")
    busy = "busy: other programs kept 1.4 of 2 cores busy during the measurement: stop them"
    task = "a-task-with-a-name-as-long-as-some-research-groups-like"
    answer_on(tmp_path, 2, [busy], task=task)
    lines = ESCAPE.sub("", capsys.readouterr().out).strip().splitlines()
    assert len(lines) < 24
    assert any(line.split()[-2:] == ["lr=0.1", "lr=0.2"] for line in lines)
    assert sum(task in line for line in lines) == 3


@pytest.mark.parametrize("arms", [2, 6])
def test_the_answer_on_runs_of_long_commands_fits_24_lines_of_80_characters(
    tmp_path, terminal, monkeypatch, capsys, arms
):
    monkeypatch.setenv("LINES", "24")
    busy = "busy: other programs kept 1.4 of 2 cores busy during the measurement: stop them"
    command = "python train.py --data /a/folder/with/a/long/name --epochs 20 --width 64"
    answer_on(tmp_path, arms, [busy], command=command)
    lines = ESCAPE.sub("", capsys.readouterr().out).strip().splitlines()
    assert len(lines) < 24
    assert all(len(line) <= 80 for line in lines)
    assert sum(": --lr 0." in line for line in lines) == arms - 1


def test_the_answer_on_several_sides_is_in_full_where_there_is_room(tmp_path, terminal, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "60")
    answer_on(tmp_path, 4)
    out = " ".join(ESCAPE.sub("", capsys.readouterr().out).split())
    assert "as long as digits[lr=0.1]" in out
    assert "time per sample, fixed costs included" in out
    assert "shortened" not in out


def test_lines_that_differ_only_in_names_and_numbers_are_said_once_where_room_is_short(terminal, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "26")
    doubted(BUSY, BUSY.replace("0.3", "0.4"), BUSY.replace("busy:", "hot:"))
    out = " ".join(ESCAPE.sub("", capsys.readouterr().out).split())
    assert "kept 0.3 of 2 cores busy (and 1 more like it)" in out
    assert "cores hot" in out


def test_doubts_after_the_first_are_counted_where_all_would_push_the_verdict_out(terminal, monkeypatch, capsys):
    monkeypatch.setenv("LINES", "24")
    doubted(BUSY, BUSY.replace("busy:", "hot:"), BUSY.replace("busy:", "throttled:"))
    lines = ESCAPE.sub("", capsys.readouterr().out).strip().splitlines()
    assert len(lines) < 24
    assert "kept 0.3 of 2 cores busy (and 2 more doubts)" in " ".join(" ".join(lines).split())


def test_a_verdict_has_a_colour_unless_it_is_not_wanted(call, store, terminal, monkeypatch):
    coloured = "\x1b[1;31mSLOWER"
    assert coloured in call("compare", *SIDES, "--store", store)[1]
    assert coloured not in call("compare", *SIDES, "--store", store, "--no-color")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured not in call("compare", *SIDES, "--store", store)[1]


def test_wide_fits_nothing_to_the_terminal(call, store, terminal):
    _, out, _ = call("compare", *SIDES, "--store", store, "--wide")
    assert ESCAPE.sub("", out).splitlines()[0].endswith("paired by seed")
    assert sum("framework=numpy" in line for line in out.splitlines()) == 2


def test_compare_writes_its_table_and_verdict_where_they_are_wanted(call, store, tmp_path):
    words = ("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)
    call(*words, "--markdown", tmp_path / "out.md", "--csv", tmp_path / "out.csv")
    assert "\n- SLOWER: " in (tmp_path / "out.md").read_text()
    assert (tmp_path / "out.csv").read_text().count("digits") == 2


def test_a_price_gives_the_cost_of_the_time_to_accuracy(call, store):
    found = json.loads(call("compare", *SIDES, "--store", store, "--price", "3.6/h", "--json")[1])
    assert found["usd_per_hour"] == [3.6, 3.6]
    out = call("compare", *SIDES, "--store", store, "--price", "3.6/h", "--csv", store.parent / "t.csv")[1]
    assert "at 3.6 USD an hour" in out
    assert "  cost: " not in out
    with (store.parent / "t.csv").open() as file:
        for row in csv.DictReader(file):
            assert float(row["cost_usd"]) == pytest.approx(float(row["time_to_accuracy_s"]) / 1000, rel=1e-6)


def test_different_prices_turn_the_ratio_of_times_into_one_of_costs(call, store):
    one, two = ("--price", "2/h"), ("--price", f"{SIDES[1]}=1 USD/h")
    ratio = json.loads(call("compare", *SIDES, "--store", store, "--json")[1])["verdict"]["ratio"]
    out = call("compare", *SIDES, "--store", store, *one, *two)[1]
    found = re.search(r"cost: digits\[framework=torch\] costs (\S+) .* times as much as digits\[framework=numpy\]", out)
    assert float(found[1]) == pytest.approx(ratio / 2, rel=1e-3)


def test_the_price_of_one_side_is_said_to_be_its_own_and_that_of_the_other_to_be_missing(call, store, tmp_path):
    one = ("--price", f"{SIDES[1]}=1/h")
    out = call("compare", *SIDES, "--store", store, *one)[1]
    assert "cost: not compared, as no price of digits[framework=numpy] was given (--price RUNS=PRICE)" in out
    call("report", *SIDES, "--store", store, *one, "-o", tmp_path / "r.html", "--markdown", tmp_path / "r.md")
    text = (tmp_path / "r.md").read_text().replace("\\", "")
    assert "cost: time to accuracy alone at 1 USD an hour for digits[framework=torch]" in text
    assert "no price of its system was given (--price RUNS=PRICE)" in text


def test_the_cost_is_in_the_json_of_what_has_a_price(call, store):
    prices = ("--price", "2/h", "--price", f"{SIDES[1]}=1/h")
    found = json.loads(call("compare", *SIDES, "--store", store, *prices, "--json")[1])
    assert found["cost"]["ratio"] == pytest.approx(found["verdict"]["ratio"] / 2)
    assert found["cost"]["high"] == pytest.approx(found["verdict"]["high"] / 2)
    assert [each["interval"]["high"] > each["value"] > 0 for each in found["cost_to_accuracy_usd"]] == [True, True]
    without = json.loads(call("compare", *SIDES, "--store", store, "--json")[1])
    assert (without["cost"], without["cost_to_accuracy_usd"]) == (None, [None, None])


def test_an_instance_of_the_hardware_table_has_its_price_with_its_source(call, store):
    _, out, err = call("compare", *SIDES, "--store", store, "--price", "p2.xlarge")
    assert "note: p2.xlarge: 0.9 USD an hour (1 x p2.xlarge, us-east-1, 2017-12-01)" in err
    assert "at 0.9 USD an hour" in out


@pytest.mark.parametrize(
    ("price", "found"),
    [
        ("cheap", "neither a price nor an instance"),
        ("0/h", "not above zero"),
        ("-1/h", "neither a price"),
        ("latest=2/h", "not that of the latest runs"),
        ("squad=2/h", "selects none of the runs"),
    ],
)
def test_what_is_no_price_of_these_runs_is_refused(call, store, price, found):
    code, _, err = call("compare", *SIDES, "--store", store, "--price", price)
    assert code == 2
    assert found in err


def test_compare_the_other_way_round_is_faster_and_ends_in_0(call, store):
    code, out, _ = call("compare", "digits[framework=torch]", "digits[framework=numpy]", "--store", store)
    assert code == 0
    assert "FASTER" in out


def test_a_reader_of_the_first_line_changes_no_exit_code(call, store):
    slower = call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)[0]
    words = f"-m levelbench compare 'digits[framework=numpy]' 'digits[framework=torch]' --store {store}"
    for reader in ("head -c 1", "true"):
        command = f"{sys.executable} {words} | {reader}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (slower, "")
    assert slower == 1


def test_compare_can_be_told_not_to_fail(call, store):
    words = ("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)
    assert call(*words, "--fail-on", "never")[0] == 0
    assert call(*words, "--fail-on", "unclear")[0] == 0


def test_compare_can_fail_on_a_missed_target(call, store, write):
    write(5, "cccc0005", qualities=[0.5, 0.6])
    words = ("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)
    assert call(*words, "--fail-on", "missed")[0] == 1
    one = words[2].replace("]", ",seed=0]")
    assert call("compare", one, words[2].replace("]", ",seed=1]"), *words[3:], "--fail-on", "missed")[0] == 0


def test_a_group_compared_with_itself_is_refused(call, store):
    code, _, err = call("compare", "digits[framework=torch]", "digits[framework=torch]", "--store", store)
    assert code == 2
    assert "would be compared with themselves" in err


def test_copies_in_subfolders_and_in_several_paths_count_once(call, store):
    shutil.copytree(store, store / "copy")
    words = ("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store, "--json")
    verdict = json.loads(call(*words)[1])["verdict"]
    assert (verdict["n_a"], verdict["n_b"]) == (5, 5)
    runs = json.loads(call("list", "runs", f"{store}/", "--json", "--store", store / "elsewhere")[1])
    assert len(runs) == len(json.loads(call("show", f"{store}/", f"{store}/copy", "--json")[1])) == 10


def test_copies_of_one_run_under_another_id_are_refused_in_a_single_group_too(call, store):
    path = next(store.rglob("*aaaa0000.jsonl"))
    copy = path.with_name(path.name.replace("aaaa0000", "ffff0009"))
    copy.write_bytes(path.read_bytes())
    edit(copy, '"id":"aaaa0000"', '"id":"ffff0009"')
    edit(copy, '"seed":0', '"seed":9')
    one = ("digits[framework=numpy]", "--store", store)
    code, out, _ = call("lint", *one)
    assert code == 1
    assert "refuse: the runs aaaa0000 and ffff0009 are one run" in out
    code, _, err = call("report", *one)
    assert code == 2
    assert "are one run: all their times are the same to the nanosecond" in err


def test_two_files_of_one_run_that_differ_are_an_error_naming_both(call, store):
    shutil.copytree(store, store / "copy")
    (first, second) = sorted(store.rglob("*aaaa0000.jsonl"))
    edit(second, '"version":"0.1.0"', '"version":"0.1.1"')
    code, _, err = call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)
    assert code == 2
    assert str(first) in err
    assert str(second) in err


def test_list_runs_and_show_find_the_runs_of_a_path_outside_of_the_store(call, store, tmp_path):
    elsewhere = ("--store", tmp_path / "elsewhere", "--json")
    for place in (f"{store}/digits", f"{store}/", next(store.rglob("*.jsonl"))):
        listed = json.loads(call("list", "runs", place, "--sort", "id", *elsewhere)[1])
        shown = json.loads(call("show", place, *elsewhere)[1])
        assert [each["id"] for each in listed] == sorted(each["id"] for each in shown) != []


def test_compare_prints_doubts_and_differences_of_versions_in_text_and_json(call, store, write):
    for seed in range(5):
        write(
            seed, f"dddd000{seed}", framework="jax", step_ms=2.0, suspect=[f"other programs kept 0.{seed} cores busy"]
        )
    words = ("compare", "digits[framework=numpy]", "digits[framework=jax]", "--store", store)
    assert call(*words)[1].count("doubt: 5 of 5 runs of digits[framework=jax]: other programs kept 0.4 cores busy") == 1
    caveats = json.loads(call(*words, "--json")[1])["caveats"]
    assert [each["weight"] for each in caveats if each["subject"] == "doubts"] == ["doubt"]


def test_what_is_known_to_be_wrong_outweighs_what_cannot_be_told(call, store, write):
    write(5, "cccc0005", framework="jax", qualities=[0.5, 0.6])
    words = ("compare", "aaaa0000", "cccc0005", "--store", store)
    assert call(*words, "--fail-on", "unclear")[0] == 4
    assert call(*words, "--fail-on", "unclear,missed")[0] == 1


def test_compare_with_one_run_each_gives_a_number_and_no_verdict(call, store):
    code, out, _ = call("compare", "aaaa0000", "bbbb0000", "--store", store)
    assert code == 4
    assert "UNCLEAR" in out


def test_compare_as_json_holds_the_verdict_and_the_attribution(call, store):
    found = json.loads(
        call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--json", "--store", store)[1]
    )
    assert found["verdict"]["kind"] == "SLOWER"
    assert found["verdict"]["low"] > 1
    assert found["attribution"]["samples_ratio"] == pytest.approx(1)


def test_a_report_on_a_path_outside_of_the_store_accuses_nobody_of_what_lies_in_the_store(call, store, write, tmp_path):
    elsewhere = shutil.copytree(store, tmp_path / "elsewhere")
    write(9, "cccc0009")
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    assert call("report", f"{elsewhere}/", "-o", page, "--markdown", text, "--store", store)[0] == 0
    assert "LB103" not in text.read_text()


def test_a_report_prints_what_the_gate_found_below_the_verdicts(call, store, write, tmp_path):
    write(9, "cccc0009")
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    words = ("report", "-o", page, "--markdown", text, "--store", store, "--json")
    found = json.loads(call(*words)[1])
    assert [each["subject"] for each in found["comparisons"][0]["caveats"]] == ["pairing"]
    for written in (page, text):
        assert written.read_text().count("not paired by seed: the seeds differ") == 1


def test_a_report_is_one_file_with_markdown_and_csv_beside_it(call, store, tmp_path):
    code, out, _ = call(
        "report", "--store", store, "-o", tmp_path / "r.html", "--markdown", tmp_path / "r.md", "--csv", tmp_path / "c"
    )
    assert code == 0
    assert "SLOWER" in (tmp_path / "r.html").read_text()
    assert "SLOWER" in (tmp_path / "r.md").read_text()
    assert "<h2>Lint</h2>" in (tmp_path / "r.html").read_text()
    assert list((tmp_path / "c").glob("*.csv"))
    assert out.count("report: ") >= 3


def test_a_folder_has_a_page_for_each_task_and_an_index_that_leads_to_them(call, store, write, tmp_path):
    for seed in range(2):
        write(seed, f"dddd000{seed}", task="spam")
    folder = tmp_path / "reports"
    code, out, _ = call("report", "--store", store, "--folder", folder, "--markdown", tmp_path / "r.md")
    assert code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "task-digits.html", "task-spam.html"]
    index = (folder / "index.html").read_text()
    assert index.count('class="verdict SLOWER"') == 1
    for task, other in (("digits", "spam"), ("spam", "digits")):
        assert f'href="task-{task}.html"' in index
        assert f"<h2>{other}</h2>" not in (folder / f"task-{task}.html").read_text()
    assert {"## digits", "## spam"} <= set((tmp_path / "r.md").read_text().splitlines())
    assert out.count("report: ") == 4


def test_a_doubt_about_several_groups_is_said_once_on_their_page_in_json_and_counted_once_in_the_index(call, tmp_path):
    store = tmp_path / "store"
    for at, lr in enumerate((0.1, 0.2, 0.3, 0.4)):
        for seed in range(3):
            spec = structs.replace(specification(), settings={"lr": lr})
            busy = [f"others kept {at}.{seed} cores busy: stop them"]
            write_run(store, spec, seed, f"aaa{at}000{seed}", REACHES, 1 + at / 4, minute=4 * seed + at, suspect=busy)
    call("report", "--store", store, "--folder", tmp_path / "f")
    page, index = ((tmp_path / "f" / name).read_text() for name in ("task-digits.html", "index.html"))
    assert page.count("cores busy") == 1
    assert page.count("<li>doubt: ") == 1
    assert "with 1 doubt<" in index
    _, out, _ = call("report", "--store", store, "--json", "-o", tmp_path / "r.html")
    told = {
        each["sentence"]
        for one in json.loads(out)["comparisons"]
        for each in one["caveats"]
        if each["weight"] == "doubt"
    }
    names = ["digits[lr=0.1]", "of digits[lr=0.2]", "of digits[lr=0.3] and of digits[lr=0.4]"]
    assert told == {f"3 of 3 runs of {', '.join(names)}: others kept 3.2 cores busy: stop them"}


def test_a_folder_and_a_file_at_once_are_refused(call, store, tmp_path):
    code, _, err = call("report", "--store", store, "--folder", tmp_path / "f", "-o", tmp_path / "r.html")
    assert code == 2
    assert "leave out one of them" in err


def test_a_group_of_failed_runs_does_not_end_the_report(call, store, write, tmp_path):
    write(0, "cccc0000", framework="jax", status="failed")
    code, _, _ = call("report", "--store", store, "-o", tmp_path / "r.html")
    assert code == 0
    assert "framework=jax" in (tmp_path / "r.html").read_text()


def test_runs_that_were_not_selected_are_not_said_to_be_gone(call, store, write):
    for seed in range(3):
        for framework, digit, step_ms in (("jax", "c", 1.0), ("tensorflow", "d", 1.5)):
            write(
                seed, f"{digit}{digit}{digit}{digit}000{seed}", framework=framework, planned=3, step_ms=step_ms + seed
            )
    _, out, _ = call("compare", "cccc0000", "dddd0000", "--store", store, "--wide")
    assert "1 of 3 runs of digits[framework=jax] was selected: select all of them" in out
    assert "asked for by one command" not in out
    _, out, _ = call("compare", "digits[framework=jax]", "digits[framework=tensorflow]", "--store", store, "--wide")
    assert "selected" not in out
    for record in store.rglob("*cccc000[12].jsonl"):
        record.unlink()
    _, out, _ = call("compare", "cccc0000", "dddd0000", "--store", store, "--wide")
    assert "of digits[framework=jax] 3 runs were asked for by one command, and 1 is left" in out


def test_a_comparison_with_a_price_is_one_table_at_80_columns(call, store):
    _, out, _ = call("compare", *SIDES, "--price", "0.40/h", "--columns", "80", "--store", store)
    (line,) = (line for line in out.splitlines() if line.startswith("cost to accuracy"))
    assert line.split("  ")[0] == "cost to accuracy, µUSD"
    assert sum(set(line) == {"─", " "} for line in out.splitlines()) == 1
    assert max(map(len, out.splitlines())) <= 80


def test_a_column_without_any_value_is_only_a_note_below(call, store):
    _, out, _ = call("compare", *SIDES, "--wide", "--store", store)
    assert "– energy: no counter here" in out.splitlines()
    assert "energy" not in out.split("───")[0].splitlines()[-1]


@pytest.mark.parametrize("words", [("list", "runs"), ("show", "latest"), ("compare", "aaaa0000", "bbbb0000")])
def test_tables_and_lines_fit_the_columns_asked_for(call, store, words):
    for columns in (60, 120):
        _, out, _ = call(*words, "--columns", columns, "--store", store)
        assert max(len(line) for line in out.splitlines() if not line.startswith("record: ")) <= columns
    code, _, err = call(*words, "--columns", 60, "--wide", "--store", store)
    assert code == 2
    assert "--wide with --columns" in err


def test_a_report_on_several_groups_says_which_comparison_a_doubt_is_about(call, store, write, tmp_path):
    for seed in range(5, 8):
        write(seed, f"cccc000{seed}", framework="jax", step_ms=1 + seed / 100)
    call("report", "--store", store, "-o", tmp_path / "r.html", "--markdown", tmp_path / "r.md")
    (line,) = (line for line in (tmp_path / "r.md").read_text().splitlines() if "not paired by seed" in line)
    assert line.replace("\\", "").endswith("(digits[framework=jax] against digits[framework=numpy])")


def test_a_report_on_runs_of_which_none_has_ended_is_refused(call, store, write, tmp_path):
    write(0, "cccc0000", task="spam", status="interrupted")
    code, _, err = call("report", "spam", "--store", store, "-o", tmp_path / "r.html")
    assert code == 2
    assert "none of its runs has ended (spam: 1 run, interrupted)" in " ".join(err.split())
    assert not (tmp_path / "r.html").exists()


def test_a_report_says_which_runs_it_leaves_out(call, store, write, tmp_path):
    for seed in range(2):
        write(seed, f"cccc000{seed}", task="spam", status="interrupted")
    said = "left out: spam: 2 runs, interrupted"
    for words, page in ((("-o", tmp_path / "r.html"), "r.html"), (("--folder", tmp_path / "f"), "f/index.html")):
        code, _, err = call("report", "--store", store, *words)
        assert (code, err.strip()) == (0, said)
        assert said in (tmp_path / page).read_text()
    assert json.loads(call("report", "--store", store, "--json")[1])["left_out"] == [said]


def test_a_report_on_one_group_says_how_many_runs_a_verdict_needs(call, store, tmp_path):
    call("report", "digits[framework=numpy]", "--store", store, "-o", tmp_path / "r.html")
    assert "a verdict needs two groups of at least three runs each" in (tmp_path / "r.html").read_text()


def test_reports_on_different_runs_do_not_overwrite_each_other(call, store):
    sides = ["digits[framework=numpy]", "digits[framework=torch]"]
    found = [call("report", *words, "--store", store)[1] for words in ([], [sides[0]], [sides[1]], sides, [sides[0]])]
    assert found[0].strip().endswith("report.html")
    assert len(set(found)) == 4
    assert found[1] == found[4]


def test_a_report_on_nothing_says_what_to_do(call, tmp_path):
    code, _, err = call("report", "--store", tmp_path / "none")
    assert code == 2
    assert "run something first" in err


def test_list_names_the_suites_with_their_sizes(call):
    rows = {row["suite"]: row for row in json.loads(call("list", "suites", "--json")[1])["suites"]}
    assert rows["deepbench-gemm"]["problems"] == 160 + 75 + 13
    assert rows["deepbench-sparse"]["subsets"] == ["inference-server", "inference-device"]
    assert "deepbench-all-reduce" in rows


def test_a_report_refuses_where_a_damaged_record_would_be_left_out(call, store, tmp_path):
    damaged = sorted(store.rglob("*.jsonl"))[0]
    damaged.write_bytes(damaged.read_bytes().replace(b"digits", b"digitz", 1))
    for words in ((), ("digits",)):
        code, _, err = call("report", *words, "--store", store, "-o", tmp_path / "report.html")
        assert code == 2
        assert damaged.name in err


@pytest.mark.slow
def test_as_json_many_runs_are_shown_without_being_held(call, store, monkeypatch):
    """However many there are, no more than one record is in memory while they are selected and printed."""
    made, most = [], 0
    read = store_module.read_record

    def counted(path):
        nonlocal most
        gc.collect()
        most = max(most, sum(each() is not None for each in made))
        record = read(path)
        made.append(weakref.ref(record))
        return record

    monkeypatch.setattr(store_module, "read_record", counted)
    for words in (("digits",), (str(store),)):
        made, most = [], 0
        shown = json.loads(call("show", *words, "--json", "--store", store)[1])
        assert (len(shown), len(made)) == (10, 10)
        assert most <= 1


def test_show_writes_a_trace_of_the_runs_that_are_named(call, store, tmp_path):
    code, out, _ = call("show", "digits[seed=0]", "--trace", tmp_path / "t.json", "--store", store)
    assert (code, f"trace: {tmp_path / 't.json'}" in out) == (0, True)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    code, _, err = call("show", "--trace", tmp_path, "--store", store)
    assert (code, "it is a folder" in err) == (2, True)


def test_compare_names_the_settings_by_which_a_side_was_selected(call, store):
    for seed in range(3):
        for at, (recipe, lr, hidden) in enumerate([("mlp", 0.1, 8), ("wide", 0.4, 64)]):
            spec = structs.replace(specification(), recipe=recipe, settings={"lr": lr, "hidden": hidden})
            write_run(store, spec, seed, f"dddd{at}00{seed}", REACHES, 1 + at / 2, minute=40 + seed)
    sides = ("digits[recipe=mlp,lr=0.1]", "digits[recipe=wide]")
    assert "digits[recipe=wide] takes 1.3" in (out := call("compare", *sides, "--store", store)[1])
    assert "times as long as digits[recipe=mlp,lr=0.1]" in out


def test_a_doubt_about_a_run_is_not_broken_within_a_word(call, store, write, terminal):
    write(7, "eeee0001", suspect=["busy: other programs kept 1.6 of 2 cores busy during the measurement: stop them"])
    out = ESCAPE.sub("", call("show", "eeee0001", "--store", store)[1])
    doubt = out[out.index("doubt: ") : out.index("record: ")]
    assert all(len(line) <= 80 for line in doubt.splitlines())
    assert "during the measurement" in " ".join(doubt.split())


def test_the_last_lines_of_list_are_not_broken_within_a_word(call, tmp_path, terminal):
    out = ESCAPE.sub("", call("list", "--store", tmp_path)[1])
    assert all(len(line) <= 80 for line in out.splitlines())
