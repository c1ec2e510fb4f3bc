"""A benchmark of a network as tables and lines."""

import pytest

from levelbench.records.networks import NetworkArm
from levelbench.report.networks import (
    arm_label,
    facts_lines,
    latency_table,
    network_lines,
    phases_table,
    records_table,
    transform_lines,
)
from levelbench.report.tables import to_csv, to_text

TORCH = NetworkArm("torch")
HALVED = NetworkArm("torch", transforms=("microbatch;memory=67108864",))


def row(table, start, width=400):
    return next(line for line in to_text(table, width).splitlines() if line.startswith(start))


def test_the_table_is_what_it_was(network_summary, golden):
    golden("network_latency", to_text(latency_table(network_summary), 100))


def test_a_row_has_quantiles_throughput_memory_overhead_rate_and_verdict(network_summary):
    shown = row(latency_table(network_summary), "batch 1 · onnxruntime")
    assert "12.17 [" in shown
    assert "14.59 [" in shown
    assert "FASTER 0.60" in shown
    assert "(15 %)" in shown
    assert " c " in shown


def test_rows_of_a_batch_stand_together(network_summary):
    labels = [cells[0].text for cells in latency_table(network_summary).rows]
    assert [label.partition(" · ")[0] for label in labels] == ["batch 1"] * 3 + ["batch 8"] * 3


def test_one_arm_alone_has_no_verdict(summary_of):
    titles = [column.key for column in latency_table(summary_of({TORCH: {}})).columns]
    assert "verdict" not in titles


def test_too_few_samples_have_no_p99_and_the_table_says_how_many_are_needed(summary_of):
    text = to_text(latency_table(summary_of({TORCH: {"samples": 60}}, (1,))), 400)
    assert "each process needs 36 for p90 and 368 for p99" in text
    assert text.count("too few samples") == 1


def test_an_overhead_that_cannot_be_told_says_why(network_summary):
    text = to_text(latency_table(network_summary), 400)
    assert "mode 'compiled' cannot tell its operators apart" in text


def test_a_wrong_result_is_marked_and_its_reason_stands_below(summary_of):
    arms = {TORCH: {}, NetworkArm("jax"): {"status": "wrong", "reason": "logits differ at (0, 7) by 0.3"}}
    table = latency_table(summary_of(arms, (1,)))
    assert "WRONG" in row(table, "batch 1 · jax")
    assert "logits differ at (0, 7) by 0.3" in to_text(table, 400)


@pytest.mark.parametrize("status", ["skipped", "unsupported", "failed"])
def test_what_was_not_measured_says_why(summary_of, status):
    arms = {TORCH: {}, NetworkArm("jax"): {"status": status, "reason": "it has no LRN"}}
    assert f"{status}: it has no LRN" in to_text(latency_table(summary_of(arms, (1,))), 400)


def test_the_largest_error_is_shown_and_every_one_is_in_the_csv(summary_of):
    summary = summary_of({TORCH: {"errors": {"output": 2e-6, "gradient": 3e-4}}}, (1,), direction="backward")
    assert "3.0e-04" in row(latency_table(summary), "batch 1 · torch")
    lines = to_csv(records_table(summary)).splitlines()
    fields = dict(zip(lines[0].split(","), lines[1].split(","), strict=False))
    assert (fields["output_error"], fields["gradient_error"]) == ("2e-06", "0.0003")


def test_the_csv_has_base_units_and_the_mode_that_was_measured(network_summary):
    lines = to_csv(records_table(network_summary)).splitlines()
    fields = dict(zip(lines[0].split(","), lines[2].split(","), strict=False))
    assert (fields["framework"], fields["mode"], fields["batch"]) == ("torch", "compiled", "1")
    assert float(fields["p50_s"]) == pytest.approx(0.015, rel=0.05)
    assert float(fields["p50_s_low"]) < float(fields["p50_s"]) < float(fields["p50_s_high"])
    assert len(lines) == 7


def test_phases_end_with_compilation_and_the_cold_start(network_summary):
    table = phases_table(network_summary)
    assert [column.key for column in table.columns[-2:]] == ["compile_s", "cold_start_s"]
    cold = table.rows[0][-1]
    assert cold.value == pytest.approx(1.2 + 0.05 + 0.1 + 0.42, rel=0.01)


def test_the_networks_size_is_told_once(network_summary):
    assert facts_lines(network_summary) == [
        "resnet18: 11,689,512 parameters (44.6 MiB), 1.82 G multiply-adds per sample, activations 38.1 MiB at batch 1"
    ]


def test_a_line_an_arm_counts_and_gives_the_geometric_mean(network_summary):
    first, second, _ = network_lines(network_summary)
    assert first == "torch: 2 measured"
    assert second.startswith("torch:compiled: 2 measured; geometric mean over 2: FASTER: torch:compiled takes 0.7")


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("microbatch;memory=2147483648", "torch + microbatch(memory=2GiB)"),
        ("microbatch;memory=1000000", "torch + microbatch(memory=977KiB)"),
        ("precision:bfloat16", "torch + precision:bfloat16"),
    ],
)
def test_a_limit_of_memory_is_read_in_binary_units(word, label):
    assert arm_label(NetworkArm("torch", transforms=(word,))) == label


def test_a_transform_tells_its_proof_the_memory_it_saved_and_the_time_it_cost(summary_of):
    more = {"memory": 30 * 2**20, "base_s": 0.022, "errors": {"output": 1e-6}}
    (line,) = transform_lines(summary_of({TORCH: {}, HALVED: more}, (1,)))
    assert line.startswith(
        "torch + microbatch(memory=64MiB), batch 1: compared with the reference of the original network"
    )
    assert "output off by 1.0e-06" in line
    assert "peak memory 64.6 MiB → 30.3 MiB (-53%)" in line
    assert "inside its limit of 64 MiB" in line
    assert "time × 1.1" in line


def test_a_peak_beyond_the_limit_is_not_passed_over(summary_of):
    (line,) = transform_lines(summary_of({TORCH: {}, HALVED: {"memory": 90 * 2**20}}, (1,)))
    assert "BEYOND its limit of 64 MiB (92 MiB is the smallest that is known to hold)" in line


def test_a_transform_that_was_not_compared_says_so(summary_of):
    (line,) = transform_lines(summary_of({TORCH: {}, HALVED: {"errors": {"output": None}}}, (1,)))
    assert "not compared with the original network" in line


def test_without_a_transform_there_is_no_line_about_one(network_summary):
    assert transform_lines(network_summary) == []
