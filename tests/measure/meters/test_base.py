import pytest

from levelbench.measure.meters import NullMeter, Reading, meters
from levelbench.measure.meters.base import CounterMeter, NoReading


class Scripted(CounterMeter[int]):
    name, unit, method = "scripted", "1", "script"

    def __init__(self, *states: int | NoReading) -> None:
        super().__init__()
        self.states = list(states)

    def _read(self) -> int:
        state = self.states.pop(0)
        if isinstance(state, NoReading):
            raise state
        return state

    def _between(self, before: int, after: int) -> float:
        return float(after - before)


def test_a_reading_has_a_value_with_its_method_or_a_reason():
    assert Reading("energy", "J", 3.0, "rapl").reason is None
    assert Reading("energy", "J", None, None, "no counter").value is None


@pytest.mark.parametrize(
    ("value", "method", "reason"),
    [(3.0, None, None), (None, "rapl", "why"), (None, None, None), (3.0, "rapl", "why")],
)
def test_a_reading_that_is_neither_is_refused(value, method, reason):
    with pytest.raises(ValueError, match="energy"):
        Reading("energy", "J", value, method, reason)


def test_a_null_meter_says_why_it_is_null():
    meter = NullMeter("energy", "J", "no counter here")
    meter.start()
    assert meter.stop() == Reading("energy", "J", None, None, "no counter here")


def test_a_counter_meter_reads_the_difference_of_its_two_ends():
    meter = Scripted(5, 12)
    meter.start()
    assert meter.stop() == Reading("scripted", "1", 7.0, "script")


def test_a_counter_meter_can_be_used_again():
    meter = Scripted(5, 12, 20, 21)
    meter.start()
    meter.stop()
    meter.start()
    assert meter.stop().value == 1.0


def test_a_meter_that_was_not_started_says_so():
    assert Scripted(5).stop().reason == "the meter was not started"


@pytest.mark.parametrize("states", [(NoReading("gone"), 12), (5, NoReading("gone"))])
def test_a_counter_that_cannot_be_read_at_either_end_is_a_reason(states):
    meter = Scripted(*states)
    meter.start()
    assert meter.stop() == Reading("scripted", "1", None, None, "gone")


def test_every_meter_of_this_machine_gives_a_reading_of_its_own_name():
    every = meters()
    for meter in every:
        meter.start()
    readings = [meter.stop() for meter in every]
    assert [each.name for each in readings] == [each.name for each in every]
    assert len({each.name for each in readings}) == len(readings)
    assert all(each.value is None or each.value >= 0 for each in readings)
