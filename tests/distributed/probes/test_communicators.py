"""The checks of a communicator find planted faults, each in an otherwise correct communicator."""

import numpy as np
import pytest

from levelbench.distributed.communicator import FunctionHandle
from levelbench.distributed.communicators.threads import run_ranks
from levelbench.distributed.communicators.wrapping import WrappingCommunicator
from levelbench.distributed.probes.communicators import check_communicator
from levelbench.distributed.probes.files import check_communicator_isolated
from levelbench.planted import communicators_known as faults
from levelbench.planted.communicators_known import CASES, Now, SharesTheMemoryOfTheRoot, SumsWronglyOnOneRank

pytestmark = pytest.mark.sampled(3)


@pytest.fixture
def hurried(monkeypatch):
    """Poll handles less often."""
    monkeypatch.setattr("levelbench.distributed.probes.communicators._POLLS", 20)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.fault])
@pytest.mark.usefixtures("hurried")
def test_a_planted_fault_is_found_and_named(name):
    kind, checks = getattr(faults, name), CASES[name].aspects
    SharesTheMemoryOfTheRoot.shelf = {}
    found = run_ranks(3, lambda communicator: check_communicator(kind(communicator), large=1000))
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


class Altered(WrappingCommunicator):
    """Subclasses change what a blocking operation is given, or what it returns."""

    calls = 0

    def given(self, array):
        return array

    def all_reduce(self, array, op="sum"):
        self.calls += 1
        array[...] = self.inner.all_reduce(self.given(np.array(array)), op)
        return array


class LosesTheTail(Altered):
    def given(self, array):
        if array.size > 1024:
            array[1024:] = 0
        return array


class WrongAtCall100(Altered):
    def given(self, array):
        return array * 2 if self.calls == 100 else array


class RoundsFractions(Altered):
    def given(self, array):
        return array.round(6) if array.dtype.kind == "f" else array


class SwallowsNaN(Altered):
    def given(self, array):
        return np.nan_to_num(array, posinf=np.inf, neginf=-np.inf)


class CutsLongSends(WrappingCommunicator):
    def send(self, array, to, tag=0):
        array = array.copy()
        array.reshape(-1)[1024:] = 0
        self.inner.send(array, to, tag)


class SumsByFloats(Altered):
    """Whole numbers of eight bytes as floating-point ones."""

    def all_reduce(self, array, op="sum"):
        if array.dtype != np.int64 or op != "sum":
            return super().all_reduce(array, op)
        array[...] = self.inner.all_reduce(array.astype(np.float64)).astype(np.int64)
        return array


class MinimumByMaximum(Altered):
    """The negative of the maximum of negatives, which unsigned numbers do not have."""

    def all_reduce(self, array, op="sum"):
        if op != "min":
            return super().all_reduce(array, op)
        array[...] = -self.inner.all_reduce(-array, "max")
        return array


class ProductByLogarithms(Altered):
    """NaN for negative factors."""

    def all_reduce(self, array, op="sum"):
        if op != "product" or array.dtype.kind != "f":
            return super().all_reduce(array, op)
        with np.errstate(invalid="ignore"):
            array[...] = np.exp(self.inner.all_reduce(np.log(array)))
        return array


class ScattersSums(WrappingCommunicator):
    def reduce_scatter(self, array, op="sum"):
        return self.inner.reduce_scatter(array, "mean" if op == "mean" else "sum")


class GathersAgainWhatBeginsAlike(WrappingCommunicator):
    """Takes an array with the first element and the sum of the last for that one."""

    last = None, None

    def all_gather(self, array):
        key = array.shape, str(array.dtype), array.size and float(array.flat[0]), float(array.sum())
        if key != self.last[0]:
            self.last = key, self.inner.all_gather(array)
        return tuple(each.copy() for each in self.last[1])


class DoneAtOnce(WrappingCommunicator):
    def start_receive(self, like, source, tag=0):
        return FunctionHandle(self.inner.start_receive(like, source, tag).wait, lambda: True)


@pytest.mark.parametrize(
    ("kind", "probe"),
    [
        (SumsByFloats, "reductions"),
        (MinimumByMaximum, "reductions"),
        (ProductByLogarithms, "reductions"),
        (ScattersSums, "reductions"),
        (GathersAgainWhatBeginsAlike, "calls that look alike"),
        (DoneAtOnce, "handles"),
        (LosesTheTail, "large messages both ways"),
        (CutsLongSends, "large messages both ways"),
        (WrongAtCall100, "many calls"),
        (RoundsFractions, "unusual values"),
        (SwallowsNaN, "unusual values"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.usefixtures("hurried")
def test_what_few_calls_of_small_whole_numbers_do_not_show_is_found(kind, probe):
    found = run_ranks(2, lambda communicator: check_communicator(kind(communicator), large=1000))
    assert probe in {each.probe for findings in found for each in findings if each.status == "failed"}


def test_a_communicator_of_a_file_is_checked_on_more_ranks_than_asked_for(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from levelbench.distributed.communicators.wrapping import WrappingCommunicator\n\n\n"
        "class SevenAtMost(WrappingCommunicator):\n"
        "    def all_gather(self, array):\n"
        "        return tuple(self.inner.all_gather(array)[min(rank, 6)] for rank in range(self.size))\n"
    )
    report = check_communicator_isolated(path, "SevenAtMost", ranks=(2,))
    assert "8 ranks" in report.failed[0].case


@pytest.mark.parametrize(
    ("name", "case"), [("LosesTheTail", "3 ranks, other collectives"), ("WrongAtCall100", "4 ranks, 150 of each")]
)
def test_large_arrays_and_many_calls_of_a_file_are_tried_on_one_number_of_ranks_each(name, case, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from levelbench.distributed.communicators.wrapping import WrappingCommunicator\n\n\n"
        "class LosesTheTail(WrappingCommunicator):\n"
        "    def broadcast(self, array, root=0):\n"
        "        return self.inner.broadcast(array, root) if array.size < 2**20 else array\n\n\n"
        "class WrongAtCall100(WrappingCommunicator):\n"
        "    calls = 0\n\n"
        "    def all_reduce(self, array, op='sum'):\n"
        "        self.calls += array.shape == (5,)\n"
        "        return self.inner.all_reduce(array, op) * (self.calls != 100)\n"
    )
    report = check_communicator_isolated(path, name, ranks=(2, 3, 4))
    assert case in {each.case[: len(case)] for each in report.failed}


def test_a_communicator_of_a_file_that_goes_on_without_a_lost_rank_is_found(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from levelbench.distributed.communicators.wrapping import WrappingCommunicator\n"
        "from levelbench.errors import CommunicationError\n\n\n"
        "class GoesOn(WrappingCommunicator):\n"
        "    def broadcast(self, array, root=0):\n"
        "        try:\n"
        "            return self.inner.broadcast(array, root)\n"
        "        except CommunicationError:\n"
        "            return array\n"
    )
    report = check_communicator_isolated(path, "GoesOn", ranks=(2,))
    assert [each.probe for each in report.failed] == ["lost rank"]
    assert report.failed[0].found.startswith("broadcast: rank 0 goes on although rank 1 is lost")
