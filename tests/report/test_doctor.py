import dataclasses

import pytest

from levelbench.cli import main
from levelbench.measure.ceilings import Ceilings
from levelbench.measure.selftest import ClockFacts, Diagnosis, Noise
from levelbench.measure.statistics import Estimate, Interval
from levelbench.report.operators import ceilings_table, doctor_lines
from levelbench.report.tables import lay_out


def limit(value, low=None, high=None):
    return Estimate(value, None if low is None else Interval(low, high, 0.95, "exact"), 9, "median")


CEILINGS = Ceilings({"float32": limit(2.5e11, 2.4e11, 2.6e11)}, {"copy": limit(1.25e10)})


def diagnosis(*doubts, alarms=None, runs=3):
    alarms = alarms or Interval(0.01, 0.24, 0.95, "Wilson")
    noise = Noise(20, 5, {"SAME": 19, "FASTER": 1}, 1, alarms, 1e-4, 200, 0.012, {0.03: 5 * runs, 0.1: runs})
    return Diagnosis(ClockFacts(1, 40.0, 90.0), noise, CEILINGS, doubts, {})


def test_limits_are_shown_in_billions_with_their_intervals_and_units():
    cells = lay_out(ceilings_table(CEILINGS)).cells
    assert cells == (("matrix product, float32", "250 [240, 260]", "GFLOP/s"), ("memory, copy", "12.5", "GB/s"))


def test_each_doubt_has_a_line_of_its_own_after_the_findings():
    lines = doctor_lines(diagnosis("the load is high: stop it", "no governor: set one"))
    assert "1 false alarm in 20 comparisons" in lines[1]
    assert lines[3:5] == ["doubt: the load is high: stop it", "doubt: no governor: set one"]


def test_it_ends_in_whether_the_machine_is_fit_to_measure_on_and_why_not():
    def ends(*doubts, **given):
        found = diagnosis(*doubts, **given)
        assert found.to_dict()["fit"] is not bool(found.against)
        return doctor_lines(found)[-1].removeprefix("fit to measure on: ")

    assert ends() == "yes: it is quiet, with the threads and settings it should have"
    assert ends("the load is high: stop it") == "no: the load is high"
    assert ends("the load is high: stop it", "no governor: set one") == "no: the load is high; no governor"
    often = Interval(0.1, 0.4, 0.95, "Wilson")
    assert ends(alarms=often) == "no: the self-test gave 1 false alarm in 20 comparisons"
    assert ends(runs=60) == "no: its times vary by 1%, so a 10% change would need 60 runs"
    assert ends(runs=1376).endswith("would need 1,376 runs")


@pytest.mark.parametrize(
    ("count", "settings", "said"), [(2, {}, True), (2, {"OMP_NUM_THREADS": "2"}, False), (64, {}, False)]
)
def test_on_few_cores_it_says_which_number_of_threads_is_steadier(count, settings, said):
    facts = {"threads": {"settings": settings, "loaded": {"openblas": {"threads": count}}}}
    lines = dataclasses.replace(diagnosis(), environment=facts).sentences()
    assert any("OMP_NUM_THREADS=1" in line for line in lines) is said


def test_its_lines_fit_the_columns_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("levelbench.measure.selftest.run_doctor", lambda *given, **more: diagnosis("a word " * 30))
    with pytest.raises(SystemExit):
        main(["doctor", "--columns", "60"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("doubt: a word") for line in lines)
    assert max(map(len, lines)) <= 60
