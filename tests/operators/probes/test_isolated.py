"""An operator is checked in its own process, which ends in time and takes its children with it."""

import os
import signal
import time
from pathlib import Path

import pytest

from levelbench.operators.probes.files import names_isolated


@pytest.fixture
def starts(tmp_path):
    """Write a file with one operator that starts a child process when it is loaded."""

    def write(body):
        place = tmp_path / "pid"
        (tmp_path / "mine.py").write_text(
            f"import os, time\nchild = os.fork()\nif not child:\n    {body}\n    time.sleep(3600)\n    os._exit(0)\n"
            f"open({str(place)!r}, 'w').write(str(child))\n"
            "from levelbench.operators.custom import CustomOperator\n"
            "class Mine(CustomOperator):\n    def forward(self, x):\n        return x\n"
        )
        return tmp_path / "mine.py", place

    return write


def gone(process):
    """Whether it ends within a minute; a zombie counts as ended."""
    for _ in range(6000):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_child_process_of_an_operator_is_killed_and_not_waited_for(starts):
    path, place = starts("pass")
    # Waiting for it would take longer than a test may.
    assert names_isolated(path, timeout_s=3600.0) == ["Mine"]
    assert gone(int(place.read_text()))


def test_a_child_that_left_the_group_is_not_waited_for_either(starts):
    path, place = starts("os.setsid()")
    # Waiting for it would take longer than a test may.
    assert names_isolated(path, timeout_s=3600.0) == ["Mine"]
    os.kill(int(place.read_text()), signal.SIGKILL)
