"""A function in its own process: what it sends, what it raises, and how it ends."""

import atexit
import itertools
import os
import sys
import time

import pytest

from levelbench.checks.isolation import forking, report_isolated, run_isolated, until
from levelbench.errors import DefinitionError, MissingError


def echo(request, say):
    sys.stdout.write("not one of our lines\n")
    say({"got": request})
    say({"pid": os.getpid()})


def aborts(request, say):
    say({"started": True})
    sys.stdout.write("last words\n")
    sys.stdout.flush()
    os.abort()


def leaves(request, say):
    raise SystemExit(3)


def hangs(request, say):
    time.sleep(3600)


def turns(request, say):
    while True:
        pass


def tidies_up(request, say):
    atexit.register(say, {"tidy": True})
    sys.stdout.write("last words")


def misses(request, say):
    raise MissingError("a part", "it is gone", "bring it")


def finds_for_ever(request, say):
    for probe in itertools.count():
        say({"started": str(probe)})
        say({"finding": {"probe": str(probe), "status": "failed", "found": "it differs"}})


def names_its_module(request, say):
    say({"name": sys.modules[__name__].__dict__.get("noted")})


def note(text):
    global noted  # noqa: PLW0603
    noted = text


def eats(request, say):
    try:
        held = bytearray(1 << 30)
        held[::4096] = b"x" * len(held[::4096])
    except MemoryError:
        say({"refused": True})


def run(function, request=None, **limits):
    lines = []
    return run_isolated(f"{__name__}:{function.__name__}", request or {}, lines.append, **limits), lines


def test_lines_come_back_and_printed_output_is_kept():
    ended, lines = run(echo, {"x": [1, "two"]})
    assert lines[0] == {"got": {"x": [1, "two"]}}
    assert lines[1]["pid"] != os.getpid()
    assert (ended.how, ended.error) == ("", None)
    assert "not one of our lines" in ended.printed


@pytest.mark.parametrize(
    ("function", "limits", "how"),
    [
        (aborts, {}, "SIGABRT"),
        (leaves, {}, "exit code 3"),
        (hangs, {"timeout_s": 0.5}, "it did not end within 0.5 s"),
        (hangs, {"silent_s": 0.5}, "it said nothing for 0.5 s"),
    ],
)
def test_how_a_process_ended_is_reported(function, limits, how):
    assert run(function, **limits)[0].how == how


def test_the_error_for_a_dead_process_has_its_last_output():
    ended, lines = run(aborts)
    assert lines == [{"started": True}]
    error = ended.death("the function")
    assert isinstance(error, DefinitionError)
    assert "SIGABRT; it last printed: " in error.found
    assert "last words" in error.trace


def test_a_levelbench_error_comes_back_with_its_class():
    error = run(misses)[0].error
    assert isinstance(error, MissingError)
    assert (error.asked, error.found, error.do) == ("a part", "it is gone", "bring it")
    assert "Traceback" in error.trace


@pytest.mark.slow
def test_memory_is_refused_only_beyond_the_cap():
    assert run(eats, memory_bytes=512 * 2**20)[1] == [{"refused": True}]
    assert run(eats, memory_bytes=8 * 2**30)[1] == []


@pytest.mark.slow
def test_a_forked_process_ends_in_good_order_or_at_its_limit_of_processor_time():
    with forking([], processor_s=1):
        ended, lines = run(tidies_up)
        assert (ended.how, ended.printed, lines) == ("", "last words", [{"tidy": True}])
        assert run(turns, timeout_s=60)[0].how == "SIGXCPU"


def test_a_check_ends_with_the_first_finding_that_is_enough():
    with until(lambda finding: finding.probe == "2"):
        report, _ = report_isolated(f"{__name__}:finds_for_ever", {}, "one", tell=lambda _: None, timeout_s=60)
    assert [each.probe for each in report.findings] == ["0", "1", "2"]


def test_forked_processes_have_what_was_prepared():
    with forking([], prepare=[(f"{__name__}:note", "kept")]):
        assert run(names_its_module)[1] == [{"name": "kept"}]
