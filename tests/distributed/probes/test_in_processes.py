"""Checkpoints of schemes that bypass the communicator, on real processes."""

import pytest
from tests.distributed.probes.native import (
    Native,
    RestoresNothing,
    RestoresOfAnother,
    SaysNothingOfItsState,
)

from levelbench.distributed.probes import processes
from levelbench.distributed.probes.processes import Resumption, ResumptionJob, judged, name_of, resumptions
from levelbench.distributed.probes.schemes import check_scheme
from levelbench.frameworks.torch.distributed.schemes import DistributedDataParallel

TRIED = [Native, RestoresNothing, RestoresOfAnother, SaysNothingOfItsState]
"""All together, because processes take seconds to start."""


@pytest.fixture(scope="module")
def tried():
    pytest.importorskip("torch")
    wanted = ResumptionJob([name_of(kind()) for kind in TRIED], "numpy", "gloo", 0, 30.0)
    found = resumptions(wanted, 2)
    assert not isinstance(found, str), found
    return {kind: judged(found, 2, at) for at, kind in enumerate(TRIED)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        (Native, "passed", "2 ranks (processes): fresh ones resume with the same bits"),
        (RestoresNothing, "failed", "in fresh ranks resumed after step 5"),
        (RestoresOfAnother, "failed", "in fresh ranks resumed after step 5"),
        (SaysNothingOfItsState, "noted", "does not declare that its state is complete"),
    ],
)
def test_state_that_is_not_restored_or_from_another_rank_is_found(tried, kind, status, words):
    assert tried[kind].status == status
    assert words in tried[kind].found


def test_the_check_of_such_a_scheme_only_tries_its_checkpoints(monkeypatch):
    asked = []

    def found(wanted, ranks):
        asked.append((wanted, ranks))
        return [[Resumption()], [Resumption(wrong="step 6: different loss")]]

    monkeypatch.setattr(processes, "resumptions", found)
    report = check_scheme(Native(), ranks=(3, 2), seed=4, only=("checkpoints",))
    ((wanted, ranks),) = asked
    assert (ranks, wanted.framework, wanted.communicator, wanted.seed) == (2, "numpy", "gloo", 4)
    (finding,) = report.failed
    assert finding.found == "2 ranks (processes), rank 1, step 6: different loss"


def test_the_failure_of_the_ranks_is_reported(monkeypatch):
    monkeypatch.setattr(processes, "resumptions", lambda wanted, ranks: "2 ranks (processes), rank 0 ended with code 1")
    (finding,) = check_scheme(Native(), only=("checkpoints",)).failed
    assert "rank 0 ended with code 1" in finding.found


@pytest.mark.parametrize("scheme", [Native(), DistributedDataParallel(bucket_mb=2.0, unused=True)])
def test_another_process_finds_the_scheme_with_its_settings(scheme):
    made = name_of(scheme).scheme()
    assert type(made).__name__ == type(scheme).__name__
    assert vars(made) == vars(scheme)
