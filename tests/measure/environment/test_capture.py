import getpass
import json
import socket
from pathlib import Path

import pytest

from levelbench.measure.environment import capture, capture_after, doubts


def test_a_capture_is_json_and_has_every_part():
    found = json.loads(json.dumps(capture()))
    assert set(found) == {
        "machine", "accelerators", "libraries", "threads", "malloc", "git", "load", "frequency", "throttling", "time",
    }  # fmt: skip
    assert found["machine"]["cores_logical"] >= 1


def test_a_second_look_has_what_moves_and_fits_the_first():
    before, after = capture(), capture_after()
    assert set(json.loads(json.dumps(after))) == {"load", "threads", "frequency", "throttling", "time"}
    assert all(isinstance(each, str) for each in doubts(before, after))


def test_the_source_is_that_of_the_folder_that_is_given(tmp_path):
    assert capture(tmp_path)["git"]["reason"] == "not in a git repository"


def strings(tree):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield str(key)
            yield from strings(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from strings(value)
    else:
        yield str(tree)


def test_nothing_in_it_says_whose_machine_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("OMP_PLACES", f"{tmp_path}/places")
    found = list(strings(capture(tmp_path)))
    secrets = {socket.gethostname(), getpass.getuser()} - {"localhost"}
    assert not secrets & set(found)
    for private in (str(Path.home()), str(tmp_path), str(Path.cwd())):
        assert not any(private in each for each in found if len(private) > 1)


def test_a_tracer_is_seen(monkeypatch):
    import sys

    # Coverage tools set a tracer of their own: put back what was there.
    old = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        traced = capture()["libraries"]["python"]["traced"]
    finally:
        sys.setprofile(old)
    assert traced is True


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "OMP_API_KEY", "MALLOC_SECRET"])
def test_a_secret_in_the_environment_stays_there(monkeypatch, name):
    monkeypatch.setenv(name, "s3cr3t-value")
    assert "s3cr3t-value" not in json.dumps(capture())
