"""MLPerf's score of several runs, with failures and with more runs than required."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.rulesets.scores import olympic_score, scaling_of, window_median
from levelbench.errors import RecordError


def test_the_fastest_and_the_slowest_are_left_out():
    score = olympic_score([76.97, 77.167, 81.351, 76.703, 76.536])
    assert score.score_s == pytest.approx(76.94666666666667)
    assert (score.kept, score.failed) == ((3, 0, 1), 0)


def test_a_run_that_did_not_converge_is_the_slowest():
    score = olympic_score([10.0, None, 12.0, 14.0, 11.0])
    assert score.score_s == pytest.approx((11 + 12 + 14) / 3)
    assert (score.kept, score.failed) == ((4, 2, 3), 1)


def test_two_of_them_are_one_too_many():
    assert olympic_score([10.0, None, None, 14.0, 11.0]).score_s is None


@pytest.mark.parametrize(("failed", "valid"), [(0, True), (4, True), (5, False)])
def test_unet3d_drops_four_on_each_side(failed, valid):
    times = [float(time) for time in range(40 - failed)]
    score = olympic_score([*times, *[None] * failed], drop=4).score_s
    assert (score is not None) is valid
    if score is not None:
        # The rules' own words: of the sorted successful times x, d failures and k dropped, x[k : len(x) - (k - d)].
        kept = times[4 : len(times) - (4 - failed)]
        assert score == pytest.approx(sum(kept) / len(kept))


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0]])
def test_too_few_runs_have_no_score(times):
    assert olympic_score(times).score_s is None


TIMES = [5.0, 9.0, 6.0, 7.0, 8.0, 4.0]
"""Windows of three: 6, 7, 7, 7."""


def test_every_window_of_consecutive_runs_is_scored():
    assert window_median(TIMES, 3).scores_s == (6.0, 7.0, 7.0, 7.0)
    assert window_median(TIMES, 3).score_s == 7.0


def test_windows_of_as_many_runs_as_there_are_is_the_plain_score():
    assert window_median(TIMES, 6).score_s == olympic_score(TIMES).score_s


@pytest.mark.parametrize(("even", "score", "window"), [("lower", 2.0, 0), ("upper", 3.0, 1), ("mean", 2.5, None)])
def test_the_parameter_decides_which_of_two_middle_windows_counts(even, score, window):
    found = window_median([1.0, 2.0, 3.0, 4.0], 3, even=even)
    assert (found.score_s, found.window) == (score, window)


def test_without_a_word_it_is_the_slower_one_so_that_one_run_more_improves_no_score():
    assert window_median([1.0, 2.0, 3.0, 4.0], 3) == window_median([1.0, 2.0, 3.0, 4.0], 3, even="upper")
    asked = [9.0, 8.0, 7.0]
    assert [window_median(asked + more, 3).score_s for more in ([], [1.0], [1.0, 1.0])] == [8.0, 8.0, 7.0]


@pytest.mark.parametrize(("even", "score"), [("lower", 3.0), ("upper", None), ("mean", None)])
def test_an_invalid_window_is_the_slowest(even, score):
    found = window_median([1.0, 2.0, 3.0, None, None, 1.0], 3, even=even)
    assert found.scores_s == (2.0, 3.0, None, None)
    assert found.score_s == score


@pytest.mark.parametrize("runs", [0, 5])
def test_windows_cannot_be_longer_than_the_runs(runs):
    with pytest.raises(ValueError, match="windows of"):
        window_median([1.0] * 4, runs)


@given(st.lists(st.none() | st.floats(1, 100), min_size=3, max_size=12), st.integers(1, 2))
@settings(max_examples=20, deadline=None)
def test_one_more_failure_never_makes_a_score_better(times, drop):
    before = olympic_score(times, drop=drop).score_s
    for at, time in enumerate(times):
        after = olympic_score([*times[:at], None, *times[at + 1 :]], drop=drop).score_s
        if time is not None and after is not None:
            assert before is not None
            assert after >= before - 1e-9


def test_the_scaling_file():
    assert scaling_of(b'{"scaling_factor": 1.03}', "reading scaling.json") == 1.03


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"scaling_factor": 0.9}', b'{"scaling_factor": NaN}', b'{"scaling_factor": true}'),
        *(b'{"scaling_factor": "2"}', b'{"scaling_factor": 1e99}', b"[" * 60_000, b" " * 70_000),
    ],
)
def test_a_scaling_file_without_a_factor_is_an_error(content):
    with pytest.raises(RecordError, match="at least 1"):
        scaling_of(content, "reading scaling.json")
