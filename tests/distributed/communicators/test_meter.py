"""Counted bytes are those that cross the network: as many as the device reports, without TCP and IP headers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


def own_network():
    """The command that starts another one in a private network; ``None`` if that is not allowed."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return None
    command = ["unshare", "--net"]
    tried = subprocess.run([*command, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return None if tried.returncode else command


@pytest.mark.slow
def test_counted_bytes_agree_with_the_network_meter_for_gloo_and_for_our_algorithms():
    command = own_network()
    if command is None:
        pytest.skip("this user may not create a private network")
    script = Path(__file__).with_name("metered.py")
    done = subprocess.run(
        [*command, sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 7
    for name, each in found.items():
        assert each["metered"] / each["counted"] == pytest.approx(1, abs=0.01), name
