"""Where a network's time goes: the tables, and the figures of a network's benchmark."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from msgspec import structs

from levelbench.errors import UsageError
from levelbench.records.network_summary import ProfileRow
from levelbench.records.networks import NetworkArm
from levelbench.report.network_figures import write_breakdown, write_latency, write_memory_curve
from levelbench.report.networks import breakdown_tables, operators_table, profile_lines
from levelbench.report.tables import to_text

TORCH = NetworkArm("torch")
WRITERS = [write_breakdown, write_latency, write_memory_curve]


def lines_of(table):
    return {line.split("  ")[0]: line for line in to_text(table, 400).splitlines()}


def test_the_table_is_what_it_was(network_summary, golden):
    golden("network_breakdown", to_text(breakdown_tables(network_summary)[0], 100))


def test_a_table_a_case(network_summary):
    assert [table.title.partition(": ")[0] for table in breakdown_tables(network_summary)] == [
        "resnet18, inference, on cpu, batch 1",
        "resnet18, inference, on cpu, batch 8",
    ]


def test_operators_overhead_and_whole_add_up(network_summary):
    rows = {cells[0].text: cells for cells in breakdown_tables(network_summary)[0].rows}
    times = {name: cells[3].value for name, cells in rows.items()}
    parts = sum(times[name] for name in ("Conv", "BatchNormalization", "Relu", "Gemm"))
    assert times["sum of operators"] == pytest.approx(parts)
    assert parts + times["overhead"] == pytest.approx(times["whole (p50)"], rel=1e-3)


def test_shares_of_an_arm_add_up_to_one(network_summary):
    rows = {cells[0].text: cells for cells in breakdown_tables(network_summary)[0].rows}
    assert rows["sum of operators"][2].value == pytest.approx(1)
    assert rows["sum of operators"][6].value == pytest.approx(1)


def test_an_operator_that_one_framework_fuses_away_is_counted_for_each(network_summary):
    rows = lines_of(breakdown_tables(network_summary)[0])
    assert "3/0" in rows["BatchNormalization"]


def test_what_is_beyond_the_top_is_gathered(network_summary):
    rows = [cells[0].text for cells in breakdown_tables(network_summary, top=1)[0].rows]
    assert rows == ["Conv", "3 others", "sum of operators", "overhead", "whole (p50)"]


def test_by_node_each_operator_has_a_row_with_its_output(network_summary):
    rows = [cells[0].text for cells in breakdown_tables(network_summary, "node", top=3)[0].rows]
    assert set(rows[:3]) == {"Conv conv0", "Conv conv1", "Conv conv2"}
    assert rows[3] == "7 others"


def test_an_arm_that_cannot_tell_its_operators_apart_says_why_below(network_summary):
    table = breakdown_tables(network_summary)[0]
    assert "torch:compiled is not shown: mode 'compiled' cannot tell its operators apart." in table.notes


def test_the_clock_of_an_engines_own_times_is_named_below(network_summary):
    case, entries = network_summary.rows[0]
    facts = structs.replace(entries[0].facts, framework={"operator_clock": "the engine's own clock"})
    told = replace(network_summary, rows=((case, (replace(entries[0], facts=facts), *entries[1:])),))
    said = "operators by the engine's own clock; the whole by the host's."
    assert said in " ".join(breakdown_tables(told)[0].notes)
    assert said not in " ".join(breakdown_tables(network_summary)[0].notes)


def test_without_any_time_of_an_operator_there_is_no_table(summary_of):
    assert breakdown_tables(summary_of({TORCH: {"operators": False}})) == []


def test_every_operator_of_every_case_and_arm_is_in_the_long_table(network_summary):
    table = operators_table(network_summary)
    assert len(table.rows) == 2 * (10 + 7)
    keys = [column.key for column in table.columns]
    assert {"time_s", "share", "flops", "bytes", "flop_s", "ceiling_share", "output"} <= set(keys)


def test_the_profilers_shares_are_compared_with_ours(network_summary):
    profile = (ProfileRow("Conv", 0.7, 0.74, "torch.profiler"), ProfileRow("Relu", 0.1, 0.1, "torch.profiler"))
    rows = tuple((case, (replace(first, profile=profile), *more)) for case, (first, *more) in network_summary.rows)
    assert profile_lines(replace(network_summary, rows=rows)) == [
        "torch: shares within 4.0 points of torch.profiler's (Conv)"
    ]


@pytest.mark.parametrize("write", WRITERS)
def test_a_figure_is_written_whole(network_summary, tmp_path, write):
    pytest.importorskip("matplotlib")
    path = write(network_summary, tmp_path / "new" / "figure.png")
    assert path.stat().st_size > 1000
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITERS)
def test_a_drawing_is_valid_and_the_same_each_time(network_summary, tmp_path, write):
    pytest.importorskip("matplotlib")
    text = write(network_summary, tmp_path / "a.svg").read_text()
    ET.fromstring(text)
    assert write(network_summary, tmp_path / "b.svg").read_text() == text


@pytest.mark.parametrize("write", WRITERS)
def test_another_ending_is_refused(network_summary, tmp_path, write):
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        write(network_summary, tmp_path / "figure.pdf")
    assert not list(tmp_path.iterdir())


def test_the_breakdown_shows_each_type_its_share_and_the_whole(network_summary, tmp_path):
    pytest.importorskip("matplotlib")
    text = write_breakdown(network_summary, tmp_path / "a.svg").read_text()
    for word in ("Conv", "BatchNormalization", "overhead", "whole (p50)", "73%", "onnxruntime", "time per call, ms"):
        assert f"<!-- {word} -->" in text
    assert "compiled" not in text


def test_the_latencies_show_a_panel_a_batch_and_every_arm(network_summary, tmp_path):
    pytest.importorskip("matplotlib")
    text = write_latency(network_summary, tmp_path / "a.svg").read_text()
    for word in ("batch 1", "batch 8", "torch:compiled", "latency, ms", "calls that took at most this"):
        assert f"<!-- {word} -->" in text


def test_the_memory_curve_shows_each_limit(summary_of, tmp_path):
    pytest.importorskip("matplotlib")
    limited = NetworkArm("torch", transforms=(f"microbatch;memory={2**26}",))
    text = write_memory_curve(summary_of({TORCH: {}, limited: {"memory": 2**25}}, (1,)), tmp_path / "a.svg").read_text()
    assert "<!-- limit 64 MiB -->" in text
    assert limited.memory_limit == 2**26
    assert TORCH.memory_limit is None


def test_what_was_not_measured_is_in_no_figure(summary_of, tmp_path):
    summary = summary_of({TORCH: {"status": "skipped", "reason": "it does not fit"}})
    for write in WRITERS:
        with pytest.raises(UsageError):
            write(summary, tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_long_names_of_arms_are_letters_that_a_note_explains(summary_of):
    limited = NetworkArm("torch", transforms=(f"microbatch;memory={2**26}",))
    table = breakdown_tables(summary_of({TORCH: {}, limited: {}}, (1,)))[0]
    assert [column.title for column in table.columns[2:8:4]] == ["[A] share", "[B] share"]
    assert "[A]: torch. [B]: torch + microbatch(memory=64MiB)." in table.notes


def test_of_many_arms_shares_and_times_are_shown(summary_of):
    arms = {NetworkArm(name): {} for name in ("torch", "jax", "numpy", "onnxruntime")}
    table = breakdown_tables(summary_of(arms, (1,)))[0]
    assert [column.key for column in table.columns[2:4]] == ["torch_share", "torch_time_s"]
    assert len(table.columns) == 2 + 2 * 4
