"""Bad input: three parts on standard error, the exit code, no traceback, nothing half-written."""

import json
import subprocess
import sys

import pytest
from tests.cli.conftest import specification, write_run


def three_parts(err):
    return [line.split(":")[0].strip() for line in err.strip().splitlines()[-3:]] == ["error", "found", "do"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("runn", "digits"), 2, "close: run"),
        (("run", "digitz"), 2, "close: digits"),
        (("run", "digits[framework=nunpy]"), 2, "close: numpy"),
        (("run", "digits[recipe=mpl]"), 2, "close: mlp"),
        (("run", "digits[hiden=3]"), 2, "close: hidden"),
        (("run", "digits[lr=fast]"), 2, "lr must be a number"),
        (("run", "digits[lr"), 2, "digits[lr"),
        (("run", "digits", "--target", "97"), 2, "did you mean 0.97"),
        (("run", "digits", "-n", "0"), 2, "at least one run"),
        (("run", "digits", "-n", "-3"), 2, "at least one run"),
        (("run", "digits", "--seed", "-1"), 2, "negative"),
        (("run", "digits", "--budget", "-1"), 2, "impossible time"),
        (("run", "digits", "--epochs", "0"), 2, "not positive"),
        (("run", "digits", "--every", "sometimes"), 2, "1 epoch"),
        (("run", "digits", "--clock", "wal"), 2, "close: wall"),
        (("run", "digits", "--crossing", "confirmd"), 2, "close: confirmed"),
        (("run", "digits", "--fail-on", "slow"), 2, "close: slower"),
        (("run", "digits", "--margin", "2"), 2, "2 per cent"),
        (("run", "digits", "--device", "cuda:77"), 3, "device"),
        (("run", "nowhere.py"), 2, "no such file"),
        (("run", "digits", "--framework", ","), 2, "names none"),
        (("run", "digits", "--recipe", ""), 2, "names none"),
        (("run", "digits", "--trials", "3"), 2, "see levelbench run --help"),
        (("run", "digits", "--runs", "many"), 2, "not a valid integer"),
        (("run", "digits", "digits"), 2, "same specification"),
        (("run", "digits[device=cpu]", "--device", "cuda"), 2, "leave out --device"),
        (("run", "digits[scaling=weak]", "--scaling", "strong", "--ranks", "2"), 2, "leave out --scaling"),
        (("scale", "digits[framework=numpy]", "--framework", "nmpy"), 2, "leave out --framework"),
        (("scale", "digits[ranks=2]"), 2, "--ranks 1,2"),
        (("analyze", "target", "digits[recipe=onecycle]", "--recipe", "mlp"), 2, "leave out --recipe"),
        (("infer", "digits[recipe=onecycle]", "--recipe", "mlp"), 2, "leave out --recipe"),
        (("list", "taskz"), 2, "close: tasks"),
        (("run", "digits", "--lr", "0.1"), 2, "write 'digits[lr=...]' (levelbench list settings digits)"),
        (("run", "digits", "framework=torch"), 2, "write digits[framework=torch]"),
        (("run", "digits[lrate=0.1]"), 2, "close: lr, lr_scale\n   do: levelbench list settings digits"),
        (("run", "digits[recipe=mpl]"), 2, "levelbench list recipes digits"),
        (("run", "digits[seed=3]"), 2, "give the first one as an option: --seed 3"),
        (("run", "digits[lr=-1]"), 2, "digits[recipe=mlp,lr=-1.0]: Momentum with lr=-1.0"),
        (("optimizer", "no-such.py"), 2, "a Python file with an optimizer"),
        (("list", "runs", "--sort", "colour"), 2, "colour"),
        (("doctor", "--seconds", "0"), 2, "not positive"),
    ],
)
def test_a_command_that_cannot_be_meant_is_answered_in_three_parts(call, tmp_path, words, code, says):
    store = () if words[0] in ("runn", "doctor", "optimizer") else ("--store", tmp_path / "store")
    found, out, err = call(*words, *store)
    assert found == code
    assert three_parts(err), err
    assert says in err
    assert "Traceback" not in err + out
    assert not list(tmp_path.rglob("*.jsonl"))


def test_under_json_the_error_is_json_as_well(call, tmp_path):
    code, out, _ = call("run", "digitz", "--json", "--store", tmp_path)
    error = json.loads(out)["error"]
    assert error["exit_code"] == code == 2
    assert {"asked", "found", "do"} < set(error)


def test_under_json_an_unknown_option_is_json_as_well(call):
    code, out, _ = call("run", "digits", "--trials", "3", "--json")
    error = json.loads(out)["error"]
    assert error["exit_code"] == code == 2
    assert "--trials" in error["found"]


def test_a_bug_of_levelbench_ends_in_70_and_says_so_in_one_line(call, monkeypatch, tmp_path):
    def broken(path):
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr("levelbench.cli.options.open_store", broken)
    code, _, err = call("show", "--store", tmp_path)
    assert code == 70
    assert err.count("\n") == 1
    assert "a bug in levelbench" in err
    assert "--debug" in err
    code, _, err = call("show", "--store", tmp_path, "--debug")
    assert code == 70
    assert "in broken" in err
    assert "no such luck" in err


def test_debug_shows_the_traceback(call, tmp_path):
    assert "Traceback" in call("run", "digitz", "--debug", "--store", tmp_path)[2]


def test_a_task_file_that_raises_names_its_line_and_shows_no_traceback(call, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nraise RuntimeError('no luck')\n")
    code, _, err = call("run", path, "--store", tmp_path / "store")
    assert code == 2
    assert "RuntimeError: no luck at line 2" in err
    assert "Traceback" not in err


def test_a_store_that_is_a_file_is_refused(call, tmp_path):
    path = tmp_path / "store"
    path.write_text("not a folder")
    code, _, err = call("run", "digits", "--framework", "numpy", "--store", path)
    assert code == 3
    assert "is a file" in err


def test_a_plug_in_that_raises_hides_no_other_and_says_why(call, monkeypatch, tmp_path):
    from importlib.metadata import EntryPoint

    from levelbench import plugins

    (tmp_path / "wreck_of_a_plug_in.py").write_text("raise ZeroDivisionError('sunk')\n")
    monkeypatch.syspath_prepend(tmp_path)
    known = plugins.names

    def names(kind):
        return {**known(kind), "wreck": EntryPoint("wreck", "wreck_of_a_plug_in:it", f"levelbench.{kind}s")}

    monkeypatch.setattr(plugins, "names", names)
    found = json.loads(call("list", "--json")[1])
    for kind in ("task", "framework"):
        rows = {row[kind]: row for row in found[f"{kind}s"]}
        assert "ZeroDivisionError: sunk" in rows["wreck"]["lacks"]
        assert len(rows) > 2
    assert "sunk" in call("list", "tasks")[1]
    code, _, err = call("run", "wreck", "--store", tmp_path)
    assert code == 2
    assert "task 'wreck'" in err
    assert three_parts(err)


def test_a_side_of_interrupted_runs_alone_is_refused(call, store, write):
    write(9, "cccc0009", qualities=[0.5], status="interrupted")
    code, _, err = call("compare", "aaaa0000", "cccc0009", "--store", store)
    assert code == 2
    assert "its only run was interrupted before it had finished" in err


@pytest.mark.parametrize("verb", ["show", "compare"])
def test_a_selection_of_nothing_says_what_there_is(call, store, verb):
    words = ("digitz",) if verb == "show" else ("digitz", "digits")
    code, _, err = call(verb, *words, "--store", store)
    assert code == 2
    assert three_parts(err)
    assert "close: digits" in err


def test_a_record_of_a_future_schema_is_refused_and_says_to_upgrade(call, store):
    path = next(iter(store.rglob("*aaaa0000.jsonl")))
    path.write_text(path.read_text().replace('"schema":2', '"schema":99', 1))
    code, _, err = call("show", path, "--store", store)
    assert code == 2
    assert "99" in err
    assert three_parts(err)


def test_a_record_with_a_broken_line_is_refused_with_the_lines_number(call, store):
    path = next(iter(store.rglob("*aaaa0000.jsonl")))
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = lines[2][:20] + "\n"
    path.write_text("".join(lines))
    code, _, err = call("show", path, "--store", store)
    assert code == 2
    assert "line 3" in err


def test_one_unreadable_record_does_not_hide_the_others(call, store):
    path = next(iter(store.rglob("*aaaa0000.jsonl")))
    path.write_text("{}\n")
    code, out, err = call("list", "runs", "--json", "--store", store)
    assert code == 0
    assert len(json.loads(out)) == 9
    assert "unreadable" in err


def test_runs_with_another_target_are_not_compared_and_what_differs_is_said(call, store, write):
    for seed in range(3):
        write(seed, f"cccc000{seed}", framework="torch", threshold=0.95)
    code, _, err = call("compare", "aaaa0000", "cccc0000", "--store", store)
    assert code == 2
    assert "target: validation top1 >= 0.96 against validation top1 >= 0.95" in err


def test_runs_of_another_task_are_not_compared(call, store, write):
    write(0, "cccc0000", task="letters")
    code, _, err = call("compare", "aaaa0000", "cccc0000", "--store", store)
    assert code == 2
    assert "task: digits against letters" in err


def test_one_side_that_means_several_kinds_of_runs_is_refused(call, store):
    code, _, err = call("compare", "digits", "aaaa0000", "--store", store)
    assert code == 2
    assert "name one of them" in err


def test_other_machines_are_shown_and_get_no_verdict_unless_asked(call, store, write):
    for seed in range(5):
        write(seed, f"cccc000{seed}", machine="m2", framework="jax", step_ms=1 + seed / 100)
    words = ("compare", "digits[framework=numpy]", "digits[framework=jax]", "--store", store)
    code, out, _ = call(*words)
    assert code == 4
    assert "no verdict: they ran on different machines; compare --across-machines gives one anyway" in out
    assert "processor m1" in out
    assert "why:" not in out
    code, out, _ = call(*words, "--across-machines")
    assert "no verdict" not in out
    assert "doubt: they ran on different machines" in out
    assert code in (0, 1, 4)


def test_an_interrupted_run_has_no_say_in_a_verdict(call, store, write):
    write(9, "cccc0009", qualities=[0.5], status="interrupted")
    out = call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)[1]
    assert "n = 5 + 5" in out


@pytest.mark.parametrize("form", ["--json", "--limit=9", "--help"])
def test_a_reader_that_closes_early_meets_no_traceback_and_no_failure(store, form):
    # The pipe is closed before the first line is written.
    command = f"{sys.executable} -m levelbench list runs {form} --store {store} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_that_nobody_reads_is_one_all_the_same(tmp_path):
    command = f"{sys.executable} -m levelbench run digitz --store {tmp_path} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], timeout=120).returncode == 2


def test_a_check_refuses_a_recipe_that_the_brackets_overrule(call):
    code, _, err = call("check", "digits[recipe=onecycle]", "--recipe", "mlp")
    assert code == 2
    assert "leave out --recipe" in err


@pytest.mark.parametrize(
    "words", [("show", "abcd"), ("compare", "abcd", "ef01"), ("rm", "abcd"), ("list", "runs", "abcd")]
)
def test_an_unknown_id_is_answered_with_how_to_list_runs(call, tmp_path, words):
    write_run(tmp_path, specification(), 0, "aaaa0001bbbb", [0.5, 0.6])
    code, _, err = call(*words, "--store", tmp_path)
    assert code == 2
    assert "levelbench list runs" in err


def test_a_task_without_runs_is_no_error(call, tmp_path):
    write_run(tmp_path, specification(), 0, "aaaa0001bbbb", [0.5, 0.6])
    code, out, _ = call("list", "runs", "cifar10", "--store", tmp_path)
    assert code == 0
    assert "no runs of cifar10" in out


def test_an_option_before_the_command_is_sent_behind_it(call):
    code, _, err = call("--no-color", "run", "digits")
    assert code == 2
    assert "options follow the command: levelbench run ... --no-color" in err
