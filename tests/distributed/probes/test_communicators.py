"""The checks of a communicator find planted faults, each in an otherwise correct communicator."""

import pytest

from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.probes.communicators import check_communicator
from levelbench.planted import communicators_known as faults
from levelbench.planted.communicators_known import CASES, Now, SharesTheMemoryOfTheRoot, SumsWronglyOnOneRank


@pytest.fixture
def hurried(monkeypatch):
    """Poll handles less often, and shrink the large messages."""
    monkeypatch.setattr("levelbench.distributed.probes.communicators._LARGE", 1000)
    monkeypatch.setattr("levelbench.distributed.probes.communicators._POLLS", 20)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.fault])
@pytest.mark.usefixtures("hurried")
def test_a_planted_fault_is_found_and_named(name):
    kind, checks = getattr(faults, name), CASES[name].aspects
    SharesTheMemoryOfTheRoot.shelf = {}
    found = run_ranks(3, lambda communicator: check_communicator(kind(communicator)))
    failed = {each.probe for findings in found for each in findings if each.status == "failed"}
    assert failed & set(checks), failed


def test_a_finding_tells_which_rank_found_what_in_which_case():
    found = run_ranks(3, lambda communicator: check_communicator(SumsWronglyOnOneRank(communicator)))
    first = next(each for each in found[1] if each.status == "failed")
    assert first.probe == "all-reduce"
    assert first.case == "sum of float32 ()"
    assert first.found.startswith("rank 1: the result has ")
    assert "1 of 1 differ" in first.found
    assert not [each for each in found[0] if each.probe == "all-reduce" and each.status == "failed"]


def test_an_error_on_one_rank_ends_the_check_on_all_ranks_with_the_rest_not_tried():
    class Breaks(Now):
        def scatter(self, arrays, like, root=0):
            if self.rank == 1:
                raise KeyError("broken")
            return super().scatter(arrays, like, root)

    found = run_ranks(3, lambda communicator: check_communicator(Breaks(communicator)))
    for rank, findings in enumerate(found):
        ended = next(at for at, each in enumerate(findings) if each.status != "passed")
        # Only the root waits in a gather, so the others may get the error one check earlier.
        assert findings[ended].probe in (("scatter",) if rank == 1 else ("gather", "scatter"))
        assert ("KeyError: 'broken'" if rank == 1 else "rank 1 aborted") in findings[ended].found
        assert {each.status for each in findings[ended + 1 :]} == {"not tried"}
        assert findings[-1].found == f"rank {rank} stopped at the check {findings[ended].probe!r}"
