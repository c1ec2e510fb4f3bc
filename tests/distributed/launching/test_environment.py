import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.launching.environment import (
    RankPlace,
    accelerator_of,
    place_of,
    variables_of,
    without_place,
)
from levelbench.distributed.launching.local import environment_of_ranks
from levelbench.errors import UsageError

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (TORCHRUN, RankPlace(2, 4, 1, "a", 1, "torchrun")),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
            RankPlace(3, 8, 1, "127.0.0.1", 0, "mpi"),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, RankPlace(0, 2, 0, "127.0.0.1", 0, "mpi")),
        (
            {
                "SLURM_PROCID": "5",
                "SLURM_NTASKS": "6",
                "SLURM_LOCALID": "1",
                "SLURM_JOB_NODELIST": "gpu[07-09,11]-ib,login",
                "SLURM_JOB_ID": "123456",
            },
            RankPlace(5, 6, 1, "gpu07-ib", 23456, "slurm"),
        ),
        (
            {"SUBMITIT_LOCAL_GLOBALID": "1", "SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_LOCALID": "1"},
            RankPlace(1, 2, 1, "127.0.0.1", 0, "slurm"),
        ),
    ],
    ids=["torchrun", "open-mpi", "mpich", "slurm", "submitit"],
)
def test_a_place_is_read_from_each_launchers_variables(environment, place):
    assert place_of(environment) == place


def test_a_launcher_inside_an_allocation_takes_precedence():
    allocation = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    assert place_of({**allocation, **TORCHRUN}) == place_of(TORCHRUN)


@given(
    st.integers(1, 5000).flatmap(
        lambda size: st.builds(
            RankPlace,
            st.integers(0, size - 1),
            st.just(size),
            st.integers(0, size - 1),
            st.sampled_from(["127.0.0.1", "10.77.0.1", "node7"]),
            st.integers(0, 65535),
            st.sampled_from(["process", "torchrun", "mpi", "slurm", "hosts"]),
        )
    )
)
def test_the_variables_of_a_place_are_read_back_as_that_place(place):
    assert place_of(variables_of(place)) == place


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, "no variable that names its rank"),
        ({**TORCHRUN, "RANK": "4"}, "there are 4 ranks"),
        ({**TORCHRUN, "RANK": "-1"}, "not a whole number"),
        ({**TORCHRUN, "WORLD_SIZE": "two"}, "not a whole number"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, "not a whole number"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "[1-2]"}, "does not begin with a name"),
    ],
)
def test_an_impossible_place_is_refused(environment, found):
    with pytest.raises(UsageError, match=found):
        place_of(environment)


@pytest.mark.parametrize("place", [TORCHRUN, {"PMI_RANK": "0", "PMI_FD": "7"}, {"TORCHELASTIC_RUN_ID": "x"}])
def test_a_place_is_not_passed_on(place):
    assert without_place({**place, "PATH": "/bin", "SLURM_JOB_ID": "1"}) == {"PATH": "/bin", "SLURM_JOB_ID": "1"}


@pytest.mark.parametrize(("ranks", "threads"), [(1, "8"), (2, "4"), (3, "2"), (8, "1"), (64, "1")])
def test_ranks_share_the_cores_and_have_at_least_one(monkeypatch, ranks, threads):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    made = environment_of_ranks({}, "process", ranks, cores=8)
    assert [made[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")] == [threads] * 3


def test_the_users_number_of_threads_is_kept(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    made = environment_of_ranks({"OMP_NUM_THREADS": "5"}, "process", 8, cores=8)
    assert (made["OMP_NUM_THREADS"], made["OPENBLAS_NUM_THREADS"]) == ("5", "5")


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({}, 1),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "SLURM_LOCALID": "1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "5", "SLURM_LOCALID": "1"}, 0),
        # One task a node, whose ranks share its accelerator.
        ({"CUDA_VISIBLE_DEVICES": "5", "SLURM_LOCALID": "0"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "5"}, 1),
    ],
)
def test_a_rank_that_slurm_shows_one_accelerator_takes_that_one(environment, number):
    assert accelerator_of(1, environment) == number
