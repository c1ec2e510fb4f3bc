"""``levelbench communicator``: what it refuses, what it says of planted times, and one real sweep."""

import json

import pytest

from levelbench.cli.communicator_words import Swept, fits_table, sweep_json, times_table
from levelbench.distributed.communicators import mpi
from levelbench.distributed.sweep import How, SweepPoint
from levelbench.report.tables import Text

ALPHA, BETA = 50e-6, 1e-9


def planted(operation="all-reduce", sizes=(4, 4096, 4194304), ranks=2):
    points = []
    for nbytes in sizes:
        time_s = ALPHA + nbytes * BETA
        points.append(
            SweepPoint(operation, nbytes, tuple(time_s * (1 + 0.001 * at) for at in range(-4, 5)), 2, "", "done")
        )
    return Swept("gloo", "process", ranks, tuple(points))


def words(table):
    return [[cell.text for cell in row if isinstance(cell, Text)] for row in table.rows]


@pytest.fixture
def said(call):
    return lambda *arguments: call("communicator", *arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--communicator", "glo"), 2, "close: gloo"),
        (("--engine", "proces"), 2, "close: process"),
        (("--communicator", "mpi", "--engine", "process"), 3, "--engine"),
        (("--operation", "all-reduc"), 2, "close: all-reduce"),
        (("--sizes", "2B"), 2, "4B:64MiB"),
        (("--suite", "deepbench", "--sizes", "4B"), 2, "the suite defines both"),
        (("--suite", "deepbnch"), 2, "deepbench"),
        (("--seconds", "0"), 2, "not both positive"),
        (("--ranks", "0"), 2, "ranks"),
        (("--ranks", "1", "--operation", "send-receive"), 2, "no rank to send to"),
        (("--ranks", "1", "--operation", "window"), 2, "no rank to send to"),
        (("--dtype", "float42"), 2, "close: float"),
        (("--dtype", "int32", "--operation", "all-reduce-mean"), 2, "cannot represent a mean"),
        (("--dtype", "int32", "--op", "mean"), 2, "cannot represent a mean"),
        (("--operation", "all", "--dtype", "int32", "--op", "avg"), 2, "cannot represent a mean"),
        (("--op", "maxx"), 2, "close: max"),
        (("--op", ""), 2, "there are: max, mean"),
        (("--operation", "all-reduce,broadcast", "--op", "max"), 2, "broadcast with --op"),
        (("--operation", "all-reduce-max", "--op", "min"), 2, "it is the max already"),
        (("--overlap", "--operation", "gather,barrier"), 2, "none of gather, barrier can be begun"),
        (("--plot", "a.pdf"), 2, ".svg or .png"),
        (("--level", "2"), 2, "confidence level"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(said, arguments, code, says):
    found, _, error = said(*arguments)
    assert found == code
    assert says in error


def test_each_time_has_its_own_unit_and_bandwidths():
    rows = words(times_table([planted()], 0.95))
    assert [row[2] for row in rows] == ["4 B", "4 KiB", "4 MiB"]
    assert rows[0][3].startswith("50.00 µs [49.")
    assert rows[2][3].startswith("4.244 ms [4.2")
    assert rows[2][4] == "988 MB/s"


def test_the_bus_carries_less_than_the_algorithm_on_more_ranks():
    (row,) = words(times_table([planted("all-gather", (4194304,), ranks=4)], 0.95))
    assert row[4:] == ["988 MB/s", "741 MB/s"]


def test_an_operation_without_a_size_has_no_bandwidth():
    (row,) = words(times_table([planted("barrier", (0,))], 0.95))
    assert row[2] == row[4] == row[5] == ""


def test_the_line_is_that_which_was_planted():
    (row,) = words(fits_table([planted(sizes=[4**at for at in range(1, 12)], ranks=4)], 0.95))
    assert row[2].startswith("50.0 µs [49.")
    assert row[3] == "1,000 ps/B [987, 1,013]"
    assert row[4] == "1.00 GB/s"
    # A ring of four: six messages of a quarter.
    assert row[6].startswith("8.33 µs")
    assert row[7].startswith("1.5")


def test_two_sizes_have_no_line():
    assert fits_table([planted(sizes=(4, 8))], 0.95) is None
    assert sweep_json([planted(sizes=(4, 8))], 0.95)[0]["operations"]["all-reduce"]["fit"] is None


def test_the_json_holds_every_value():
    (found,) = json.loads(json.dumps(sweep_json([planted()], 0.95)))
    points = found["operations"]["all-reduce"]["points"]
    assert len(points[0]["times_s"]) == 9
    assert points[2]["bus_bandwidth_b_s"] == pytest.approx(4194304 / (ALPHA + 4194304 * BETA))
    assert found["operations"]["all-reduce"]["fit"]["alpha_s"] == pytest.approx(ALPHA, rel=1e-3)


def test_a_window_tells_its_messages_and_what_hides_is_a_share():
    point = SweepPoint("window", 4096, (1e-5,) * 9, 0, "", "")
    beside = SweepPoint("all-reduce", 4096, (1e-5,) * 9, 0, "", "", overlap=(0.5,) * 9)
    table = times_table([Swept("gloo", "process", 2, (point, beside), How("bfloat16", copy=True))], 0.95)
    assert table.title == "Times on 2 ranks, bfloat16, out of place"
    first, second = words(table)
    assert first[6:] == ["100 thousand", ""]
    assert second[6:] == ["", "50% [50%, 50%]"]


def test_more_ranks_than_cores_are_warned_of(said, monkeypatch):
    monkeypatch.setattr("levelbench.measure.meters.resources.available_cores", lambda: 1)
    monkeypatch.setattr(
        "levelbench.experiments.communicators.measure_communicator", lambda *given, options: planted().points
    )
    code, out, _ = said()
    assert code == 0
    assert "2 ranks share 1 cores" in out


def test_deepbenchs_sizes_are_measured_in_bytes(said, monkeypatch):
    jobs = []

    def measure(job, engine, ranks, on_point, options):
        jobs.append(job)
        return planted().points

    monkeypatch.setattr("levelbench.experiments.communicators.measure_communicator", measure)
    assert said("--suite", "deepbench")[0] == 0
    assert jobs[0].operations == ("all-reduce",)
    assert jobs[0].sizes[:2] == (400_000, 12_390_400)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--op", "max,prod"), ["all-reduce-max", "all-reduce-product"]),
        (("--op", "sum,avg,mean"), ["all-reduce", "all-reduce-mean"]),
        (("--op", "min", "--operation", "reduce-scatter,all-reduce"), ["reduce-scatter-min", "all-reduce-min"]),
        (("--op", "all", "--dtype", "int8"), [f"all-reduce{each}" for each in ("", "-max", "-min", "-product")]),
        (("--op", "max", "--suite", "deepbench"), ["all-reduce-max"]),
    ],
)
def test_reductions_are_measured_in_each_way_that_is_named(said, monkeypatch, arguments, names):
    jobs = []

    def measure(job, engine, ranks, on_point, options):
        jobs.append(job)
        return planted(names[0]).points

    monkeypatch.setattr("levelbench.experiments.communicators.measure_communicator", measure)
    code, out, err = said(*arguments, "--json")
    assert code == 0, err
    assert list(jobs[0].operations) == names
    assert json.loads(out)["swept"][0]["operations"][names[0]]["op"] in ("sum", "max", "min")


def test_the_figure_and_the_tables_are_written(said, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(
        "levelbench.experiments.communicators.measure_communicator", lambda *given, options: planted().points
    )
    figure, text = tmp_path / "a.svg", tmp_path / "a.md"
    code, out, _ = said("--plot", str(figure), "--markdown", str(text))
    assert code == 0
    assert str(figure) in out
    assert "bus bandwidth, GB/s" in figure.read_text()
    assert "all-reduce" in text.read_text()


@pytest.mark.skipif(mpi.lacks() is not None, reason=str(mpi.lacks()))
def test_a_sweep_over_mpi_measures_each_operation_at_each_size(said):
    arguments = ("--communicator", "mpi", "--operation", "all", "--sizes", "4B:4KiB:32", "--seconds", "0.3", "--json")
    code, out, err = said(*arguments)
    assert code == 0, err
    (found,) = json.loads(out)["swept"]
    assert found["engine"] == "mpi"
    assert [len(each["points"]) for each in found["operations"].values()] == [3] * 19 + [1]
    assert found["operations"]["all-reduce"]["points"][0]["times_s"]


@pytest.mark.skipif(mpi.lacks() is not None, reason=str(mpi.lacks()))
def test_an_error_of_a_rank_reaches_the_user(said, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("levelbench.experiments.communicators.JOB", "elsewhere.json")
    code, _, err = said("--communicator", "mpi", "--sizes", "4B", "--debug")
    assert code == 3
    assert "job.json" in err


def test_a_line_that_misses_a_point_by_more_than_half_says_so():
    good = planted()
    slow = SweepPoint("all-reduce", 65536, tuple(0.05 + 0.001 * at for at in range(9)), 0, "", "done")
    poor = Swept("gloo", "process", 2, (*good.points, slow))
    assert not any("misses a point" in note for note in fits_table([good], 0.95).notes)
    assert any("misses a point" in note for note in fits_table([poor], 0.95).notes)


def test_one_rank_is_not_several():
    assert times_table([planted(operation="barrier", sizes=(0,), ranks=1)], 0.95).title == "Times on 1 rank"
