"""Cold caches are proved or refused."""

from __future__ import annotations

import numpy as np
import pytest

from levelbench.errors import MissingError
from levelbench.measure.caches import (
    FALLBACK_BYTES,
    CacheProbe,
    Cold,
    FlushProof,
    Hot,
    LastLevel,
    StreamFlusher,
    last_level_cache,
    prove_flush,
)
from levelbench.measure.clocks import FakeClock
from levelbench.measure.environment.machine import Roots


class NoFlusher:
    """A flusher that flushes nothing."""

    def flush(self):
        pass


class FakeMachine:
    """A probe and a flusher on one imagined cache: 100 ns hot, 900 ns after a flush."""

    def __init__(self):
        self.cached = False
        self.readings = []

    def flush(self):
        self.cached = False

    def read_ns(self):
        spent = 100 if self.cached else 900
        self.cached = True
        self.readings.append(spent)
        return spent


def test_a_flusher_that_flushes_is_proved():
    machine = FakeMachine()
    proof = prove_flush(machine, probe=machine)
    assert (proof.hot_ns, proof.cold_ns, proof.ratio) == (100, 900, 9)
    assert proof.proved


def test_a_flusher_that_does_nothing_is_found_out():
    proof = prove_flush(NoFlusher(), probe=FakeMachine())
    assert proof.ratio == 1
    assert not proof.proved


def test_a_flusher_that_does_nothing_is_found_out_on_this_machine():
    assert not prove_flush(NoFlusher()).proved


def test_a_probe_that_the_clock_cannot_see_proves_nothing():
    assert not prove_flush(NoFlusher(), FakeClock()).proved


def test_cold_without_proof_is_refused_and_says_what_was_found():
    with pytest.raises(MissingError, match=r"reads 1\.10 times as slowly") as caught:
        Cold(NoFlusher(), FlushProof(100, 110))
    assert "measure hot" in caught.value.do


def test_cold_flushes_before_each_value():
    machine = FakeMachine()
    cold = Cold(machine, FlushProof(100, 900))
    machine.read_ns()
    cold.prepare()
    assert machine.read_ns() == 900


def test_cold_never_repeats_a_call_within_a_value():
    clock = FakeClock(tick_ns=50)
    found = Cold(NoFlusher(), FlushProof(1, 9)).calibrate(lambda: clock.advance(1), clock)
    assert found.inner == 1
    assert found.values_ns == []
    assert len(found.first_ns) == 2


def test_hot_leaves_the_caches_alone_and_has_no_proof():
    Hot().prepare()
    assert Hot().proof is None


def described(tmp_path, *sizes):
    """Caches of one processor, one a level."""
    for level, size in enumerate(sizes, start=1):
        index = tmp_path / f"devices/system/cpu/cpu0/cache/index{level}"
        index.mkdir(parents=True)
        (index / "size").write_text(f"{size}\n")
        (index / "level").write_text(f"{level}\n")
    return Roots(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        (("32K", "32K", "1024K", "32768K"), 32 << 20),
        (("48K", "96M"), 96 << 20),
        (("2K", "1G"), 1 << 30),
        (("512",), 512),
    ],
)
def test_the_last_level_is_that_which_the_system_describes(tmp_path, sizes, wanted):
    cache = last_level_cache(described(tmp_path, *sizes))
    assert cache.size_bytes == wanted
    assert cache.source.startswith("read from")


@pytest.mark.parametrize("sizes", [(), ("unknown",)])
def test_an_undescribed_cache_is_assumed_and_says_so(tmp_path, sizes):
    cache = last_level_cache(described(tmp_path, *sizes))
    assert cache.size_bytes == FALLBACK_BYTES
    assert cache.source.startswith("assumed")


def test_the_stream_is_twice_the_cache_and_of_written_pages():
    flusher = StreamFlusher(LastLevel(1 << 16, "for the test"))
    assert flusher._buffer.nbytes == 2 << 16
    assert np.all(flusher._buffer == 1)
    flusher.flush()


def test_the_probe_reads_every_line_once():
    probe = CacheProbe()
    assert sorted(probe._order.tolist()) == list(range(0, len(probe._data), 8))
    assert probe.read_ns() > 0
