"""Claims of measured commands: of levelbench's own records, of hyperfine and of pyperf."""

import json

import pytest

from levelbench.claims.reading import kind_of, read
from levelbench.errors import LevelbenchError
from levelbench.importing.timings import import_timings, read_timings
from levelbench.records import Store

TIMES = {"sleep 0.1": [0.101, 0.102, 0.104], "sleep 0.2": [0.201, 0.202, 0.204]}


@pytest.fixture
def hyperfine(tmp_path):
    results = [{"command": name, "times": times, "exit_codes": [0, 0, 0]} for name, times in TIMES.items()]
    (tmp_path / "bench.json").write_text(json.dumps({"results": results}))
    return tmp_path / "bench.json"


def test_a_file_of_hyperfine_is_a_claim_with_a_side_for_each_command(hyperfine):
    assert kind_of(hyperfine) == "timings"
    (claim,) = read(hyperfine)
    assert [(side.name, side.runs_made) for side in claim.sides] == [("sleep 0.1", 3), ("sleep 0.2", 3)]
    assert claim.sides[0].time_s == pytest.approx((0.101 * 0.102 * 0.104) ** (1 / 3))
    assert claim.sides[0].timing.method == "as hyperfine wrote it"
    assert [(each.new, each.base) for each in claim.comparisons] == [("sleep 0.2", "sleep 0.1")]
    assert {each.where for each in claim.sides} == {str(hyperfine)}


def test_a_store_of_commands_is_read_and_no_record_called_damaged(hyperfine, tmp_path):
    for processes in read_timings(hyperfine).values():
        import_timings(processes, tmp_path / "store")
    problems: list[LevelbenchError] = []
    (claim,) = read(tmp_path / "store", problems=problems)
    assert (len(claim.sides), problems) == (2, [])


def test_records_that_state_no_claim_are_passed_over(hyperfine, tmp_path):
    for processes in read_timings(hyperfine).values():
        import_timings(processes, tmp_path / "store")
    (tmp_path / "store" / "operators").mkdir()
    (tmp_path / "store" / "operators" / "one.jsonlines").write_text('{"kind":"benchmark","schema":2}\n')
    problems: list[LevelbenchError] = []
    assert len(read(tmp_path / "store", problems=problems)) == 1
    assert problems == []


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([0, 0, 0], []),
        ([0, 1, 0], ["doubt: 1 of 3 processes of sleep 0.1 failed (it ended with exit code 1)"]),
        ([1, 1, 1], ["refuse: 3 of 3 processes of sleep 0.1 failed (it ended with exit code 1)"]),
    ],
)
def test_processes_that_failed_are_named(hyperfine, codes, said):
    data = json.loads(hyperfine.read_text())
    data["results"][0]["exit_codes"] = codes
    hyperfine.write_text(json.dumps(data))
    (claim,) = read(hyperfine)
    assert [each[: each.index(")") + 1] for each in claim.caveats] == said
    assert [each.failed for each in claim.sides[0].runs] == [code != 0 for code in codes]


def test_the_latest_is_the_whole_measurement_where_only_commands_were_measured(hyperfine, tmp_path):
    for processes in read_timings(hyperfine).values():
        import_timings(processes, tmp_path / "store")
    (claim,) = read("latest", Store(tmp_path / "store"))
    assert [(side.name, side.runs_made) for side in claim.sides] == [("sleep 0.1", 3), ("sleep 0.2", 3)]
    (claim,) = read("sleep 0.2", Store(tmp_path / "store"))
    assert [side.name for side in claim.sides] == ["sleep 0.2"]
