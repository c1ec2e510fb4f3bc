"""Processes of commands: what is timed, how they end, and what becomes of what they leave behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import LevelbenchError, RecordError, UsageError
from levelbench.experiments import command_process
from levelbench.experiments.command_process import carry_out_command
from levelbench.experiments.commands import Preparation, doubts_of, failure_of, make_command, numbered, which_python
from levelbench.measure.clocks import HostClock
from levelbench.measure.meters.resources import own_cpu_s
from levelbench.records import lines
from levelbench.records.commands import CommandRecord, summarise_commands

pytestmark = pytest.mark.sampled(3)

PYTHON = sys.executable


def carried_out(text, timeout_s=None, **given):
    return carry_out_command(make_command(text, Path.cwd(), **given), timeout_s)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_the_time_is_that_of_the_whole_process_and_waiting_is_no_work():
    ended = carried_out("sleep 0.2")
    assert ended.wall_ns >= 0.2e9
    assert ended.user_s + ended.system_s < 0.1
    assert (ended.exit_code, ended.left, ended.timed_out) == (0, False, False)


def test_the_work_of_processes_that_it_waited_for_is_its_own(tmp_path):
    work = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    (script := tmp_path / "parent.py").write_text(parent)
    ended = carried_out(f"{PYTHON} {script}")
    assert ended.user_s + ended.system_s >= 0.25


def test_its_peak_memory_is_known_where_it_is_above_ours():
    # In a process of its own, whose memory is that of the command line. A shell lies between: a process that is started
    # begins with the peak of the one that started it, and this one may have grown.
    command = f"{PYTHON} -c \"x = b'1' * 600_000_000\""
    text = f"""
from pathlib import Path
from levelbench.experiments.command_process import carry_out_command
from levelbench.experiments.commands import make_command
print(carry_out_command(make_command({command!r}, Path.cwd())).peak_memory_b)
"""
    words = ["sh", "-c", '"$0" -c "$1"; exit $?', PYTHON, text]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert 600e6 < int(done.stdout) < 800e6


LARGE = "x = b'1' * 600_000_000"


@pytest.mark.parametrize(
    "before", [LARGE, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LARGE!r}])"]
)
def test_the_memory_of_a_program_whose_shell_is_ended_counts(tmp_path, before):
    """Also that of its own programs, which have ended by then. In a process of its own, as above."""
    (tmp_path / "large.py").write_text(f"{before}\nprint('accuracy 0.95', flush=True)\nimport time; time.sleep(60)")
    (script := tmp_path / "two.sh").write_text(f"{PYTHON} -c pass\n{PYTHON} {tmp_path}/large.py | cat\n")
    text = f"""
from pathlib import Path
from levelbench.experiments.command_process import carry_out_command
from levelbench.experiments.commands import make_command
ended = carry_out_command(make_command("sh {script}", Path.cwd()), read=lambda line, _: "0.95" in line)
print(ended.stopped, ended.peak_memory_b)
"""
    words = ["sh", "-c", '"$0" -c "$1"; exit $?', PYTHON, text]
    stopped, peak_b = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert stopped == "True"
    assert 600e6 < int(peak_b) < 1200e6


def test_a_program_smaller_than_we_are_has_no_known_peak():
    # The kernel counts what a process had before it became another program to that program.
    assert carried_out("true").peak_memory_b is None


@pytest.mark.parametrize(("text", "code"), [("true", 0), ("sh -c 'exit 7'", 7), (r"sh -c 'kill -9 $$'", -9)])
def test_its_exit_code_is_told_and_a_signals_number_below_zero(text, code):
    assert carried_out(text).exit_code == code


def test_a_signal_without_a_name_is_told_by_its_number():
    ended = carried_out("sh -c 'kill -40 $$'")
    assert failure_of(ended, None) == "it was killed by signal 40"


def test_what_outlives_its_time_is_ended_with_all_that_it_started():
    ended = carried_out(f"{PYTHON} -c 'import time; time.sleep(60)' & sleep 60", 0.3)
    assert ended.timed_out
    assert 0.3e9 <= ended.wall_ns < 30e9


@pytest.mark.slow
def test_what_it_leaves_behind_is_ended_even_if_it_does_not_listen(tmp_path):
    deaf = f"{PYTHON} -c 'import os,signal,time,pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    deaf += f'pathlib.Path("{tmp_path}/pid").write_text(str(os.getpid())); time.sleep(60)\' & '
    ended = carried_out(deaf + f"while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done")
    assert ended.left
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("where", ["", " >&2"])
def test_much_output_is_thrown_away_and_only_the_last_of_the_errors_is_kept(where):
    text = f'{PYTHON} -c "import sys; sys.stdout.buffer.write(bytes(range(256)) * 400_000)"{where}'
    ended = carried_out(text)
    assert ended.exit_code == 0
    assert len(ended.errors) <= 4096


def test_the_processor_time_of_workers_that_outlive_their_program_is_no_load_of_others(tmp_path):
    program = tmp_path / "loads.py"
    program.write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "began = time.monotonic()\n"
        "while time.monotonic() - began < 0.6: time.sleep(0.01)\n"
    )
    before_s = own_cpu_s()
    ended = carry_out_command(make_command(f"{sys.executable} {program}", tmp_path))
    assert ended.left
    # What is left of a core is the machine's; a busy one gives a part of it.
    assert own_cpu_s() - before_s > ended.user_s + 0.1


def test_commands_that_differ_in_what_is_hidden_are_told_apart(tmp_path):
    one, other = (make_command(f"API_TOKEN=x{name} prog --password {name}", tmp_path) for name in ("abc", "abd"))
    assert one.specification != other.specification
    for each in (one, other):
        assert each.specification.title == "prog"
        assert each.specification.command.startswith("API_TOKEN=... prog --password ... #")


def test_a_child_that_has_ended_by_itself_was_not_left_behind():
    assert not carried_out("sh -c '(sleep 0.02 &) ; sleep 0.3'").left


@pytest.mark.parametrize("text", ["'x' * 300_000_000", "'x\\n' * 1_000_000"])
def test_lines_are_read_at_the_speed_of_their_bytes(text):
    seen = []
    command = make_command(f'{PYTHON} -c "import sys; sys.stdout.write({text})"', Path.cwd())
    ended = carry_out_command(command, 60.0, read=lambda line, _: bool(seen.append(len(line))))
    assert not ended.timed_out
    assert sum(seen) >= 1 << 16


def test_standard_input_is_empty():
    assert carried_out("cat").wall_ns < 30e9


@pytest.mark.parametrize(
    ("text", "shell"),
    [
        ("python train.py --lr 0.1", False),
        ("python 'my file.py'", False),
        ("make a && make b", True),
        ("OMP_NUM_THREADS=1 python a.py", True),
        ("echo $HOME", True),
        ("ls *.py", True),
        ("python -c 'print($x; 1)'", False),
        ('python -c "print(1)"', False),
        ('python -c "$code"', True),
        (r"echo \; a", False),
    ],
)
def test_a_shell_carries_out_what_only_a_shell_knows(text, shell):
    command = make_command(text, Path.cwd())
    assert command.specification.shell is shell
    assert (command.words[0] == "/bin/sh") is shell


@pytest.mark.parametrize("text", ["", "   ", "python 'a.py"])
def test_an_empty_command_or_an_open_quote_is_refused(text):
    with pytest.raises(UsageError):
        make_command(text, Path.cwd())


@given(st.text())
def test_any_text_is_a_command_or_refused(text):
    with suppress(UsageError):
        assert make_command(text, Path("/")).words


def test_a_program_that_is_not_there_is_missing():
    with pytest.raises(LevelbenchError, match="cannot be started") as refused:
        carried_out("no-such-program --x")
    assert refused.value.exit_code == 3


def test_secrets_of_a_command_are_not_in_its_record():
    said = make_command("train --api-key=abcdef1234567890 --lr 0.1", Path.cwd()).specification
    assert "abcdef" not in said.command
    assert "--lr 0.1" in said.command


@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ("false | true", True),
        ("false || true", True),
        ("false; true", True),
        ("false\ntrue", True),
        ("for i in 1 2; do false; done", True),
        ("bash -c 'false; true'", True),
        ("echo '|' && true", False),
        ("cd .; true", False),
        ("export A=1; B=2; cd . && true;", False),
        ("set -e; cd .; true; true", False),
        ("cd . || exit 1; true && true || { echo no; exit 2; }; true", False),
        ("false || exit 0; true", True),
        ("bash -ec 'true; true'", False),
        ("echo 'false; true'", False),
        ("true", False),
    ],
)
def test_a_shell_that_ends_well_whatever_fails_is_a_doubt(text, doubted):
    command = make_command(text, Path.cwd())
    assert any("nobody notices" in each for each in doubts_of(command, carry_out_command(command))) is doubted


@pytest.mark.parametrize(
    ("starts", "doubted"),
    [
        (f"os.system({PYTHON + ' nofile.py'!r})", True),
        ("subprocess.run('pyhton3 -V', shell=True)", True),
        ("subprocess.run([sys.executable, 'nofile.py'])", True),
        ("os.system('cat nofile.txt')", False),
        ("print('cache: not found', file=sys.stderr)", False),
    ],
)
def test_a_program_that_goes_on_although_nothing_was_started_is_a_doubt(tmp_path, starts, doubted):
    (tmp_path / "run.py").write_text(f"import os, subprocess, sys\n{starts}\n")
    command = make_command(f"{PYTHON} run.py", tmp_path)
    told = doubts_of(command, carry_out_command(command))
    assert [each.startswith("it ended with exit code 0 and printed") for each in told] == [True] * doubted


@pytest.mark.parametrize(
    ("shell", "before", "doubted"),
    [
        ("sh", "cd nodir", "cd: "),
        ("bash", "cd nodir", "cd: nodir"),
        ("bash", ". ./nofile", "nofile: No such file or directory"),
        ("bash", "export 1a=2", "export: "),
        ("bash", "umask 999", "umask: "),
        ("sh", "export A=$(cat nofile)", "No such file or directory"),
        ("sh", ". ./other.sh", "No such file or directory"),
        ("sh", "cd . || exit 1", ""),
        ("sh", "cd .", ""),
        ("sh", "cd . &&", ""),
    ],
)
def test_a_builtin_that_fails_before_the_program_is_a_doubt(tmp_path, shell, before, doubted):
    (tmp_path / "other.sh").write_text("cat nofile\n")
    (tmp_path / "run.sh").write_text(f"{before}\n{'true' if doubted else 'echo a: Permission denied >&2'}\n")
    for text in (f"{shell} run.sh", f"{shell} -c '{before} \n true'"):
        command = make_command(text, tmp_path)
        told = [each for each in doubts_of(command, carry_out_command(command)) if "exit code 0" in each]
        assert [doubted in each for each in told] == [True] * bool(doubted), text


@pytest.mark.parametrize("start", ["bash run.sh", "set -e; ./plain", "./plain"])
@pytest.mark.parametrize(
    "said",
    [
        "./run.sh: line 2: [: -gt: unary operator expected",
        "./env.sh: line 4: syntax error: unexpected end of file",
        './run.sh: line 3: ((: 1000k: value too great for base (error token is "1000k")',
        "./plain: line 2: X: readonly variable",
        "run.sh: line 2: shopt: nosuch: invalid shell option name",
        'bash: line 1: 1/0: division by 0 (error token is "0")',
        "/opt/env/bin/activate: line 7: let: expression expected",
        "./run.sh: 2: [: -gt: unexpected operator",
        "/bin/sh: 2: [: -gt: unexpected operator",
        "./run.sh:[:2: unknown condition: -gt",
        "run.sh: line 2:   123 Bus error               ./train",
        "zsh:1: bad math expression: operator expected at `k'",
        "EnvironmentNameNotFound: Could not find conda environment: nosuch",
        "Lmod has detected the following error: these modules are unknown",
    ],
)
def test_what_a_shell_says_of_a_line_of_its_script_is_a_doubt(tmp_path, start, said):
    told = _told_of_a_script_that_says(tmp_path, start, said)
    assert [repr(said) in each for each in told] == [True]


def test_a_file_that_a_script_sources_is_a_script_whatever_its_name(tmp_path):
    (said,) = _told_of_a_script_that_says(tmp_path, "./plain", "cluster/settings: line 7: let: expression expected")
    assert "let: expression expected" in said


@pytest.mark.parametrize("start", ["bash run.sh train.log", "./plain"])
@pytest.mark.parametrize(
    "said",
    [
        "file.py:12: UserWarning: slow",
        "x.c:3: warning: unused variable",
        "x.c:12:5: note: declared here",
        "run.sh:12:5: note: Double quote to prevent globbing",
        "run.sh:3:    python train.py",
        "run.sh:3:python train.py",
        "10:32: step 5",
        "train.log: 5: ok",
        "train.log: line 5: ok",
        "settings.yaml: line 5: unknown key",
        "+ run.sh:3: python train.py",
        "run.sh: step 5: done",
        "bash: warning: setlocale: LC_ALL: cannot change locale (xx_YY)",
        "run.sh: line 1: warning: setlocale: LC_ALL: cannot change locale (xx_YY)",
        "run.sh: line 1: 12345 Terminated              sleep 60",
        "run.sh: line 1:   123 Terminated              sleep 60",
        "run.sh: line 1: kill: (12345) - No such process",
        "run.sh:kill:1: kill 12345 failed: no such process",
    ],
)
def test_a_line_that_resembles_what_a_shell_says_is_no_doubt(tmp_path, start, said):
    assert _told_of_a_script_that_says(tmp_path, start, said) == []


def _told_of_a_script_that_says(folder, start, said):
    (folder / "says").write_text(said + "\n")
    for name in ("run.sh", "plain"):
        (folder / name).write_text("#!/bin/bash\n: || . cluster/settings\ncat says >&2\necho done\n")
        (folder / name).chmod(0o755)
    command = make_command(start, folder)
    return [each for each in doubts_of(command, carry_out_command(command)) if "exit code 0" in each]


@pytest.mark.parametrize("shell", ["bash", "sh", "zsh"])
@pytest.mark.parametrize(
    ("line", "doubted"),
    [
        ("[ $NOT_SET_AT_ALL -gt 1 ]", True),
        ("if [ a -gt 1 ]; then exit; fi", True),
        ("cd /nonexistent; echo fallback", True),
        ("[[ -e / || -e . ]]; cd /nonexistent", True),
        ("cd /nonexistent || echo fallback", False),
        ("ulimit -n 999999999999 || true", False),
        ("source ./nofile || true", False),
        ("source ./nofile; true || true", True),
    ],
)
def test_a_builtin_with_an_alternative_may_fail(tmp_path, shell, line, doubted):
    if shutil.which(shell) is None or (shell == "sh" and "[[" in line) or (shell != "bash" and "source" in line):
        pytest.skip(f"this is not for {shell}, or there is none")
    (tmp_path / "run.sh").write_text(f"# a comment\n\n{line}\ncd .\ntrue\n")
    command = make_command(f"{shell} run.sh", tmp_path)
    told = doubts_of(command, carry_out_command(command))
    assert ["exit code 0" in each for each in told] == [True] * doubted


def test_a_crash_that_ends_with_exit_code_0_is_a_doubt(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f"{PYTHON} -c 'import nothing_of_this_name'\necho done\n")
    command = make_command(f"sh {script}", Path.cwd())
    (said,) = doubts_of(command, carry_out_command(command))
    assert said.startswith("it ended with exit code 0 and printed 'Traceback (most recent call last)'")
    command = make_command(f"{PYTHON} -c 'print(1)'", Path.cwd())
    assert doubts_of(command, carry_out_command(command)) == []


@pytest.mark.parametrize(
    ("said", "doubted"),
    [
        ("ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError"),
        ("started\nError: no GPU found", "Error"),
        ("Error: trying again\ndone", ""),
        ("UserWarning: slower without No module named 'x'", ""),
        ("epoch 3 error: 0.1", ""),
        ("Error: 0.0532 on held-out data", ""),
        ("MeanSquaredError: 12 %", ""),
        ("error: nan\nerror: 3e-7", ""),
        ("error(val)=0.05", ""),
        ("error: < 0.01", ""),
        ("error: none", ""),
        ("Error: 3 of 4 shards are missing", "Error"),
        ("KeyError('epoch')", "KeyError"),
        ("Error: 404 Not Found", "Error"),
        ("train.py: error: no data", "error"),
        ("ImportError('no GPU')", "ImportError"),
        ("2026-01-02 03:04:05,678 ERROR no GPU found", "ERROR"),
        ("[ERROR] no GPU found", "ERROR"),
        ("2026-01-02 03:04:05,678 INFO no ERROR found", ""),
        ("Exception ignored in: <function f>\nTraceback (most recent call last):\n  File 'a'\nKeyError: 1", ""),
    ],
)
def test_a_program_whose_last_words_are_an_error_and_that_ends_well_is_a_doubt(tmp_path, said, doubted):
    command = make_command(f"{PYTHON} say.py", tmp_path)
    (tmp_path / "say.py").write_text(f"import sys\nprint({said!r}, file=sys.stderr)")
    found = doubts_of(command, carry_out_command(command))
    assert [f"printed {doubted!r}" in each for each in found] == [True] * bool(doubted)


FAILURES = [
    "{python} nofile.py",
    "./nope",
    "cat nofile.txt",
    "cd nodir && true",
    "{python} -m no_module_of_this_name",
    "{python} -c 'import os; os.kill(os.getpid(), 9)'",
    "{python} -m json.tool --no-such-option",
]
HONEST = ["echo all files are there", "test -e nofile.txt || true", "{python} -c 'print(1)' # killed"]


@pytest.mark.parametrize(
    ("start", "shell"), [("./run.sh", "/usr/bin/env bash"), ("./run.sh", "/bin/sh"), ("bash -x run.sh", "/bin/sh")]
)
@pytest.mark.parametrize(
    ("line", "doubted"), [*((each, True) for each in FAILURES), *((each, False) for each in HONEST)]
)
def test_a_script_that_goes_on_after_what_looks_like_a_failure_is_a_doubt(tmp_path, line, doubted, start, shell):
    script = tmp_path / "run.sh"
    script.write_text(f"#!{shell}\n# a comment\n{line.format(python=PYTHON)}\necho done\n")
    script.chmod(0o755)
    command = make_command(start, tmp_path)
    told = doubts_of(command, carry_out_command(command))
    assert [each.startswith("it ended with exit code 0 and printed") for each in told] == [True] * doubted


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nset -e\nls nofile || true\necho done\n",
        "#!/bin/sh -e\nls nofile || true\necho done\n",
        f"#!{PYTHON}\nimport sys\nprint('No such file or directory', file=sys.stderr)\n",
        "#!/bin/sh\necho 'libcuda.so: cannot open shared object file: No such file or directory' >&2\necho done\n",
        "#!/bin/bash\nsleep 60 &\nsleep 0.1\nkill $!\nwait\n",
        "#!/bin/sh\nexport A=1\necho 'x: No such file or directory' >&2\n",
    ],
)
def test_what_only_looks_like_a_failure_is_no_doubt_where_a_failure_would_be_heard(tmp_path, text):
    script = tmp_path / "run"
    script.write_text(text)
    script.chmod(0o755)
    command = make_command("./run", tmp_path)
    assert doubts_of(command, carry_out_command(command)) == []


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_what_a_makefile_does_not_hear_of_is_a_doubt(tmp_path):
    (tmp_path / "Makefile").write_text(f"all:\n\t@{PYTHON} nofile.py; true\n")
    command = make_command("make", tmp_path)
    (said,) = doubts_of(command, carry_out_command(command))
    assert "can't open file" in said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes lose their parent")
def test_work_in_a_session_of_its_own_is_a_doubt(tmp_path):
    kept = tmp_path / "pid"
    program = tmp_path / "leaves.py"
    program.write_text(
        "import pathlib, subprocess\n"
        "left = subprocess.Popen(['sleep', '60'], start_new_session=True, stderr=subprocess.DEVNULL)\n"
        f"pathlib.Path({str(kept)!r}).write_text(str(left.pid))\n"
    )
    command = make_command(f"{PYTHON} {program}", Path.cwd())
    try:
        (said,) = doubts_of(command, carry_out_command(command))
        assert said.startswith("it left processes running in a session of their own")
    finally:
        os.kill(int(kept.read_text()), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes lose their parent")
@pytest.mark.parametrize("work_s", [0.3, 3.0])
def test_a_command_that_puts_its_work_into_a_daemon_gets_no_verdict(tmp_path, work_s):
    program = tmp_path / "daemon.py"
    program.write_text(
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"
        f"time.sleep({work_s})\n"
    )
    text = f"{PYTHON} {program}"
    found = measured(tmp_path / "store", "sleep 0.3", text, times=3).entries[1].verdict
    assert (found.kind, found.runs_to_settle) == ("UNCLEAR", None)
    assert found.reason == f"{text} left processes running, whose time is not in it: wait for them"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sbatch job.sh", "sbatch"),
        ("cd jobs && X=1 sbatch -n 2 job.sh", "sbatch"),
        ("sbatch --wait job.sh", ""),
        ("id=$(sbatch job.sh); while squeue -h -j $id; do sleep 5; done", ""),
        ("bash job.sh sbatch", ""),
        ("qsub job.sh", "qsub"),
        ("qsub -sync y job.sh", ""),
        ("bsub ./a", "bsub"),
        ("bsub -K ./a", ""),
        ("docker run --rm -v a:b -d image", "docker run"),
        ("docker run --rm image -d 3", ""),
        ("docker run -it image", ""),
        ("podman run --detach image", "podman run"),
        ("kubectl apply -f job.yaml", "kubectl apply"),
        ("kubectl apply -f job.yaml && kubectl wait --for=condition=complete job/a", ""),
        ("systemd-run ./a", "systemd-run"),
        ("systemd-run --wait ./a", ""),
        ("tmux new-session -d ./a", "tmux new-session"),
        ("screen -dm ./a", "screen"),
    ],
)
def test_a_program_that_only_hands_work_over_is_a_doubt(tmp_path, text, name):
    nothing = carry_out_command(make_command("true", tmp_path))
    told = [each.split(" hands work over")[0] for each in doubts_of(make_command(text, tmp_path), nothing)]
    assert [each for each in told if " when " not in each and "shell" not in each] == [name] * bool(name)


def test_a_script_that_only_submits_a_job_is_a_doubt(tmp_path):
    (tmp_path / "submit.sh").write_text("#!/bin/sh\n#SBATCH -n 1\nset -e\necho submitting\nsbatch job.sh\n")
    nothing = carry_out_command(make_command("true", tmp_path))
    (said,) = doubts_of(make_command("bash submit.sh", tmp_path), nothing)
    assert said == "sbatch hands work over and ends, so its time is not that of the work: use sbatch --wait"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes lose their parent")
def test_a_helper_in_a_session_of_its_own_that_ends_in_time_is_no_doubt(tmp_path):
    ended = carry_out_command(make_command("setsid -f true 2>/dev/null; sleep 1", tmp_path))
    assert (ended.left, ended.lingered, ended.fled) == (False, False, False)


@pytest.mark.parametrize(
    ("text", "last", "told"),
    [
        ("python a.py", "ModuleNotFoundError: No module named 'torch'", True),
        ("python3.11 a.py", "ModuleNotFoundError: No module named 'torch'", True),
        ("/opt/python a.py", "ModuleNotFoundError: No module named 'torch'", False),
        ("python a.py", "ValueError: 3", False),
        ("python a.py", "", False),
    ],
)
def test_where_a_module_is_missing_it_says_which_python_the_command_means(text, last, told):
    said = which_python(make_command(text, Path.cwd()), last)
    assert (f"{shutil.which(text.split()[0])} here" in said) is told
    assert bool(said) is told


@pytest.mark.slow
def test_a_command_of_which_every_process_failed_gets_no_verdict(tmp_path):
    found = measured(tmp_path, "sleep 0.1", "false").entries[1].verdict
    assert (found.kind, found.runs_to_settle) == ("UNCLEAR", None)
    assert found.reason == "false failed in every process: how long its work takes is unknown"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("bytes(10_000)", "it read cache.bin (unless another program did), which an earlier run wrote"),
        ("b'x'", "the first process of the command"),
    ],
)
def test_a_cache_that_an_earlier_command_filled_is_a_doubt_when_it_is_repeated(tmp_path, monkeypatch, kept, said):
    monkeypatch.chdir(tmp_path)
    Path("caches.py").write_text(
        "import pathlib, time\n"
        "cache = pathlib.Path('cache.bin')\n"
        f"cache.read_bytes() if cache.exists() else (time.sleep(5), cache.write_bytes({kept}))\n"
    )
    for _ in range(2):
        found = measured(tmp_path / "store", f"{PYTHON} caches.py", "sleep 0.1", fresh=True)
    assert any(said in each for each in found.suspect)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("user", 5.0, "it spent 5"),
        ("wall", 1e4, "the process took 10000 s, and"),
        ("wall", None, ""),
    ],
)
def test_a_record_whose_figures_exclude_each_other_is_refused_and_measured_again(tmp_path, name, value, said):
    measured(tmp_path, "sleep 0.1", times=1)
    (path,) = tmp_path.rglob("*.jsonlines")
    forged, before = b"", ""
    for line in path.read_bytes().splitlines(keepends=True):
        event = json.loads(line)
        del event["sum"]
        if event.get("name") == name and value is not None:
            event["value"] = value
        # As a forger does it, who knows how records are summed.
        forged += lines.sealed(json.dumps(event, separators=(",", ":")).encode() + b"\n", before)
        before = lines.checksum_in(forged.splitlines(keepends=True)[-1])
    path.write_bytes(forged)
    if not said:
        assert CommandRecord.read(path).measurements["wall"].value >= 0.1
        return
    with pytest.raises(RecordError, match=f"it contradicts itself: {said}"):
        CommandRecord.read(path)
    measured(tmp_path, "sleep 0.1", times=1)
    assert len([*tmp_path.rglob("*.jsonlines")]) == 2


@pytest.mark.slow
def test_more_time_on_all_processors_than_passed_on_the_clock_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(HostClock, "now_ns", staticmethod(lambda: time.monotonic_ns() // 10))
    with pytest.raises(LevelbenchError, match="it contradicts itself: it spent"):
        measured(tmp_path, f"{PYTHON} -c 'import time\nwhile time.process_time() < 1: pass'", times=1)


def test_arms_that_are_alike_are_told_apart_by_a_number():
    a, b, c = numbered(make_command(text, Path.cwd()) for text in ("true", "false", "true"))
    assert [each.specification.name for each in (a, b, c)] == ["true", "false", "true (2)"]


@pytest.mark.parametrize("by", ["SIGINT", "SIGKILL"])
def test_a_command_whose_measurement_is_ended_leaves_no_process_behind(tmp_path, by):
    text = f"""
import os, signal, threading, time, pathlib
from levelbench.experiments import command_process
from levelbench.experiments.command_process import carry_out_command
from levelbench.experiments.commands import make_command
guarded, known = command_process._guarded, threading.Event()
command_process._guarded = lambda group: (guarded(group), group and known.set())
def interrupt():
    known.wait()
    while not pathlib.Path("pid").exists() or not pathlib.Path("pid").read_text().strip():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.{by})
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt, daemon=True).start()
try:
    carry_out_command(make_command("echo $$ > pid; sleep 60; true", pathlib.Path({str(tmp_path)!r})))
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([PYTHON, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == ("interrupted" if by == "SIGINT" else ""), done.stderr
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


def test_an_interruption_while_a_command_is_being_started_leaves_no_process_behind(tmp_path, monkeypatch):
    started, begin = [], subprocess.Popen

    def interrupted_start(*words, **options):
        started.append(begin(*words, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr("levelbench.experiments.command_process.subprocess.Popen", interrupted_start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            carry_out_command(make_command("sleep 60", tmp_path))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert not alive(started[0].pid)


def measured(store, *texts, times=3, fresh=False, warmup=0):
    """The summary of commands that were each started so often, in turns; ``fresh`` takes none from the store."""
    from levelbench.experiments.commands import CommandBenchmarks
    from levelbench.experiments.kernel import Watcher, carry_out, make_plan
    from levelbench.measure.environment import capture

    commands = [make_command(text, Path.cwd()) for text in texts]
    kind = CommandBenchmarks(store, commands, ignore_failure=True, warmup=warmup)
    plan = make_plan(kind, [each.specification for each in commands], range(times), capture(), fresh=fresh)
    (arms,) = plan.arranged(carry_out(plan, kind, Watcher()))
    return summarise_commands(arms)


CATCHES = """
import traceback, sys
for _ in range(2):
    try:
        raise ValueError("no such data")
    except ValueError:
        traceback.print_exc(file=sys.stdout)
    {then}
"""


@pytest.mark.parametrize(("then", "doubted"), [("pass", True), ('print("done")', False), ("sys.exit(2)", False)])
def test_a_traceback_at_the_end_of_the_output_of_a_warm_up_is_a_doubt(tmp_path, monkeypatch, then, doubted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catches.py").write_text(CATCHES.format(then=then))
    found = measured(tmp_path / "store", f"{sys.executable} catches.py", times=1, warmup=1)
    said = [each for each in found.suspect if "after a traceback (ValueError: no such data)" in each]
    assert [("its warm-up" in each) for each in said] == [True] * doubted


@pytest.mark.slow
def test_a_helper_that_ends_right_after_its_program_is_told_from_work_that_was_left(tmp_path, monkeypatch):
    # However busy the machine is.
    monkeypatch.setattr(command_process, "_SOON_S", 60.0)
    monkeypatch.setattr(command_process, "_SOON_SHARE", 1e6)
    command = make_command("sleep 1 & true", tmp_path)
    ended = carry_out_command(command)
    assert (ended.left, ended.lingered) == (False, True)
    assert [each for each in doubts_of(command, ended) if "ended right after it" in each]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_what_a_track_block_looks_at_is_not_the_reading_of_its_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import os, levelbench\n"
        "with levelbench.track('t', target={'accuracy': 0.9}, store='kept') as run:\n"
        "    for epoch in run.epochs(9):\n"
        "        open('best.bin', 'wb').write(os.urandom(9000)); run.evaluate(0.5 + epoch / 12)\n"
    )
    found = measured(tmp_path / "store", f"{PYTHON} {tmp_path / 'train.py'}", times=3)
    assert not [each for each in found.suspect if "best.bin" in each]


@pytest.mark.slow
def test_the_helper_that_multiprocessing_leaves_for_a_moment_is_no_work_that_was_left(tmp_path):
    (tmp_path / "pool.py").write_text(
        "import multiprocessing as m, time\n"
        "if __name__ == '__main__':\n"
        "    m.set_start_method('spawn')\n"
        "    with m.Pool(2) as pool: pool.map(time.sleep, [0.01] * 2)\n"
    )
    for _ in range(5):
        ended = carry_out_command(make_command(f"{PYTHON} pool.py", tmp_path))
        assert (ended.left, ended.lingered, ended.fled) == (False, False, False)


@pytest.mark.slow
@pytest.mark.parametrize("texts", [("sleep 0.1", "sleep 0.1 & true"), ("sleep 0.1 & true", "sleep 0.1")])
def test_a_command_that_leaves_its_work_to_the_background_gets_no_verdict(tmp_path, texts):
    found = measured(tmp_path, *texts, times=5).entries[1].verdict
    assert (found.kind, found.runs_to_settle) == ("UNCLEAR", None)
    assert found.reason == "sleep 0.1 & true left processes running, whose time is not in it: wait for them"


@pytest.mark.slow
def test_a_command_whose_first_process_took_much_longer_is_doubted(tmp_path):
    kept = tmp_path / "kept"
    summary = measured(tmp_path, "sleep 0.05", f"sh -c 'test -e {kept} || sleep 1; touch {kept}'")
    (said,) = [each for each in summary.suspect if "the first process" in each]
    assert "so those may use what it left behind, such as a cache: clear it with --prepare" in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ("sh -c 'test -s kept || head -c 9000 /dev/zero > kept; cat kept > /dev/null'", True),
        ("sh -c 'cat kept > /dev/null 2>&1; head -c 9000 /dev/zero > kept'", True),
        (
            "sh -c 'test -e kept || touch kept; exec 3<kept; head -c 9 <&3 > /dev/null; head -c 9000 /dev/zero > kept'",
            True,
        ),
        ("sh -c 'head -c 9000 /dev/zero > kept; cat kept > /dev/null'", False),
        ("sh -c 'cat given > /dev/null; cat given > other'", False),
        ("sh -c 'cat log > /dev/null 2>&1; echo done >> log'", False),
    ],
    ids=["cache", "checkpoint", "held open", "its own", "data", "log"],
)
def test_a_command_that_reads_what_its_earlier_processes_wrote_is_a_doubt(tmp_path, monkeypatch, text, doubted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").write_bytes(bytes(9000))
    summary = measured(tmp_path / "store", "sleep 0.01", text, times=2)
    assert (
        bool([each for each in summary.suspect if "it read kept (unless another program did), which" in each])
        is doubted
    )


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize(("times", "doubted"), [(2, False), (5, True)])
def test_data_that_few_processes_read_may_have_been_read_by_another_program(tmp_path, monkeypatch, times, doubted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.npz").write_text("1")
    text = f"sh -c 'echo >> count; test $(wc -l < count) -gt {times} || cat a.npz > /dev/null'"
    summary = measured(tmp_path / "store", text, "sh -c 'date +%N > a.npz'", times=5)
    assert any("read different versions of a.npz" in each for each in summary.suspect) is doubted


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ("sh -c 'cat given > /dev/null'", True),
        ("sh -c 'cat own > /dev/null 2>&1; date +%N > own'", False),
        ("sh -c 'test -e cache || echo 1 > cache; cat cache > /dev/null'", False),
    ],
    ids=["changed by another", "changed by itself", "made by the first"],
)
def test_a_text_that_changes_between_the_processes_that_read_it_is_a_doubt(tmp_path, monkeypatch, text, doubted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").write_text("1")
    summary = measured(tmp_path / "store", text, "sh -c 'date +%N > given'")
    said = [each for each in summary.suspect if f"processes of {text} read different versions of given" in each]
    assert bool(said) is doubted
    assert not any("different versions of own" in each or "of cache" in each for each in summary.suspect)


@pytest.mark.slow
def test_the_ratio_of_times_is_split_into_work_and_time_for_it(tmp_path):
    summary = measured(tmp_path, *(f"{PYTHON} -c 'import time; time.sleep({s})'" for s in (0.0, 0.3)))
    assert summary.entries[1].verdict.n_b == 3
    assert "processor time x" in summary.entries[1].why
    files = sorted((tmp_path / "commands").glob("*/*/*.jsonlines"))
    assert len(files) == 6
    assert all(CommandRecord.read(path).outcome.exit_code == 0 for path in files)
    assert os.sep not in files[0].parent.parent.name


def test_a_command_that_looks_like_a_path_is_found_by_its_name(tmp_path):
    from levelbench.records.process_selection import select_processes

    measured(tmp_path, "/bin/true", "/bin/echo [a/b]", times=1)
    (found,) = select_processes(CommandRecord, tmp_path, "/bin/echo [a/b]")
    assert found.header.specification.command == "/bin/echo [a/b]"


def test_a_script_that_changes_between_its_processes_is_a_doubt(tmp_path):
    script = tmp_path / "work.py"
    script.write_text("pass\n")
    command, preparation = make_command(f"{PYTHON} work.py", tmp_path), Preparation("", "", show=False)
    assert preparation.changed(command) == []
    assert preparation.changed(command) == []
    script.write_text("pass # edited\n")
    (said,) = preparation.changed(command)
    assert said.startswith("work.py changed after the first process here")


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="this system has no waitid")
def test_a_process_that_somebody_stops_for_a_time_is_doubted(tmp_path):
    text = "(sleep 0.3; kill -s CONT $$) & kill -s STOP $$; sleep 0.1"
    command = make_command(text, tmp_path)
    assert any(
        each.startswith("it was stopped for a time") for each in doubts_of(command, carry_out_command(command, 20))
    )
    quiet = make_command("sleep 0.05 & wait", tmp_path)
    assert not carry_out_command(quiet).paused


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("env A=1 python t.py", "python"),
        ("A=1 nice -n 5 ./train --lr 0.1", "train"),
        ("timeout 10m taskset -c 0,1 python3 t.py", "python3"),
        ("/usr/bin/env", "env"),
        ("LR=1", "LR"),
    ],
)
def test_a_command_is_named_after_its_program_and_not_after_what_starts_it(text, program):
    assert make_command(text, Path.cwd()).specification.title == program
