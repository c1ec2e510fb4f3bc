import copy

import pytest

from levelbench.measure.environment import doubts

QUIET = {
    "machine": {"cores_logical": 4, "cores_allowed": 4, "cgroup_cores": None, "governor": "performance"},
    "libraries": {"python": {"debug_build": False, "traced": False}},
    "threads": {"settings": {}, "loaded": {"libopenblas": {"threads": 4}}, "torch": {"threads": 4}},
    "load": {
        "one_minute": 0.1,
        "others_cores": 0.0,
        "swap_used_bytes": 0,
        "swapped_pages": 5,
        "memory_available_bytes": 8 * 2**30,
        "counters": {"at_s": 0.0, "own_s": 0.0, "busy_s": 0.0, "idle_s": 0.0, "steal_s": 0.0},
    },
    "throttling": {"heat_events": 3, "quota_events": 0},
}
QUIET["machine"]["memory_bytes"] = 16 * 2**30
QUIET_AFTER = {
    "load": {
        "swapped_pages": 5,
        "counters": {"at_s": 10.0, "own_s": 20.0, "busy_s": 20.5, "idle_s": 19.5, "steal_s": 0.0},
    },
    "throttling": {"heat_events": 3, "quota_events": 0},
}


def with_(tree, **changes):
    tree = copy.deepcopy(tree)
    for path, value in changes.items():
        *folders, last = path.split("__")
        here = tree
        for folder in folders:
            here = here[folder]
        here[last] = value
    return tree


def test_a_quiet_machine_gives_no_doubt():
    assert doubts(QUIET, QUIET_AFTER) == []


def test_a_quiet_machine_gives_no_doubt_without_a_second_look():
    assert doubts(QUIET, {}) == []


def test_an_empty_environment_gives_no_doubt():
    assert doubts({}, {}) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"load__others_cores": 1.5}, "other programs kept 1.5 of 4 cores busy just before"),
        ({"load__others_cores": None, "load__one_minute": 3.0}, "the load was 3.0 on 4 cores before"),
        ({"machine__governor": "powersave"}, "the frequency governor is powersave"),
        ({"load__swap_used_bytes": 2**30}, "1024 MiB of swap are in use"),
        ({"load__memory_available_bytes": 2**28}, "only 256 MiB of memory are free"),
        ({"libraries__python__traced": True}, "a debugger, profiler or coverage tool"),
        ({"libraries__python__debug_build": True}, "this is a debug build of Python"),
        ({"threads__loaded__libopenblas__threads": 8}, "libopenblas uses 8 threads on 4 cores: set OMP_NUM_THREADS=4"),
        ({"threads__torch__threads": 5}, "torch uses 5 threads on 4 cores"),
        ({"machine__cgroup_cores": 3.5}, "libopenblas uses 4 threads on 3.5 cores: set OMP_NUM_THREADS=3"),
    ],
)
def test_each_trouble_before_gives_its_sentence_and_a_remedy(change, sentence):
    found = doubts(with_(QUIET, **change), {})
    assert found[0].startswith(sentence)
    assert ": " in found[0]
    assert not found[0].endswith(".")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"load__counters__busy_s": 35.0}, "other programs kept 1.5 of 4 cores busy during the measurement"),
        ({"load__counters__steal_s": 4.0}, "the hypervisor gave 9.1% of the processor time to others"),
        ({"throttling__heat_events": 5}, "heat slowed the processor 2 times"),
        ({"throttling__quota_events": 7}, "the container ran out of its processor quota 7 times"),
        ({"load__swapped_pages": 25}, "20 pages were swapped during the measurement"),
    ],
)
def test_each_trouble_in_between_gives_its_sentence(change, sentence):
    found = doubts(QUIET, with_(QUIET_AFTER, **change))
    assert len(found) == 1
    assert found[0].startswith(sentence)


def test_the_work_of_an_earlier_run_is_no_doubt_if_the_stretch_itself_was_quiet():
    assert doubts(with_(QUIET, load__one_minute=4.0, load__others_cores=2.0), QUIET_AFTER) == []


def test_what_others_did_comes_before_what_was_set():
    found = doubts(with_(QUIET, machine__governor="powersave"), with_(QUIET_AFTER, load__counters__busy_s=35.0))
    assert [each.split()[0] for each in found] == ["other", "the"]
