from levelbench.measure.ceilings import Ceilings
from levelbench.measure.selftest import ClockFacts, Diagnosis, Noise
from levelbench.measure.statistics import Estimate, Interval
from levelbench.report.operators import ceilings_table, doctor_lines
from levelbench.report.tables import lay_out


def limit(value, low=None, high=None):
    return Estimate(value, None if low is None else Interval(low, high, 0.95, "exact"), 9, "median")


CEILINGS = Ceilings({"float32": limit(2.5e11, 2.4e11, 2.6e11)}, {"copy": limit(1.25e10)})


def diagnosis(*doubts):
    noise = Noise(20, 5, {"SAME": 19, "FASTER": 1}, 1, Interval(0.01, 0.24, 0.95, "Wilson"), 1e-4, 200, 0.012, {0.1: 3})
    return Diagnosis(ClockFacts(1, 40.0, 90.0), noise, CEILINGS, doubts, {})


def test_limits_are_shown_in_billions_with_their_intervals_and_units():
    cells = lay_out(ceilings_table(CEILINGS)).cells
    assert cells == (("matrix product, float32", "250 [240, 260]", "GFLOP/s"), ("memory, copy", "12.5", "GB/s"))


def test_each_doubt_has_a_line_of_its_own_after_the_findings():
    lines = doctor_lines(diagnosis("the load is high: stop it", "no governor: set one"))
    assert "1 false alarms in 20 comparisons" in lines[1]
    assert lines[3:] == ["doubt: the load is high: stop it", "doubt: no governor: set one"]


def test_where_there_is_nothing_to_doubt_it_says_so():
    (line,) = doctor_lines(diagnosis())[3:]
    assert line.startswith("no doubts: the machine is quiet")
