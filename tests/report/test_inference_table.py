"""Inference as a table and lines: what stands with each figure, and what is printed where a rule was broken."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as other
from tests.records.inference_records import DATA, OFFLINE, SERVER, SINGLE, specification, write

from levelbench.records.inference import Audit, Generation, InferenceOutcome
from levelbench.records.inference_summary import Price, summarise_inference
from levelbench.report import inference as inference_figure
from levelbench.report.inference import inference_lines, inference_table, write_inference
from levelbench.report.tables import to_text


@pytest.fixture
def arms(tmp_path):
    def make(scenario=SINGLE, n=5, **parts):
        names = (("numpy", 1.0), ("torch", 1.5))
        return [
            [write(tmp_path, specification(name, scenario), seed, slow=slow, **parts) for seed in range(n)]
            for name, slow in names
        ]

    return make


def said(arms, **given):
    summary = summarise_inference(arms, **given)
    return to_text(inference_table(summary), 200) + "\n".join(inference_lines(summary)) + "\n"


def test_the_table_is_what_it_was(arms, golden):
    audits = [Audit("the same sample again", True, "1.00 times as long"), Audit("the same result", None, "too few")]
    price = Price(3.06, "https://example.org/prices")
    golden("inference", said(arms(audits=audits), price=price))


def test_a_server_tells_its_bound_its_rate_its_lateness_and_what_was_broken(arms, golden):
    reasons = ["early stopping: 10 of 662 late, 1348 more on time are needed"]
    golden("inference_server", said(arms(SERVER, 2, valid=False, reasons=reasons, target_per_s=200.0)))


def test_offline_has_a_throughput_and_no_latency_of_a_query(arms):
    table = inference_table(summarise_inference(arms(OFFLINE)))
    keys = [column.key for column in table.columns]
    assert "samples_per_s" in keys
    assert not {"p50_s", "mean_s", "estimate_s"} & set(keys)
    assert "256 per batch" in to_text(table, 200)


def test_a_generation_shows_its_first_token_the_others_and_tokens_a_second_and_says_how_it_is_made(tmp_path):
    found = {}
    for scenario in (SINGLE, OFFLINE):
        spec = specification("numpy", scenario, generation=Generation(6, 10))
        found[scenario.name] = inference_table(summarise_inference([[write(tmp_path, spec, throughput_per_s=3.0)]]))
    keys = {name: {column.key for column in table.columns} for name, table in found.items()}
    first = {"first_token_p50_s", "first_token_p90_s"}
    assert first | {"per_token_p50_s", "per_token_p90_s", "tokens_per_s"} <= keys["single-stream"]
    assert keys["offline"] & (first | {"per_token_p50_s"}) == {"per_token_p50_s"}
    text = to_text(found["single-stream"], 200)
    assert "10 tokens, each the likeliest after a prompt of 6, without a cache: each token costs a pass over 16" in text


def test_one_arm_alone_has_no_verdict_and_one_process_says_so(arms):
    text = said([arms(n=1)[0]])
    assert "verdict" not in text
    assert "one process: its interval says nothing about other processes; use -n 5" in text


def test_answers_that_got_worse_are_marked_in_the_table_and_told(arms):
    text = said(arms(quality=0.9))
    assert "0.9000 TOO LOW" in text
    assert "NOT KEPT (at least 0.9405 is required)" in text


def test_samples_that_are_fewer_than_were_asked_for_are_told(arms):
    assert "359 examples (queries draw from all of them: 500 were requested)" in said(arms(other(SINGLE, samples=500)))
    assert "were requested" not in said(arms(other(SINGLE, samples=300)))


def test_a_single_server_process_says_that_its_intervals_are_too_narrow(arms):
    assert "queries wait for each other" in said(arms(SERVER, 1))


def test_made_up_inputs_are_called_so(tmp_path):
    spec = specification()
    spec = other(spec, data=other(DATA, kind="synthetic", name="made-up inputs"))
    record = write(tmp_path, spec)
    record = replace(record, facts=other(record.facts, synthetic=True))
    assert "Data: MADE-UP INPUTS" in said([[record]])


def test_what_was_not_measured_says_why(tmp_path):
    failed = write(tmp_path, specification("torch"), events=[InferenceOutcome("unsupported", "it has no LRN")])
    text = said([[write(tmp_path, specification())], [failed]])
    assert "unsupported: it has no LRN" in text
    assert "torch: not valid: it has no LRN" in text


def test_a_price_without_a_source_is_told(arms):
    assert "(no source given)" in said(arms(), price=Price(3.06))


def test_the_figure_shows_every_process_and_is_the_same_each_time(arms, tmp_path):
    pytest.importorskip("matplotlib")
    records = arms()
    summary = summarise_inference(records)
    first = write_inference(summary, records, tmp_path / "a.svg").read_text()
    assert write_inference(summary, records, tmp_path / "b.svg").read_text() == first
    assert "0.999" in first
    assert "torch" in first


def test_intervals_of_several_frameworks_lie_apart_in_the_figure(arms, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure()
    monkeypatch.setattr(inference_figure, "draw", lambda path, title, size, fill: fill(figure))
    records = arms()
    write_inference(summarise_inference(records), records, tmp_path / "a.svg")
    lines = [line.get_ydata() for line in figure.axes[0].get_lines()]
    heights = [float(y[0]) for y in lines if len(y) == 2 and y[0] == y[1]]
    assert len(heights) == 2 * 4
    assert len(set(heights)) == len(heights)
