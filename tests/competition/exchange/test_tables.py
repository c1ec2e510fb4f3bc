"""Entries are read back unchanged from CSV and Parquet, whatever their texts contain."""

import csv

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.competition import exchange
from levelbench.competition.entries import (
    Author,
    Hardware,
    Inference,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
)
from levelbench.errors import RecordError
from levelbench.records.schema import Target


def submission(model="m", notes="", times=(1.0, 2.5), epoch=None):
    curve = SubmittedCurve(list(times), [0.5 for _ in times], epoch, others={"top1": [0.25 for _ in times]})
    return Submission(
        schema=1,
        ruleset="levelbench-1.0",
        task="digits",
        mode="training",
        author=Author("=HYPERLINK(1)"),
        submitted="2026-01-02",
        model=model,
        framework="f",
        hardware=Hardware("h", nodes=2),
        target=Target("top1", 0.97),
        price=SystemPrice(3.06),
        runs=[SubmittedRun(curve, seed=3, reached=False), SubmittedRun(curve, reached=True)],
        inference=[Inference("offline", 10, 10, 1.5, quantiles_s={"0.5": 0.1})],
        notes=notes,
    )


def test_each_entry_run_point_and_measurement_has_a_row():
    found = exchange.tabulate([("digits/training/a", submission())])
    assert {name: len(rows) for name, rows in found.items()} == {"entries": 1, "runs": 2, "points": 4, "inference": 1}
    assert found["points"][3] == {
        "entry": "digits/training/a",
        "run": 1,
        "point": 1,
        "time_s": 2.5,
        "quality": 0.5,
        "epoch": None,
        "samples": None,
        "others": '{"top1": 0.25}',
    }


def test_what_a_server_is_ranked_by_is_in_its_row():
    found = {"target_per_s": 100.0, "latency_bound_s": 0.015, "valid": True, "estimate_quantile": 0.99}
    entry = submission()
    (measured,) = entry.inference
    entry = msgspec.structs.replace(entry, inference=[msgspec.structs.replace(measured, **found)])
    (row,) = exchange.tabulate([("a", entry)])["inference"]
    assert {name: row[name] for name in found} == found


def test_every_row_has_the_stated_columns():
    found = exchange.tabulate([("a", submission())])
    for name, rows in found.items():
        assert all(list(row) == list(exchange.COLUMNS[name]) for row in rows)


def test_every_time_and_price_says_its_unit():
    for columns in exchange.COLUMNS.values():
        for name, (kind, said) in columns.items():
            if name.endswith(("_s", "_usd", "usd_per_hour", "_j")) and kind is float:
                assert any(unit in said for unit in ("seconds", "US dollars", "joules", "per second")), name


def test_text_that_a_spreadsheet_would_run_is_quoted_and_read_back_as_it_was(tmp_path):
    found = exchange.tabulate([("a", submission(model="@SUM(A1)", notes="'quoted"))])
    exchange.write_csv(found, tmp_path)
    with (tmp_path / "entries.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["author"], row["model"], row["notes"]) == ("'=HYPERLINK(1)", "'@SUM(A1)", "''quoted")
    assert exchange.read_csv(tmp_path) == found


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    model=TEXT,
    notes=st.sampled_from(["=1", "+1", "-1", "@x", "\tx", "\rx", "'x", "a\r\nb", '"']) | TEXT,
    times=st.lists(st.floats(-1e300, 1e300), max_size=3),
)
def test_csv_is_read_back_equal(tmp_path, model, notes, times):
    found = exchange.tabulate([("a", submission(model, notes, times, [1.0] * len(times))), ("b", submission())])
    exchange.write_csv(found, tmp_path)
    assert exchange.read_csv(tmp_path) == found


def test_parquet_is_read_back_equal_and_says_what_its_columns_hold(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = exchange.tabulate([("a", submission(model="=1", epoch=[1.0, 2.0])), ("b", submission(times=()))])
    exchange.write_parquet(found, tmp_path)
    assert exchange.read_parquet(tmp_path) == found
    field = parquet.read_schema(tmp_path / "runs.parquet").field("time_to_target_s")
    assert field.metadata[b"description"].startswith(b"seconds")


@pytest.mark.parametrize("data", [b"", b"a,b\n1,2\n", b"\xff\xfe", b'entry,"'])
def test_a_foreign_table_is_an_error(tmp_path, data):
    exchange.write_csv(exchange.tabulate([("a", submission())]), tmp_path)
    (tmp_path / "runs.csv").write_bytes(data)
    with pytest.raises(RecordError, match=r"runs\.csv"):
        exchange.read_csv(tmp_path)


def test_a_parquet_whose_text_is_not_utf8_is_an_error(tmp_path):
    pytest.importorskip("pyarrow")
    found = exchange.tabulate([("a", submission(model="the-model"))])
    exchange.write_parquet(found, tmp_path)
    path = tmp_path / "entries.parquet"
    assert b"the-model" in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b"the-model", b"the\xfemodel"))
    with pytest.raises(RecordError, match=r"entries\.parquet"):
        exchange.read_parquet(tmp_path)
