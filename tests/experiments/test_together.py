"""Facts about a team, collected from its ranks."""

import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.experiments.rank import Share, gather_shares, own_share, threads_of, together
from levelbench.measure.meters import Reading

PEAK = Reading("peak_memory", "B", 5.0, "vmhwm-reset")
ENERGY = Reading("energy", "J", None, None, "no counter")


def shares(*machines_and_cores, **same):
    return [
        Share(name, cores, 1.0, **({"peak_memory": 5.0, "method": "m"} | same)) for name, cores in machines_and_cores
    ]


@pytest.mark.parametrize(
    ("team", "ranks", "cores", "crowded"),
    [
        # Each bound to a core of its own, as srun binds them.
        ([("a", [0]), ("a", [1]), ("a", [2]), ("a", [3])], [4], [4], False),
        ([("a", [0, 1])] * 2, [2], [2], False),
        ([("a", [0, 1])] * 3, [3], [2], True),
        # Not on the first machine.
        ([("a", [0, 1]), ("b", [0]), ("b", [0])], [1, 2], [2, 1], True),
    ],
)
def test_a_team_is_crowded_if_ranks_outnumber_cores_on_a_machine(team, ranks, cores, crowded):
    found = together(shares(*team), 0, [PEAK])
    assert found.facts["ranks_by_host"] == ranks
    assert found.facts["cores_by_host"] == cores
    assert found.facts["hosts"] == len(ranks)
    assert found.facts["crowded"] is crowded
    assert [f"{ranks[-1]} ranks share {cores[-1]} core" in each for each in found.doubts] == [True] * crowded


def test_only_ranks_on_the_same_machine_count_as_others():
    team = [Share("a", [0], 1.0), Share("a", [0], 2.5), Share("b", [0], 7.0)]
    assert together(team, 0, []).others_cpu_s == 2.5


def test_the_peak_memory_of_a_team_is_the_largest_of_its_ranks():
    team = [Share("a", [0], 0.0, 2, each, "vmhwm-reset") for each in (5.0, 9.0)]
    found = together(team, 0, [PEAK, ENERGY])
    assert found.readings[0] == Reading("peak_memory", "B", 9.0, "vmhwm-reset, the largest of 2 ranks")
    assert found.readings[1] is ENERGY
    assert found.facts["peak_memory_bytes_by_rank"] == [5.0, 9.0]
    assert found.facts["threads_by_rank"] == [2, 2]


def test_the_peak_memory_of_a_team_is_unknown_if_that_of_a_rank_is():
    team = [Share("a", [0], 0.0, None, 5.0, "m"), Share("a", [0], 0.0, reason="no counter")]
    reading = together(team, 0, [PEAK]).readings[0]
    assert (reading.value, reading.reason) == (None, "rank 1: no counter")


def test_every_rank_gets_the_shares_of_all_of_any_length():
    def work(communicator):
        return gather_shares(communicator, own_share(1.0, {"intra": "x" * 10**communicator.rank}, [PEAK]))

    first, second, third = run_ranks(3, work)
    assert first == second == third
    assert [len(each.threads["intra"]) for each in first] == [1, 10, 100]
    assert {each.peak_memory for each in first} == {5.0}


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({"framework": {"threads": 2}, "threads": {"loaded": {"openblas": {"threads": 1}}}}, 2),
        ({"framework": {}, "threads": {"loaded": {"openblas": {"threads": 1}}}}, {"openblas": 1}),
        ({}, None),
    ],
)
def test_the_threads_of_a_rank_are_those_of_its_framework_or_its_libraries(environment, threads):
    assert threads_of(environment) == threads
