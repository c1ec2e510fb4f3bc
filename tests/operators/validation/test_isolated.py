"""An operator is checked in a process of its own, which ends in its time and takes with it what it started."""

import os
import signal
import time
from pathlib import Path

import pytest

from levelbench.operators.validation.isolated import names_isolated


@pytest.fixture
def starts(tmp_path):
    """A file of one operator that leaves a process behind, when it is loaded."""

    def write(body):
        place = tmp_path / "pid"
        (tmp_path / "mine.py").write_text(
            f"import os, time\nchild = os.fork()\nif not child:\n    {body}\n    time.sleep(60)\n    os._exit(0)\n"
            f"open({str(place)!r}, 'w').write(str(child))\n"
            "from levelbench.operators.custom import CustomOperator\n"
            "class Mine(CustomOperator):\n    def forward(self, x):\n        return x\n"
        )
        return tmp_path / "mine.py", place

    return write


def gone(process):
    """Whether it has ended, within a second; a zombie has."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_process_that_an_operator_leaves_behind_is_not_waited_for_and_ends(starts):
    path, place = starts("pass")
    began = time.monotonic()
    assert names_isolated(path, timeout_s=50.0) == ["Mine"]
    assert time.monotonic() - began < 40
    assert gone(int(place.read_text()))


def test_one_that_left_the_group_is_not_waited_for_either(starts):
    path, place = starts("os.setsid()")
    began = time.monotonic()
    assert names_isolated(path, timeout_s=50.0) == ["Mine"]
    assert time.monotonic() - began < 40
    os.kill(int(place.read_text()), signal.SIGKILL)
