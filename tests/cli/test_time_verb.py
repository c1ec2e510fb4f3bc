"""``levelbench time``: commands in turns, their verdicts, exit codes and files."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from time import sleep

import pytest

from levelbench.cli import main
from levelbench.experiments import commands
from levelbench.experiments.command_process import EndedCommand

pytestmark = [pytest.mark.sampled(3), pytest.mark.usefixtures("undrawn")]

FAST, SLOW = "sleep 0.02", "sleep 0.1"


@pytest.fixture
def still(monkeypatch):
    """A machine on which a `sleep` takes as long as it says, but for a hundredth."""
    jitter = itertools.cycle([1.0, 1.01, 0.99])

    def carry_out(command, *_, **__):
        took_s = float(command.text.split()[1]) * next(jitter) if command.text.startswith("sleep") else 1e-3
        return EndedCommand(int(took_s * 1e9), took_s / 2, 0.001, None, 0, "")

    monkeypatch.setattr(commands, "carry_out_command", carry_out)
    # The machine's own counters did not see these times pass.
    monkeypatch.setattr("levelbench.records.commands.beyond_counters", lambda *_: ())


@pytest.fixture
def time(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)

    def call(*words, verb="time"):
        with pytest.raises(SystemExit) as ended:
            main([verb, *map(str, words)])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call


def test_one_command_is_timed_without_a_verdict(time):
    code, out, _ = time(FAST, "-n", 3)
    assert code == 0
    assert "sleep 0.02" in out
    assert "SLOWER" not in out


def test_a_seed_in_a_command_without_a_target_is_refused(time):
    code, _, err = time("echo {seed}", "-n", 1)
    assert code == 2
    assert "processes without a target have no seeds" in err


@pytest.mark.parametrize(
    "words",
    [
        ("python", "a.py", "--vs", "python", "b.py", "-n", 5),
        ("python a.py", "--vs", "python", "b.py"),
        ("./a", "--vs", "./b", "3"),
    ],
)
def test_commands_without_quotes_are_refused(time, words):
    code, _, err = time(*words)
    assert code == 2
    assert "would be one command, compared with" in err
    assert "put each command in quotes: levelbench time 'python a.py' --vs 'python b.py'" in err


@pytest.mark.parametrize("after", [("--vs", "--", "false"), ("--vs", "false")])
def test_another_command_after_two_dashes_is_refused_instead_of_joined_to_the_first(time, after):
    code, _, err = time("--", "true", *after)
    assert code == 2
    assert "everything after -- is one command" in err


def test_an_option_of_a_command_without_quotes_is_refused_with_the_quotes(time):
    code, _, err = time("python a.py", "--vs", "python", "b.py", "--lr", "0.1")
    assert code == 2
    assert "No such option" in err
    assert "put a command with options of its own in quotes" in err


def test_what_asks_for_predictions_is_sent_to_the_option_for_them(time):
    code, _, err = time("true", "--predictions", "digits")
    assert code == 2
    assert "Did you mean '--held-out'?" in err


def test_words_after_two_dashes_are_compared_with_a_program_of_one_word(time):
    code, out, _ = time("-n", 1, "--vs", "true", "--", "sh", "-c", "exit 0")
    assert (code, "sh -c 'exit 0'" in out) == (0, True)


def test_the_words_after_two_dashes_are_one_command(time):
    code, out, _ = time("-n", 1, "--", "sh", "-c", "exit 0")
    assert (code, "sh -c 'exit 0'" in out) == (0, True)


@pytest.mark.parametrize(
    ("first", "second", "more", "code"),
    [
        (FAST, SLOW, (), 1),
        (FAST, SLOW, ("--fail-on", "never"), 0),
        (SLOW, FAST, (), 0),
        (FAST, FAST, ("-n", 1, "--fail-on", "unclear"), 4),
    ],
)
def test_the_exit_code_is_that_of_the_verdict(time, still, first, second, more, code):
    assert time(first, "--vs", second, "-n", 4, *more)[0] == code


@pytest.mark.slow
def test_a_command_against_itself_is_measured_as_two(time):
    _, out, _ = time(SLOW, "--vs", SLOW, "-n", 3)
    assert "sleep 0.1 (2) takes " in out


def test_a_verdict_on_commands_is_paired_by_turn(time, still):
    _, out, _ = time(FAST, "--vs", SLOW, "-n", 5, "--fail-on", "never")
    assert "paired by turn" in out
    assert "paired by seed" not in out


@pytest.mark.slow
def test_commands_take_turns(time, tmp_path):
    time("echo a >> order", "--vs", "echo b >> order", "-n", 8)
    order = (tmp_path / "order").read_text().split()
    assert sorted(order) == ["a"] * 8 + ["b"] * 8
    assert all(set(order[at : at + 2]) == {"a", "b"} for at in range(0, 16, 2))


def test_until_clear_goes_on_as_long_as_it_takes(time, still):
    code, out, _ = time(FAST, "--vs", SLOW, "--until-clear", "--effect", "0.5")
    assert code == 1
    assert "SLOWER" in out


@pytest.mark.slow
@pytest.mark.parametrize(("more", "code"), [((), 4), (("--fail-on", "slower"), 0)])
def test_until_clear_ends_with_code_4_where_its_budget_ended_it(time, more, code):
    # Each is slow in turn, so that no five pairs show a difference.
    varies = "if [ -e slow ]; then rm slow; sleep 0.2; else touch slow; fi"
    found, out, _ = time(varies, "--vs", f"{varies}; true", "--until-clear", "--budget", "0.1", *more)
    assert "UNCLEAR" in out
    assert found == code


def test_each_command_measures_anew_but_for_one_that_resumes(time):
    time(FAST, "-n", 2)
    assert "2 to go" in time(FAST, "-n", 2)[1]
    assert "0 to go" in time(FAST, "-n", 2, "--resume")[1]


def test_setup_is_once_prepare_before_each_and_warmup_is_not_recorded(time, tmp_path):
    more = ["--setup", "echo s >> log", "--prepare", "echo p >> log", "--warmup", 2]
    time("echo x >> log", "-n", 3, *more)
    assert (tmp_path / "log").read_text().split() == ["s", "x", "x", *["p", "x"] * 3]


@pytest.mark.parametrize("option", ["--setup", "--prepare"])
def test_a_preparation_that_fails_ends_it(time, option):
    code, _, err = time("true", option, "echo because >&2; exit 3")
    assert code == 1
    assert "exit code 3" in err
    assert "because" in err


def test_a_failure_ends_it_with_the_last_of_the_errors(time):
    code, _, err = time(f"{sys.executable} -c \"raise ValueError('of this')\"")
    assert code == 1
    assert "ended with exit code 1: ValueError: of this" in err


def test_failures_can_be_counted_all_the_same(time):
    code, out, _ = time("false", "--vs", "true", "-n", 3, "--ignore-failure", "--fail-on", "never")
    assert code == 0
    assert "failed" in out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("true", "-n", "0"), "at least one process"),
        (("true", "--until-clear"), "a verdict compares two"),
        (("true", "--revisions", "main"), "it names 1"),
        (("true", "--fail-on", "missed"), "no target"),
        (("true", "--timeout", "soon"), "impossible time"),
        (("'true",), "no closing quotation"),
        (("true", "--vs", ""), "it is empty"),
        (("nosuchprogram",), "cannot be started"),
        (("true", "--vs", "nosuchprogram"), "'nosuchprogram' cannot be started"),
        (("python a.py", "python b.py"), "put --vs between commands"),
        (
            ("true", "--vs", f"{sys.executable} nosuchfile.py"),
            "'nosuchfile.py' cannot be started: there is no such file",
        ),
    ],
)
def test_what_cannot_be_timed_is_refused_in_words(time, words, found):
    code, _, err = time(*words)
    assert code in (2, 3)
    assert found in err


def test_json_has_every_time_and_markdown_the_verdict(time, still, tmp_path):
    _, out, _ = time(FAST, "--vs", SLOW, "-n", 3, "--json", "--markdown", "out.md", "--csv", "out.csv")
    found = json.loads(out)
    assert len(found["entries"][1]["wall"]["values"]) == 3
    assert found["entries"][1]["verdict"]["kind"] == "SLOWER"
    assert "SLOWER" in (tmp_path / "out.md").read_text()
    assert "time_s" in (tmp_path / "out.csv").read_text()


@pytest.fixture
def commit(tmp_path, monkeypatch):
    """Commits a script that sleeps for so long."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)

    def make(seconds):
        (tmp_path / "run.sh").write_text(f"sleep {seconds}\n")
        subprocess.run(["git", "add", "run.sh"], check=True)
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"], check=True)

    return make


def test_the_history_of_a_command_has_a_row_for_each_revision_and_a_page(time, commit, tmp_path):
    for seconds in (0.01, 0.1):
        commit(seconds)
        time("sh run.sh", "-n", 2, "--store", tmp_path / "results")
    files = "-o", "h.html", "--markdown", "h.md", "--csv", "tables"
    code, out, _ = time("--history", "run.sh", "--store", tmp_path / "results", *files, verb="report")
    assert code == 0
    assert "finding changes takes at least 8 revisions" in out
    rows = (tmp_path / "tables" / "history.csv").read_text().splitlines()
    assert len({row.split(",")[0] for row in rows}) >= 3
    assert "sh run.sh" in (tmp_path / "h.html").read_text()
    assert "sh run.sh" in (tmp_path / "h.md").read_text()


@pytest.mark.slow
def test_a_history_is_in_the_order_of_commits_not_of_measurement(time, commit, tmp_path, monkeypatch):
    names = []
    for seconds in (0.01, 0.02, 0.03):
        commit(seconds)
        names.append(subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout)
    results = "--store", tmp_path / "results"
    time("sh run.sh", "--revisions", "HEAD~2,HEAD", "-n", 1, *results)
    time("sh run.sh", "--revisions", "HEAD~1,HEAD", "-n", 1, *results)
    (history,) = json.loads(time("--history", *results, "--json", verb="report")[1])["histories"]
    assert [each["commit"] for each in history["points"]] == [each.strip() for each in names]
    subprocess.run(["git", "init", "-q", "elsewhere"], check=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "the order of measurement" in " ".join(time("--history", *results, verb="report")[1].split())


def test_a_history_of_another_name_names_those_that_are_there(time, commit, tmp_path):
    commit(0.01)
    time("sh run.sh", "-n", 1, "--store", tmp_path / "results")
    code, _, err = time("--history", "sh ran.sh", "--store", tmp_path / "results", verb="report")
    assert (code, "close: sh run.sh" in err) == (2, True)


@pytest.mark.parametrize("words", [(), ("nothing of that name",), ("--across-machines",)])
def test_a_history_of_nothing_is_refused(time, words):
    code, _, err = time("--history", *words, verb="report")
    assert code == 2
    assert "history" in err


@pytest.mark.slow
def test_revisions_are_compared_side_by_side(time, commit):
    for seconds in (0.01, 0.1):
        commit(seconds)
    _, out, _ = time("sh run.sh", "--revisions", "HEAD~1,HEAD", "-n", 3)
    assert "sh run.sh at HEAD takes " in out
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 1


def test_processes_of_commands_are_listed_by_program_command_or_revision(time, still):
    time(FAST, "--vs", SLOW, "-n", 3)
    rows = json.loads(time("commands", "sleep", "--sort", "wall_s", "--json", verb="list")[1])
    assert len(rows) == 6
    assert [row["command"] for row in rows] == [FAST] * 3 + [SLOW] * 3
    assert len(json.loads(time("commands", FAST, "--json", verb="list")[1])) == 3
    assert len(json.loads(time("commands", rows[0]["id"], "--json", verb="list")[1])) == 1
    assert "levelbench time" in time("commands", "make", verb="list")[1]
    assert "begun" in time("commands", "latest", verb="list")[1]


def test_show_prints_of_commands_what_was_printed_of_them(time, still):
    _, printed, _ = time(FAST, "--vs", SLOW, "-n", 3)
    code, shown, _ = time(FAST, SLOW, verb="show")
    (verdict,) = (line for line in printed.splitlines() if line.startswith("SLOWER"))
    assert code == 0
    assert verdict in shown
    assert shown.count("record (done)") == 6
    assert len(json.loads(time(FAST, "--json", verb="show")[1])[0]["entries"]) == 1


def test_of_commands_the_latest_is_the_whole_measurement(time, still):
    time(FAST, "--vs", SLOW, "-n", 3)
    code, shown, _ = time("latest", verb="show")
    assert (code, shown.count("record (done)"), "chooses the result" in shown) == (0, 6, False)
    code, linted, _ = time("latest", verb="lint")
    assert (code, "1 claim checked" in linted) == (0, True)


def test_what_was_timed_again_is_shown_as_it_was_last(time, still):
    time(FAST, "-n", 3)
    time(FAST, "-n", 3)
    assert "n = 3." in time("sleep", verb="show")[1]


@pytest.mark.slow
def test_commands_that_are_measured_a_third_time_with_the_same_code_are_a_doubt(time, still):
    outs = [" ".join(time(FAST, "--vs", SLOW, "-n", 3)[1].split()) for _ in range(3)]
    doubt = f"doubt: {FAST} and {SLOW} had been measured 2 times in this store, under the same conditions, before this"
    assert [doubt in out for out in outs] == [False, False, True]
    assert doubt in " ".join(time(FAST, SLOW, verb="compare")[1].split())


@pytest.mark.parametrize(("first_s", "doubted"), [(0.5, True), (0.11, False)])
def test_a_trial_that_took_longer_than_all_later_processes_is_a_doubt(time, still, monkeypatch, first_s, doubted):
    usual = commands.carry_out_command
    taken = iter([first_s])

    def carry_out(command, *given, **options):
        ended = usual(command, *given, **options)
        if command.text != SLOW:
            return ended
        return replace(ended, wall_ns=int(next(taken, 0.1) * 1e9))

    monkeypatch.setattr(commands, "carry_out_command", carry_out)
    time(SLOW, "-n", 1)
    out = " ".join(time(SLOW, "-n", 3)[1].split())
    assert (f"doubt: the first process of {SLOW} in this store took 5 times as long as any of these" in out) is doubted


def test_tries_that_are_too_few_for_a_verdict_do_not_count_as_measured_before(time, still):
    for _ in range(3):
        time(FAST, "--vs", SLOW, "-n", 1)
    assert "had been measured" not in time(FAST, "--vs", SLOW, "-n", 3)[1]


@pytest.mark.slow
def test_a_program_that_was_edited_was_not_measured_before(time, tmp_path):
    for seconds in ("0.01", "0.02", "0.03"):
        (tmp_path / "inner.sh").write_text(f"sleep {seconds}")
        (tmp_path / "run.sh").write_text(". ./inner.sh")
        out = time("sh run.sh", "-n", 3)[1]
    assert "had been measured" not in out


@pytest.mark.parametrize(("slow", "doubted"), [("sleep 0.1", True), ("sleep 30", False)])
def test_a_process_that_was_interrupted_after_longer_than_its_repetition_took_is_a_doubt(
    time, still, monkeypatch, slow, doubted
):
    carry_out, times = commands.carry_out_command, []

    def interrupted(command, *given, **options):
        times.append(command.text)
        if times.count(slow) == 2:
            sleep(0.5)
            raise KeyboardInterrupt
        return carry_out(command, *given, **options)

    monkeypatch.setattr(commands, "carry_out_command", interrupted)
    code, _, _ = time(FAST, "--vs", slow, "-n", 3)
    assert code == 130
    monkeypatch.setattr(commands, "carry_out_command", carry_out)
    out = " ".join(time(FAST, "--vs", slow, "-n", 3, "--resume")[1].split())
    assert (f"doubt: a process of {slow} was interrupted after" in out) is doubted


def test_processes_that_are_killed_again_and_again_and_made_anew_are_a_doubt(time, still, tmp_path):
    time(FAST, "--vs", SLOW, "-n", 3)
    for seed in (1, 2):
        (path,) = (each for each in (tmp_path / "store").glob(f"commands/*/*/*-s{seed}-*") if SLOW in each.read_text())
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    out = " ".join(time(FAST, "--vs", SLOW, "-n", 3, "--resume")[1].split())
    assert f"doubt: 2 processes of {SLOW} were killed while they ran, and made again" in out


def test_processes_that_are_removed_and_made_again_are_a_doubt(time, still, tmp_path):
    time(FAST, "--vs", SLOW, "-n", 4)
    for path in (tmp_path / "store").glob("commands/*/*/*-s1-*"):
        path.unlink()
    out = " ".join(time(FAST, SLOW, verb="compare")[1].split())
    assert "doubt: 4 processes of sleep 0.1 were asked for, and 3 of them count" in out
    out = " ".join(time(FAST, "--vs", SLOW, "-n", 4, "--resume")[1].split())
    assert "doubt: process 1 of sleep 0.1 began after later ones" in out
    assert "were asked for" not in out


@pytest.mark.slow
def test_the_last_processes_of_one_command_that_are_removed_and_made_again_are_a_doubt(time, tmp_path):
    time(FAST, "--vs", SLOW, "-n", 4)
    for path in (tmp_path / "store").glob("commands/*/*/*-s[23]-*"):
        if f'"{SLOW}"' in path.read_text():
            path.unlink()
    out = " ".join(time(FAST, "--vs", SLOW, "-n", 4, "--resume")[1].split())
    assert f"doubt: process 2 of {SLOW} began after later ones of the others" in out


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "why"), [("false", "failed"), ("kill -9 $$", "was killed")])
def test_a_process_that_resume_makes_again_is_a_doubt_only_if_it_was_killed(time, tmp_path, ends, why):
    program, counted = tmp_path / "a.sh", tmp_path / "counted"
    program.write_text(f"n=$(wc -l < {counted}); echo >> {counted}; sleep 0.1; test $n != 1 || {ends}")
    counted.touch()
    time(f"sh {program}", "-n", 3, "--ignore-failure")
    out = " ".join(time(f"sh {program}", "-n", 3, "--resume")[1].split())
    assert f"again: 1: the process before {why}" in out
    assert ("began after" in out) is (why == "was killed")


@pytest.mark.parametrize("words", [("--clock", "wall"), ("--trace", "t.json")])
def test_commands_have_neither_clock_nor_trace(time, still, words):
    time(FAST, "-n", 1)
    code, _, err = time("sleep", *words, verb="show")
    assert code == 2
    assert "no phases, clock" in err


def test_what_was_ended_at_its_time_limit_has_no_time_to_count(time):
    code, _, err = time("sleep 9", "--timeout", "0.05", "--ignore-failure", "-n", 2)
    assert code == 1
    assert "did not end within" in err


def test_a_program_that_was_edited_is_another_to_resume(time, tmp_path):
    for text in ("true", "sleep 0"):
        (tmp_path / "run.sh").write_text(text)
        _, out, _ = time("sh run.sh", "-n", 2, "--resume")
        assert "0 done" in out
    assert "2 done" in time("sh run.sh", "-n", 2, "--resume")[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("own/helper.py", "import own.helper"),
        ("conf.json", "open('conf.json').read()"),
        ("table.csv", "open('table.csv').read()"),
        (".conf/c.json", "open('.conf/c.json').read()"),
    ],
    ids=["module", "text", "table", "hidden"],
)
def test_processes_that_read_what_has_changed_since_are_measured_again(time, tmp_path, name, program):
    (tmp_path / "run.py").write_text(f"{program}\nopen('log.txt', 'a').write('x')\n")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("1")
    (tmp_path / "notes.md").write_text("1")
    call = (f"{sys.executable} run.py", "-n", 2, "--resume")
    assert "2 to go" in time(*call)[1]
    (tmp_path / "notes.md").write_text("12")
    assert "0 to go" in time(*call)[1]
    (tmp_path / name).write_text("12")
    _, out, _ = time(*call)
    assert f"what it reads has changed since: {name}" in out
    assert "0 to go" in time(*call)[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    ("name", "options", "script"),
    [
        ("p", (), "./p"),
        ("libk.so", ("-shared",), f"{sys.executable} -c 'import ctypes; ctypes.CDLL(\"./libk.so\").main()'"),
    ],
    ids=["program", "library"],
)
def test_processes_of_a_script_that_starts_what_was_built_anew_are_measured_again(
    time, tmp_path, name, options, script
):
    def build(value):
        text = f"int k = {value}; int main(void) {{ return 0; }}"
        subprocess.run(["cc", *options, "-xc", "-", "-o", tmp_path / name], input=text.encode(), check=True)

    (tmp_path / "run.sh").write_text(script)
    build(1)
    call = ("sh run.sh", "-n", 2, "--resume")
    assert "2 to go" in time(*call)[1]
    assert "0 to go" in time(*call)[1]
    build(2)
    assert f"what it reads has changed since: {name}" in time(*call)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("named", ["~/.conf/c.json", "../c.json", ".conf/c.json"])
def test_processes_with_settings_elsewhere_that_changed_since_are_measured_again(time, tmp_path, monkeypatch, named):
    home = tmp_path / "home"
    (home / ".conf").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path / "work")
    file = tmp_path / "c.json" if named.startswith("..") else home / ".conf/c.json"
    (tmp_path / "work/run.sh").write_text(f'cat "{named}" >/dev/null || true')
    call = ("sh run.sh", "-n", 2, "--resume")
    file.write_text("1")
    assert "2 to go" in time(*call)[1]
    assert "0 to go" in time(*call)[1]
    file.write_text("12")
    shown = named if named.startswith("..") else "~/.conf/c.json"
    assert f"what it reads has changed since: {shown}" in time(*call)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize(("file", "where"), [("conf/c.json", "repo/.git"), ("module.py", "PYTHONPATH")])
def test_processes_that_read_what_changed_in_their_repository_or_on_the_path_are_measured_again(
    time, tmp_path, monkeypatch, file, where
):
    work = tmp_path / "repo/src"
    work.mkdir(parents=True)
    if where == "PYTHONPATH":
        monkeypatch.setenv(where, "..")
    else:
        (tmp_path / where).mkdir()
    monkeypatch.chdir(work)
    (tmp_path / "repo" / file).parent.mkdir(exist_ok=True)
    # The path is put together, so that no text names it.
    (work / "run.sh").write_text(f'd=..; cat "$d"/{file} >/dev/null')
    call = ("sh run.sh", "-n", 2, "--resume")
    (tmp_path / "repo" / file).write_text("1")
    assert "2 to go" in time(*call)[1]
    assert "0 to go" in time(*call)[1]
    (tmp_path / "repo" / file).write_text("12")
    assert f"what it reads has changed since: ../{file}" in time(*call)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_processes_that_read_data_that_changed_since_are_measured_again(time, tmp_path):
    (tmp_path / "run.sh").write_text("cat x.npy >/dev/null")
    call = ("sh run.sh", "-n", 2, "--resume")
    (tmp_path / "x.npy").write_bytes(b"\0" * 100)
    assert "2 to go" in time(*call)[1]
    assert "0 to go" in time(*call)[1]
    (tmp_path / "x.npy").write_bytes(b"\0" * 99 + b"\1")
    assert "what it reads has changed since: x.npy" in time(*call)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_processes_whose_text_names_a_variable_that_changed_since_are_measured_again(time, tmp_path, monkeypatch):
    (tmp_path / "run.sh").write_text('echo "$LB_RATE"')
    call = ("sh run.sh", "-n", 2, "--resume")
    assert "2 to go" in time(*call)[1]
    monkeypatch.setenv("LB_OTHER", "1")
    assert "0 to go" in time(*call)[1]
    for value in ("1", "2"):
        monkeypatch.setenv("LB_RATE", value)
        assert "what it reads has changed since: $LB_RATE" in time(*call)[1]
        assert "0 to go" in time(*call)[1]
    # Those from before it was set count again.
    monkeypatch.delenv("LB_RATE")
    assert "0 to go" in time(*call)[1]


def test_recorded_commands_are_compared_as_time_compares_them(time, still):
    time(FAST, "--vs", SLOW, "-n", 4)
    code, out, _ = time(FAST, SLOW, verb="compare")
    assert code == 1
    assert out.lstrip().startswith("SLOWER: sleep 0.1 takes ")
    code, out, _ = time("--json", "--fail-on", "never", SLOW, FAST, verb="compare")
    assert (code, json.loads(out)["entries"][1]["verdict"]["kind"]) == (0, "FASTER")


@pytest.mark.slow
def test_a_command_that_was_measured_itself_is_meant_where_its_revisions_were_too(time, commit):
    for seconds in (0.01, 0.02):
        commit(seconds)
    time("sh run.sh", "--revisions", "HEAD~1,HEAD", "-n", 1)
    time("sh run.sh", "--vs", "sleep 0.1", "-n", 3)
    code, out, err = time("sh run.sh", "sleep 0.1", "--json", verb="compare")
    assert code != 2, err
    assert [each["name"] for each in json.loads(out)["entries"]] == ["sh run.sh", "sleep 0.1"]


@pytest.mark.slow
def test_of_a_program_that_was_edited_the_newest_processes_are_compared(time, tmp_path):
    for seconds in (0.3, 0.01):
        (tmp_path / "a.sh").write_text(f"sleep {seconds}\n")
        time("sh a.sh", "--vs", SLOW, "-n", 3)
    code, out, _ = time("--json", "sh a.sh", SLOW, verb="compare")
    assert code != 2
    assert max(json.loads(out)["entries"][0]["wall"]["values"].values()) < 0.3


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("sleep", SLOW), "it selects processes of 2 commands: 'sleep 0.02', 'sleep 0.1'"),
        ((FAST, FAST), "both select the same processes"),
        ((FAST, SLOW, "--why"), "these are timed processes, which have no phases"),
        ((FAST, "other"), "there are no runs in"),
    ],
)
def test_a_comparison_of_recorded_commands_says_what_it_cannot_compare(time, still, words, found):
    time(FAST, "--vs", SLOW, "-n", 1)
    code, _, err = time(*words, verb="compare")
    assert code == 2
    assert found in err


def test_the_same_command_in_two_stores_is_labelled_by_them_and_was_not_interleaved(time, still):
    for store in ("a", "b"):
        time(FAST, "-n", 3, "--store", store)
    code, out, _ = time("a/commands", "b/commands", "--fail-on", "unclear", verb="compare")
    assert code == 4
    assert "sleep 0.02 at b/commands" in out
    assert "not interleaved: measure them together" in " ".join(out.split())


TRACKED = """
import sys
import levelbench

with levelbench.track("mine", target={"accuracy": 0.5}, settings={"lr": float(sys.argv[1])}) as run:
    for epoch in run.epochs(3):
        run.evaluate(0.2 + 0.3 * epoch)
"""


@pytest.mark.slow
def test_blocks_of_track_in_the_commands_are_shown_with_their_times_to_the_target(time, tmp_path):
    (tmp_path / "train.py").write_text(TRACKED)
    python = f"{sys.executable} train.py"
    _, out, _ = time(f"{python} 0.1", "--vs", f"{python} 0.2", "-n", 1)
    assert "tracked: 1 run of mine[lr=0.1], 1 reached the target in " in out
    assert out.endswith("compare them: levelbench compare 'mine[lr=0.1]' 'mine[lr=0.2]'\n")


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "--learning-rate 0.1 --data /some/folder/with/a/long/name"])
def test_the_answer_on_six_commands_fits_24_lines_of_80_characters(time, still, monkeypatch, more):
    """Also where names are long and doubts many."""
    for name, value in {"COLUMNS": "80", "LINES": "24", "TTY_COMPATIBLE": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    first, *others = (f"sleep 0.0{at} {more} --seed {at}" for at in range(1, 7))
    for _ in range(3):
        _, out, _ = time(first, *(word for each in others for word in ("--vs", each)), "-n", 3)
    out = re.sub(r"\x1b\[[0-9;]*m", "", out)
    lines = out.partition("\n\n")[2].splitlines()
    assert sum("SLOWER: " in line for line in lines) == 5
    assert "more doubts" in " ".join(out.split())
    assert len(lines) < 24
    assert all(len(line) <= 80 for line in lines)
