import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.meters import NullMeter, energy_meter
from levelbench.measure.meters.energy import nvml_meter

SECOND = 1_000_000_000


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
    assert meter.stop().reason == "NVML gives no energy counter: Driver Not Loaded"


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
        (-500, SECOND, "the driver was loaded again"),
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
