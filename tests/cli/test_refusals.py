"""Bad input: three parts on standard error, the exit code, no traceback, nothing half-written."""

import json
import subprocess
import sys

import pytest


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
        (("run", "digits[lr=fast]"), 2, "float"),
        (("run", "digits[lr"), 2, "digits[lr"),
        (("run", "digits", "--target", "97"), 2, "did you mean 0.97"),
        (("run", "digits", "-n", "0"), 2, "no run at all"),
        (("run", "digits", "-n", "-3"), 2, "no run at all"),
        (("run", "digits", "--seed", "-1"), 2, "negative"),
        (("run", "digits", "--budget", "-1"), 2, "not positive"),
        (("run", "digits", "--epochs", "0"), 2, "not positive"),
        (("run", "digits", "--every", "sometimes"), 2, "1 epoch"),
        (("run", "digits", "--clock", "wal"), 2, "close: wall"),
        (("run", "digits", "--crossing", "confirmd"), 2, "close: confirmed"),
        (("run", "digits", "--fail-on", "slow"), 2, "close: slower"),
        (("run", "digits", "--margin", "2"), 2, "2 per cent"),
        (("run", "digits", "--device", "cuda:77"), 3, "device"),
        (("run", "nowhere.py"), 2, "no such file"),
        (("run", "digits", "digits"), 2, "same specification"),
        (("list", "taskz"), 2, "close: tasks"),
        (("list", "runs", "--sort", "colour"), 2, "colour"),
        (("doctor", "--seconds", "0"), 2, "not positive"),
    ],
)
def test_a_command_that_cannot_be_meant_is_answered_in_three_parts(call, tmp_path, words, code, says):
    store = () if words[0] in ("runn", "doctor") else ("--store", tmp_path / "store")
    found, out, err = call(*words, *store)
    assert found == code
    assert three_parts(err), err
    assert says in err
    assert "Traceback" not in err + out
    assert not list(tmp_path.rglob("*.jsonl"))


def test_an_unknown_option_is_a_usage_error_too(call):
    code, _, err = call("run", "digits", "--trials", "3")
    assert code == 2
    assert "--trials" in err


def test_under_json_the_error_is_json_as_well(call, tmp_path):
    code, out, _ = call("run", "digitz", "--json", "--store", tmp_path)
    error = json.loads(out)["error"]
    assert error["exit_code"] == code == 2
    assert {"asked", "found", "do"} < set(error)


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


@pytest.mark.parametrize("verb", ["show", "compare"])
def test_a_selection_of_nothing_says_what_there_is(call, store, verb):
    words = ("digitz",) if verb == "show" else ("digitz", "digits")
    code, _, err = call(verb, *words, "--store", store)
    assert code == 2
    assert three_parts(err)
    assert "close: digits" in err


def test_a_record_of_a_future_schema_is_refused_and_says_to_upgrade(call, store):
    path = next(iter(store.rglob("*aaaa0000.jsonl")))
    path.write_text(path.read_text().replace('"schema":1', '"schema":99', 1))
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
    assert "target validation top1 >= 0.96 and validation top1 >= 0.95" in err


def test_runs_of_another_task_are_not_compared(call, store, write):
    write(0, "cccc0000", task="letters")
    code, _, err = call("compare", "aaaa0000", "cccc0000", "--store", store)
    assert code == 2
    assert "task digits and letters" in err


def test_one_side_that_means_several_kinds_of_runs_is_refused(call, store):
    code, _, err = call("compare", "digits", "aaaa0000", "--store", store)
    assert code == 2
    assert "name one of them" in err


def test_other_machines_are_shown_first_and_get_no_verdict_unless_asked(call, store, write):
    for seed in range(5):
        write(seed, f"cccc000{seed}", machine="m2", framework="jax", step_ms=1 + seed / 100)
    words = ("compare", "digits[framework=numpy]", "digits[framework=jax]", "--store", store)
    code, out, _ = call(*words)
    assert code == 4
    assert out.index("different machines") < out.index("no verdict on time")
    assert "processor m1" in out
    code, out, _ = call(*words, "--across-machines")
    assert "no verdict" not in out
    assert code in (0, 1, 4)


def test_an_interrupted_run_has_no_say_in_a_verdict(call, store, write):
    write(9, "cccc0009", qualities=[0.5], status="interrupted")
    out = call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)[1]
    assert "n = 5 + 5" in out


def test_a_reader_that_closes_early_meets_no_traceback(store):
    command = f"{sys.executable} -m levelbench list runs --json --store {store} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
