from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.measure.clocks import FakeClock
from levelbench.measure.meters import NullMeter
from levelbench.measure.meters.energy import RaplDomain, RaplMeter, rapl_domains, rapl_meter

SECOND = 1_000_000_000
RANGE_UJ = 262_143_328_850


def domain(root: Path, folder: str, name: str, energy_uj: int = 0, range_uj: int = RANGE_UJ) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{energy_uj}\n")
    (path / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return path / "energy_uj"


@pytest.fixture
def server(tmp_path):
    """Two packages with nested domains, listed also by memory map, and the platform: as Linux shows them."""
    (tmp_path / "intel-rapl").mkdir()
    counters = {
        "0": domain(tmp_path, "intel-rapl:0", "package-0", 1_000_000),
        "1": domain(tmp_path, "intel-rapl:1", "package-1", 2_000_000),
    }
    domain(tmp_path, "intel-rapl:0/intel-rapl:0:0", "core", 5_000_000)
    domain(tmp_path, "intel-rapl:0:0", "core", 5_000_000)
    domain(tmp_path, "intel-rapl:0:1", "dram", 5_000_000)
    domain(tmp_path, "intel-rapl:2", "psys", 9_000_000)
    domain(tmp_path, "intel-rapl-mmio:0", "package-0", 7_000_000)
    return tmp_path, counters


def test_each_package_counts_once_and_nothing_inside_or_around_it(server):
    assert [each.name for each in rapl_domains(server[0])] == ["package-0", "package-1"]


def test_energy_is_the_sum_of_the_packages_in_joules(server):
    root, counters = server
    clock = FakeClock()
    meter = rapl_meter(root, clock)
    meter.start()
    clock.advance(SECOND)
    counters["0"].write_text("31000000")
    counters["1"].write_text("22000000")
    reading = meter.stop()
    assert (reading.value, reading.unit, reading.method) == (pytest.approx(50.0), "J", "rapl")


def test_the_platform_counts_only_where_no_package_is_listed(tmp_path):
    counter = domain(tmp_path, "intel-rapl:0", "psys")
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.advance(SECOND)
    counter.write_text("4000000")
    assert (meter.stop().method, meter.stop().value) == ("rapl-psys", pytest.approx(4.0))


def test_a_counter_that_wrapped_around_once_is_followed(tmp_path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.advance(SECOND)
    counter.write_text("2000000")
    assert meter.stop().value == pytest.approx(3.0)


def test_a_stretch_that_may_hold_two_wraps_has_no_value(tmp_path):
    domain(tmp_path, "intel-rapl:0", "package-0", range_uj=65_000_000_000)
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.advance(66 * SECOND)
    reading = meter.stop()
    assert reading.value is None
    assert reading.reason == "a RAPL counter may have wrapped around twice in 66 s (it holds 65000 J)"


@settings(deadline=None)
@given(st.lists(st.integers(1, 60_000_000_000), min_size=1, max_size=12))
def test_catching_up_follows_a_counter_through_any_number_of_wraps(steps_uj):
    class Counter:
        total_uj = 64_000_000_000

        def read_text(self) -> str:
            return str(self.total_uj % 65_000_000_000)

    counter, clock = Counter(), FakeClock()
    meter = RaplMeter((RaplDomain("package-0", counter, 65_000_000_000),), clock)
    meter.start()
    for step_uj in steps_uj:
        clock.advance(60 * SECOND)
        counter.total_uj += step_uj
        meter.catch_up()
    assert meter.stop().value == pytest.approx(sum(steps_uj) * 1e-6)


def test_catching_up_too_late_is_remembered_as_a_reason(tmp_path):
    domain(tmp_path, "intel-rapl:0", "package-0", range_uj=65_000_000_000)
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.catch_up()
    meter.start()
    clock.advance(70 * SECOND)
    meter.catch_up()
    meter.catch_up()
    assert "wrapped around twice" in meter.stop().reason


def test_starting_again_forgets_what_was_caught_up(tmp_path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0")
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.advance(SECOND)
    counter.write_text("5000000")
    meter.catch_up()
    meter.start()
    clock.advance(SECOND)
    counter.write_text("6000000")
    assert meter.stop().value == pytest.approx(1.0)


def test_a_stretch_shorter_than_ten_updates_has_no_value(tmp_path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0")
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.advance(9_000_000)
    counter.write_text("100000")
    assert meter.stop().reason.startswith("9 ms are too short for the RAPL counter")
    clock.advance(1_000_000)
    assert meter.stop().value == pytest.approx(0.1)


def test_a_counter_that_stands_still_has_no_value(tmp_path):
    domain(tmp_path, "intel-rapl:0", "package-0")
    clock = FakeClock()
    meter = rapl_meter(tmp_path, clock)
    meter.start()
    clock.advance(SECOND)
    assert meter.stop().reason == "the RAPL counter did not move in 1 s"


@pytest.mark.parametrize("folder", [".", "missing"])
def test_a_machine_without_a_counter_says_so(tmp_path, folder):
    meter = rapl_meter(tmp_path / folder)
    assert isinstance(meter, NullMeter)
    assert meter.stop().reason == "no RAPL counter under /sys/class/powercap (virtual machine?)"


def test_a_counter_for_root_only_names_the_remedy(server, monkeypatch):
    def deny(path, *_, **__):
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return real(path)

    real = Path.read_text
    monkeypatch.setattr(Path, "read_text", deny)
    reading = rapl_meter(server[0]).stop()
    assert reading.value is None
    assert "root only" in reading.reason
    assert "readable" in reading.reason


def test_a_counter_that_vanishes_or_holds_no_number_is_a_reason(tmp_path):
    counter = domain(tmp_path, "intel-rapl:0", "package-0")
    meter = rapl_meter(tmp_path)
    meter.start()
    counter.write_text("much")
    assert "does not hold a number" in meter.stop().reason
    counter.unlink()
    assert "cannot be read" in meter.stop().reason


def test_a_domain_without_a_range_is_left_out(tmp_path):
    domain(tmp_path, "intel-rapl:0", "package-0")
    (tmp_path / "intel-rapl:0" / "max_energy_range_uj").unlink()
    assert rapl_domains(tmp_path) == ()
