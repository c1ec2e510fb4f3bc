import signal

import pytest

from levelbench.distributed.launching import PEER_LOST
from levelbench.distributed.launching.base import ExitReport, first_failure


def ended(rank, time_ns, *, code=None, number=None):
    return ExitReport(rank, code, number, False, False, time_ns)


def asked_to_end(rank, time_ns, *, stopped=False):
    return ExitReport(rank, None, signal.SIGTERM, True, stopped, time_ns)


def first(folder, reports, ranks=3, **over):
    for report in reports:
        report.write(folder)
    return first_failure(folder, ranks, **over)


def test_a_successful_job_has_no_failure(tmp_path):
    assert first(tmp_path, [ended(rank, rank, code=0) for rank in range(3)]) is None


def test_the_first_failure_is_named_and_not_its_consequences(tmp_path):
    failure = first(tmp_path, [ended(0, 7, code=1), ended(1, 5, number=signal.SIGKILL), asked_to_end(2, 9)])
    assert (failure.rank, failure.signal) == (1, signal.SIGKILL)


def test_a_rank_that_lost_another_is_not_named_even_if_it_ended_first(tmp_path):
    failure = first(tmp_path, [ended(0, 1, code=PEER_LOST), ended(1, 1, code=PEER_LOST), ended(2, 5, code=3)])
    assert (failure.rank, failure.code) == (2, 3)


def test_a_stopped_rank_is_named_if_the_others_lost_it(tmp_path):
    reports = [ended(0, 1, code=PEER_LOST), asked_to_end(1, 5), asked_to_end(2, 5, stopped=True)]
    assert first(tmp_path, reports).reason == "rank 2 did not answer, stopped"


def test_the_only_hung_rank_is_named_if_the_others_lost_it(tmp_path):
    failure = first(tmp_path, [ended(0, 1, code=PEER_LOST), asked_to_end(1, 5), ended(2, 1, code=PEER_LOST)])
    assert failure.reason == "rank 1 did not answer, while the others waited for it"


def test_the_one_rank_without_a_report_is_named_where_only_the_launcher_failed(tmp_path):
    reports = [asked_to_end(0, 5), asked_to_end(2, 5), ended(None, 7, code=1)]
    assert first(tmp_path, reports, over=True).rank == 1


def test_the_launcher_is_named_where_it_failed_and_several_ranks_have_no_report(tmp_path):
    assert first(tmp_path, [asked_to_end(0, 5), ended(None, 7, code=1)], over=True).rank is None


def test_the_one_rank_that_never_reported_is_named_once_the_job_is_over(tmp_path):
    reports = [ended(0, 1, code=PEER_LOST), ended(1, 2, code=PEER_LOST)]
    assert first(tmp_path, reports, over=True).rank == 2
    assert first_failure(tmp_path, 3, over=False).rank == 0


def test_a_launcher_that_failed_before_any_rank_is_named(tmp_path):
    (tmp_path / "launcher.log").write_text("no such option\n")
    failure = first(tmp_path, [ended(None, 1, code=2)])
    assert failure.reason == "the launcher ended with code 2"
    assert failure.lines == ("no such option",)


@pytest.mark.parametrize(("lines", "last"), [(5, "4"), (1000, "999")])
def test_a_failure_shows_the_end_of_the_log(tmp_path, lines, last):
    (tmp_path / "rank-0.log").write_text("".join(f"{line}\n" for line in range(lines)))
    failure = first(tmp_path, [ended(0, 1, code=1)], ranks=1)
    assert failure.lines[-1] == last
    assert len(failure.lines) == min(lines, 20)
    assert f"rank 0 ended with code 1 ({last}). See its log" in str(failure.error("a job"))
