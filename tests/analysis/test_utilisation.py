"""Shares of peaks: by hand, and what is answered where a part is not known."""

import pytest

from levelbench.analysis.utilisation import Utilisation, peak_share, utilisation
from levelbench.errors import UsageError
from levelbench.report.tables import to_text
from levelbench.report.utilisation import utilisation_table


def test_a_share_is_the_operations_needed_over_those_possible():
    found = peak_share("one", [100.0], 24e9, 4.8e12)
    assert found.share.value == pytest.approx(0.5)
    assert found.flop_s == pytest.approx(2.4e12)


def test_palm_540b_has_a_model_flops_utilisation_of_46_percent():
    # Chowdhery et al. 2022, table 3 and appendix B: 238,300 tokens a second on 6,144 TPU v4 at 275 TFLOP/s. 6 N are
    # 3.24e12 operations a token: 45.7 % without attention.
    found = peak_share("PaLM", [238_300], 6 * 540.35e9, 6144 * 275e12)
    assert found.share.value == pytest.approx(0.457, abs=0.001)


def test_rate_and_share_of_several_runs_are_one_statistic_so_that_one_follows_from_the_other():
    found = peak_share("three", [50.0, 100.0, 100.0], 1e9, 1e12)
    assert found.examples_s == pytest.approx((50.0 * 100 * 100) ** (1 / 3))
    assert found.share.value == pytest.approx(found.flop_s / found.peak_flop_s)
    assert (found.n, found.share.n, found.share.interval.low) == (3, 3, pytest.approx(0.05))


def test_brackets_of_few_runs_are_the_lowest_and_the_highest_and_only_those_of_more_have_a_level():
    few = peak_share("few", [50.0, 100.0, 100.0], 1e9, 1e12, level=0.9)
    many = peak_share("many", [90.0, 95.0, 100.0, 105.0, 110.0, 99.0], 1e9, 1e12, level=0.9)
    assert (
        utilisation_table(utilisation([few], "measured"))
        .notes[-1]
        .endswith("brackets: of fewer than six runs the lowest and the highest.")
    )
    assert utilisation_table(utilisation([many], "measured")).notes[-1].endswith("brackets: 90 % intervals.")
    both = utilisation_table(utilisation([few, many], "measured"))
    assert "90 % intervals, of fewer than six runs the lowest and the highest" in both.notes[-1]
    assert [row[2].value for row in both.rows] == [6, 3]


def test_single_entries_have_no_word_on_brackets():
    assert len(utilisation_table(utilisation([peak_share("one", [1.0], 1e9, 1e11)], "datasheet")).notes) == 1


@pytest.mark.parametrize(
    ("rates", "flops", "peak", "words"),
    [([], 1.0, 1.0, "no run reached its target"), ([1.0], None, 1.0, "operations"), ([1.0], 1.0, None, "peak")],
)
def test_what_is_not_known_is_a_reason_and_no_share(rates, flops, peak, words):
    found = peak_share("x", rates, flops, peak)
    assert found.share is None
    assert words in found.reason
    assert "an epoch" in peak_share("x", [], flops, peak, no_rate="how many examples an epoch has").reason


def test_the_table_has_the_highest_share_first_and_reasons_last():
    shares = [
        peak_share("low", [1.0], 1e9, 1e11),
        peak_share("none", [1.0], None, 1e11),
        peak_share("high", [5.0], 1e9, 1e11),
    ]
    table = utilisation_table(utilisation(shares, "datasheet"))
    assert [row[0].text for row in table.rows] == ["high", "low", "none"]
    assert "operations of its network" in to_text(table, 200)


def test_nothing_that_trains_is_refused():
    with pytest.raises(UsageError, match="nothing that trains"):
        utilisation([], "measured")


def test_it_shows_itself_in_a_notebook():
    from levelbench.report.notebook import SHOWN

    show = SHOWN["levelbench.analysis.utilisation", "Utilisation"]
    assert "datasheet" in show(Utilisation("datasheet", (peak_share("one", [1.0], 1e9, 1e11),)))
