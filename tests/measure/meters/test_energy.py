"""Energy by the counters of processor packages and of NVIDIA boards."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.measure.clocks import FakeClock
from levelbench.measure.meters import NullMeter, energy_meter
from levelbench.measure.meters.energy import RaplDomain, RaplMeter, nvml_meter, rapl_domains, rapl_meter

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
    assert "only root may read" in reading.reason
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


class FakeNvml:
    """The few functions of ``pynvml`` that are used, over boards that a test writes to."""

    class NVMLError(Exception):
        pass

    def __init__(self, *models: str, initialises: bool = True, counts: bool = True) -> None:
        self.models = models
        self.energy_mj = [1_000 * (index + 1) for index in range(len(models))]
        self.initialises = initialises
        self.counts = counts

    def nvmlInit(self):  # noqa: N802
        if not self.initialises:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.models)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return self.models[handle].encode()

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{handle}abc-123"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if not self.counts:
            raise self.NVMLError("Not Supported")
        return self.energy_mj[handle]


def energy_of(nvml, environment, used_mj, after_ns=10 * SECOND):
    clock = FakeClock()
    meter = nvml_meter(clock, nvml, environment)
    meter.start()
    clock.advance(after_ns)
    nvml.energy_mj = [now + used for now, used in zip(nvml.energy_mj, used_mj, strict=True)]
    return meter.stop()


def test_energy_is_what_the_board_counted_in_joules():
    reading = energy_of(FakeNvml("H200"), {}, [2_500])
    assert (reading.value, reading.unit, reading.method) == (pytest.approx(2.5), "J", "nvml-counter")


@pytest.mark.parametrize(
    ("visible", "expected_j"),
    [(None, 111.0), ("0", 1.0), ("1,2", 110.0), ("GPU-2abc", 100.0), ("2,-1,0", 100.0), (" 0 , 1 ", 11.0)],
)
def test_only_the_boards_that_the_program_sees_are_counted(visible, expected_j):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    reading = energy_of(FakeNvml("H200", "H200", "H200"), environment, [1_000, 10_000, 100_000])
    assert reading.value == pytest.approx(expected_j)


@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_no_visible_board_is_a_reason(visible):
    meter = nvml_meter(FakeClock(), FakeNvml("H200"), {"CUDA_VISIBLE_DEVICES": visible})
    assert meter.stop().reason == "no NVIDIA device is visible"


def test_an_index_among_different_models_needs_the_order_to_be_known():
    nvml, environment = FakeNvml("H200", "T4"), {"CUDA_VISIBLE_DEVICES": "1"}
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in nvml_meter(FakeClock(), nvml, environment).stop().reason
    reading = energy_of(nvml, {**environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [1_000, 2_000])
    assert reading.value == pytest.approx(2.0)


def test_a_part_of_a_board_has_no_counter():
    assert "MIG" in nvml_meter(FakeClock(), FakeNvml("H200"), {"CUDA_VISIBLE_DEVICES": "MIG-1"}).stop().reason


def test_a_driver_that_is_not_there_is_a_reason():
    meter = nvml_meter(FakeClock(), FakeNvml("H200", initialises=False), {})
    assert meter.stop().reason == "NVML has no energy counter: Driver Not Loaded"


def test_a_board_without_the_counter_is_a_reason():
    assert "Not Supported" in nvml_meter(FakeClock(), FakeNvml("P100", counts=False), {}).stop().reason


def test_a_counter_that_fails_later_is_a_reason():
    nvml = FakeNvml("H200")
    meter = nvml_meter(FakeClock(), nvml, {})
    meter.start()
    nvml.counts = False
    assert meter.stop().reason == "the NVML energy counter cannot be read: Not Supported"


@pytest.mark.parametrize(
    ("used_mj", "after_ns", "reason"),
    [
        (500, 90_000_000, "0.09 s are too short"),
        (0, SECOND, "did not move in 1 s"),
        (-500, SECOND, "the driver was reloaded"),
    ],
)
def test_a_stretch_that_the_counter_cannot_resolve_has_no_value(used_mj, after_ns, reason):
    reading = energy_of(FakeNvml("H200"), {}, [used_mj], after_ns)
    assert reading.value is None
    assert reason in reading.reason


def test_without_the_binding_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert nvml_meter().stop().reason == "no NVML binding (install levelbench[energy])"


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    (folder / "name").write_text("package-0")
    (folder / "energy_uj").write_text("0")
    (folder / "max_energy_range_uj").write_text("262143328850")
    return tmp_path, folder / "energy_uj"


def test_packages_and_boards_are_added_and_the_method_names_both(package):
    nvml, clock = FakeNvml("H200"), FakeClock()
    meter = energy_meter(clock, package[0], nvml, {})
    meter.start()
    clock.advance(2 * SECOND)
    package[1].write_text("4000000")
    meter.catch_up()
    nvml.energy_mj[0] += 3_000
    package[1].write_text("5000000")
    reading = meter.stop()
    assert (reading.value, reading.method) == (pytest.approx(8.0), "rapl+nvml-counter")


def test_a_sum_of_which_one_part_has_no_value_has_none(package):
    nvml, clock = FakeNvml("H200"), FakeClock()
    meter = energy_meter(clock, package[0], nvml, {})
    meter.start()
    clock.advance(2 * SECOND)
    nvml.energy_mj[0] += 3_000
    assert meter.stop().reason == "the RAPL counter did not move in 2 s"


def test_one_source_alone_keeps_its_own_method(package, tmp_path):
    boards_only = energy_meter(FakeClock(), tmp_path / "none", FakeNvml("H200"), {})
    packages_only = energy_meter(FakeClock(), package[0], FakeNvml(), {})
    assert (boards_only.method, packages_only.method) == ("nvml-counter", "rapl")


def test_no_source_at_all_gives_every_reason_and_never_a_number(tmp_path):
    meter = energy_meter(FakeClock(), tmp_path, FakeNvml(), {})
    assert isinstance(meter, NullMeter)
    assert meter.stop().value is None
    assert "no RAPL counter" in meter.stop().reason
    assert "no NVIDIA device" in meter.stop().reason
