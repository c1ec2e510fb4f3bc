"""``levelbench run`` that is interrupted, terminated or no longer read keeps what is done and can go on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from levelbench import cli
from levelbench.records import Store


def begun(store, *words, n=40, ctrl_c=signal.SIG_DFL):
    """The program in a process group of its own, as a terminal starts it, once the first of its many runs is done.

    ``ctrl_c`` is what it inherits for the interrupt, whatever the tests themselves inherited.
    """
    command = [sys.executable, "-m", "levelbench", "run", "digits", "--framework", "numpy", "--no-report"]
    own = signal.signal(signal.SIGINT, ctrl_c)
    process = subprocess.Popen(
        [*command, "-n", str(n), "--store", str(store), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, own)
    for _ in range(2400):
        if sum(row.status == "done" for row in Store(store).rows()) >= 1:
            break
        time.sleep(0.05)
    return process


def ended(process):
    """What it printed; one that does not end is killed, its children too."""
    try:
        return process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def test_interrupted_from_the_keyboard_it_keeps_what_is_done_and_resumes(tmp_path):
    process, store = begun(tmp_path), Store(tmp_path)
    # As a terminal does: to the whole process group, the child among it.
    os.killpg(process.pid, signal.SIGINT)
    _, err = ended(process)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "the same command resumes from there" in err
    done = sum(row.status == "done" for row in store.rows())
    again = subprocess.run([*process.args, "-n", str(done + 1), "--json"], capture_output=True, timeout=240)
    found = json.loads(again.stdout)
    assert found["plan"] == {"wanted": done + 1, "done_before": done, "run": 1}
    assert all(run["reached"] for run in found["runs"])


@pytest.mark.slow
def test_in_the_background_where_interrupts_are_ignored_no_run_is_interrupted_either(tmp_path):
    # What a shell gives to a command with & in a script: Ctrl-C is meant for the script, and comes to the whole group.
    process = begun(tmp_path, n=4, ctrl_c=signal.SIG_IGN)
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
    _, err = ended(process)
    assert (process.returncode, err) == (0, "")
    assert [row.status for row in Store(tmp_path).rows()] == ["done"] * 4


@pytest.mark.slow
def test_a_request_to_terminate_leaves_things_as_an_interruption_does(tmp_path):
    process = begun(tmp_path, "--fresh")
    os.kill(process.pid, signal.SIGTERM)
    _, err = ended(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert "the same command without --fresh resumes from there" in err
    assert not [row for row in Store(tmp_path).rows() if row.status == "running"]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_no_measurement(tmp_path):
    words = f"-m levelbench run digits --framework numpy -n 2 --no-report --store {tmp_path}"
    command = f"{sys.executable} {words} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row.status for row in Store(tmp_path).rows()] == ["done", "done"]


def test_a_second_interrupt_after_the_answer_to_the_first_leaves_no_traceback(monkeypatch):
    def interrupted(words, received):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_carried_out", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "digits"])
    assert ended.value.code == 128 + signal.SIGINT
