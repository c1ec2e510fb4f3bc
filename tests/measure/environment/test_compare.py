"""The environment of a run, and how two environments differ."""

import getpass
import json
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.environment.trees import with_

from levelbench.measure.environment import (
    Difference,
    capture,
    capture_after,
    difference,
    differences,
    doubts,
    machine_of,
    same_machine,
    system_of,
)

BASE = {
    "machine": {"id": "aa", "cpu": "X", "cores_logical": 2, "governor": "performance", "kernel": "Linux 6.1"},
    "accelerators": {"nvidia_driver": None, "names": []},
    "libraries": {"python": {"version": "3.11.7"}, "numpy": "2.4.6"},
    "threads": {"settings": {}, "loaded": {"libopenblas": {"threads": 2}}},
    "malloc": {},
    "git": {"commit": "c0", "dirty": False},
    "load": {"one_minute": 0.2, "counters": {"at_s": 1.0}},
    "frequency": {"median_mhz": 3000.0},
    "framework": {"name": "torch", "device": "cpu", "threads": 2, "deterministic": True},
    "time": "2026-01-01T00:00:00+00:00",
}


def changed(**changes):
    return with_(BASE, **changes)


def test_an_environment_does_not_differ_from_itself():
    assert difference(BASE, BASE) == []


def test_what_moves_by_itself_is_no_difference():
    later = changed(time="2027", frequency__median_mhz=1.0, load__counters={"at_s": 9.0}, load__one_minute=1.0)
    assert difference(BASE, later) == []


@pytest.mark.parametrize(("load", "differs"), [(1.2, False), (1.3, True), (None, False)])
def test_the_load_differs_if_it_is_half_a_core_a_core_apart(load, differs):
    assert bool(difference(BASE, changed(load__one_minute=load))) is differs


def test_a_difference_names_the_path_both_values_and_why_it_matters():
    found = difference(BASE, changed(malloc={"MALLOC_TOP_PAD_": "64"}))
    assert found == [
        Difference(
            "malloc.MALLOC_TOP_PAD_",
            None,
            "64",
            "memory allocators behave differently: step times can differ by a third",
        )
    ]
    assert str(found[0]).startswith("malloc.MALLOC_TOP_PAD_: not set against 64 (")


def test_what_matters_most_for_time_comes_first():
    other = changed(
        git__commit="c1",
        libraries__numpy="2.0",
        machine__governor="powersave",
        malloc={"MALLOC_ARENA_MAX": "1"},
        threads__loaded={"libopenblas": {"threads": 8}},
        machine__id="bb",
        load__one_minute=9.0,
    )
    assert [each.path for each in difference(BASE, other)] == [
        "machine.id",
        "threads.loaded.libopenblas.threads",
        "malloc.MALLOC_ARENA_MAX",
        "machine.governor",
        "libraries.numpy",
        "load.one_minute",
        "git.commit",
    ]


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=4), max_leaves=8)
PARTS = st.sampled_from(["machine", "threads", "malloc", "libraries", "git", "load", "framework", "time", "other"])
FACTS = st.sampled_from(["id", "names", "cores_logical", "one_minute", "device", "threads"]) | st.text(max_size=5)
SHAPES = TREES | st.lists(TREES, max_size=2) | st.dictionaries(FACTS, TREES | st.floats() | st.lists(TREES), max_size=4)
ENVIRONMENTS = st.dictionaries(PARTS, SHAPES) | SHAPES


@settings(max_examples=50, deadline=None)
@given(ENVIRONMENTS, ENVIRONMENTS)
def test_a_difference_is_the_same_seen_from_the_other_side(a, b):
    there = [(each.path, each.a, each.b, each.matters) for each in difference(a, b)]
    back = [(each.path, each.b, each.a, each.matters) for each in difference(b, a)]
    assert list(map(str, there)) == list(map(str, back))
    assert difference(a, a) == []
    assert differences([a, b, b, a]) == differences([a, b])
    assert same_machine(a, b) == same_machine(b, a)


@pytest.mark.parametrize(
    "strange",
    [
        {"machine": None},
        {"machine": ["id"]},
        {"machine": "aa", "accelerators": 3, "framework": None},
        {**BASE, "machine": {**BASE["machine"], "cores_logical": "two"}, "load": {"one_minute": "busy"}},
        {**BASE, "load": None},
        [],
        None,
        "linux",
    ],
)
def test_an_environment_of_any_shape_is_compared_by_what_can_be_read_of_it(strange):
    for a, b in ((BASE, strange), (strange, BASE), (strange, strange)):
        assert all(isinstance(each, Difference) for each in [*difference(a, b), *differences([a, b])])
        assert same_machine(a, b) in (True, False)


def test_every_distinct_difference_of_several_from_the_first_is_told_once_the_most_telling_first():
    others = [changed(libraries__numpy="2.0"), changed(libraries__numpy="1.9"), changed(machine__id="bb"), BASE]
    loads = [changed(load__one_minute=9.0, libraries__numpy="2.0"), changed(load__one_minute=8.0)]
    found = [(each.path, each.b) for each in differences([BASE, *others, *loads])]
    assert found == [
        ("machine.id", "bb"),
        ("libraries.numpy", "2.0"),
        ("libraries.numpy", "1.9"),
        ("load.one_minute", 9.0),
    ]
    assert differences([]) == differences([BASE]) == []


@pytest.mark.parametrize(("fact", "value"), [("device", "NVIDIA H200"), ("threads", 8), ("deterministic", False)])
def test_what_a_framework_says_of_itself_is_compared(fact, value):
    found = difference(BASE, changed(**{f"framework__{fact}": value}))
    assert [(each.path, each.b) for each in found] == [(f"framework.{fact}", value)]


def test_a_framework_that_says_nothing_of_its_threads_does_not_differ_in_them():
    silent = changed(framework={"name": "numpy", "device": "cpu"})
    assert difference(BASE, silent) == []
    assert same_machine(BASE, silent)


def test_two_accelerators_of_one_machine_are_not_the_same():
    assert not same_machine(changed(framework__device="NVIDIA A100"), changed(framework__device="NVIDIA H200"))


def test_the_processor_and_the_accelerator_of_a_machine_are_one_machine():
    assert same_machine(BASE, changed(framework__device="NVIDIA H200"))
    assert same_machine(BASE, {key: value for key, value in BASE.items() if key != "framework"})


def test_one_machine_is_the_same_whatever_its_settings():
    assert same_machine(BASE, changed(machine__governor="powersave", libraries__numpy="1", git__commit="x"))


@pytest.mark.parametrize(
    "other", [changed(machine__id="bb"), changed(accelerators__names=["NVIDIA H200"]), {}, {"machine": {}}]
)
def test_other_hardware_or_unknown_hardware_is_not_the_same(other):
    assert not same_machine(BASE, other)


def test_two_unknown_machines_are_not_the_same():
    assert not same_machine({}, {})


def test_this_machine_is_the_same_as_itself():
    assert same_machine(capture(), capture())


@pytest.mark.parametrize("odd", [5, "GPU", None, {"names": 1}])
def test_accelerators_that_are_no_list_and_counts_that_are_no_numbers_are_not_known(odd):
    facts = {"machine": {"id": "aa", "memory_bytes": "much", "cores_logical": "2"}, "accelerators": {"names": odd}}
    assert machine_of(facts) == "aa"
    system = system_of(facts, "cuda:0")
    assert (system.accelerators, system.cores, system.memory_bytes) == (0, None, None)


def test_a_capture_is_json_and_has_every_part():
    found = json.loads(json.dumps(capture()))
    assert set(found) == {
        "machine", "accelerators", "libraries", "threads", "malloc", "git", "load", "frequency", "throttling", "time",
        "stops",
    }  # fmt: skip
    assert found["machine"]["cores_logical"] >= 1


def test_a_second_look_has_what_moves_and_fits_the_first():
    before, after = capture(), capture_after()
    assert {*json.loads(json.dumps(after))} == {
        "load", "threads", "cores_allowed", "frequency", "throttling", "time", "stops",
    }  # fmt: skip
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
