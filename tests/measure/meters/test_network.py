import pytest

from levelbench.measure.meters import NullMeter
from levelbench.measure.meters.utilisation import interface_bytes, loopback_meter, network_meter

HEAD = "Inter-|   Receive    |  Transmit\n face |bytes packets ...\n"


def machine(root, **counters):
    (root / "net").mkdir(exist_ok=True)
    lines = [f"{name}: {got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n" for name, (got, sent) in counters.items()]
    (root / "net" / "dev").write_text(HEAD + "".join(lines))
    return root


def hardware(root, *names):
    for name in names:
        (root / "class" / "net" / name / "device").mkdir(parents=True)
    return root


def test_bytes_are_received_plus_sent_by_interface(tmp_path):
    assert interface_bytes(machine(tmp_path, lo=(1, 2), eth0=(10, 20))) == {"lo": 3, "eth0": 30}


def test_a_counter_next_to_the_colon_is_read(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(HEAD + "eth0:75739979 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n")
    assert interface_bytes(tmp_path) == {"eth0": 75739984}


def test_loopback_is_apart(tmp_path):
    out, within = (
        factory(machine(tmp_path, lo=(0, 0), eth0=(0, 0)), *sys)
        for factory, sys in ((network_meter, (tmp_path,)), (loopback_meter, ()))
    )
    out.start()
    within.start()
    machine(tmp_path, lo=(7, 7), eth0=(100, 50))
    assert (out.stop().value, within.stop().value) == (150.0, 14.0)


def test_a_bridge_is_not_counted_beside_the_hardware_that_carries_it(tmp_path):
    machine(tmp_path, lo=(0, 0), eth0=(0, 0), docker0=(0, 0), eth1=(0, 0))
    meter = network_meter(tmp_path, hardware(tmp_path / "sys", "eth0", "eth1"))
    meter.start()
    machine(tmp_path, lo=(0, 0), eth0=(10, 0), docker0=(10, 0), eth1=(0, 1))
    reading = meter.stop()
    assert (reading.value, reading.method) == (11.0, "proc-net-dev (eth0, eth1)")


def test_where_no_interface_has_hardware_all_but_loopback_count(tmp_path):
    assert network_meter(machine(tmp_path, lo=(0, 0), veth0=(0, 0)), tmp_path).method == "proc-net-dev (veth0)"


def test_a_machine_with_loopback_only_says_so(tmp_path):
    meter = network_meter(machine(tmp_path, lo=(0, 0)), tmp_path)
    assert isinstance(meter, NullMeter)
    assert meter.stop().reason == "no network interface but loopback"
    assert loopback_meter(machine(tmp_path, eth0=(0, 0))).stop().reason == "no loopback interface"


def test_an_interface_that_goes_or_whose_counter_goes_back_is_a_reason(tmp_path):
    meter = network_meter(machine(tmp_path, eth0=(10, 10)), tmp_path)
    meter.start()
    machine(tmp_path, eth0=(1, 1))
    assert "went back" in meter.stop().reason
    machine(tmp_path, eth1=(1, 1))
    assert meter.stop().reason == "interface eth0 is gone"


@pytest.mark.parametrize("factory", [lambda proc: network_meter(proc, proc), loopback_meter])
def test_a_file_that_is_missing_or_strange_is_a_reason(tmp_path, factory):
    assert "cannot be read" in factory(tmp_path).stop().reason
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(HEAD + "eth0: many\n")
    assert "not in a form" in factory(tmp_path).stop().reason
