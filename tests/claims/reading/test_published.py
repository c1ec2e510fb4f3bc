"""Tables that people publish: what stands in them is read with its place, and nothing is guessed."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levelbench.claims.reading import NothingStatedError, read
from levelbench.claims.reading.claim_file import read_claim
from levelbench.claims.reading.published import propose, read_published
from levelbench.claims.view import HardwareView, QualityView, Side
from levelbench.errors import UsageError

PAGE = """\
# Results

Time to 94 % on CIFAR-10.

| System | GPU | Time to 94 % (s) | Top-1 | Speed-up | n |
|:--|:-:|--:|--:|--:|--:|
| **ours** | V100 | 10.2 [9.8, 10.6] | 94.1 % | 1.5x | 5 |
| [baseline](http://example.com) | V100 | 15.3 ± 0.4 | 94.2 % | 1x | 5 |
| other | A100 | 1,204.5 | – | | |
"""


@pytest.fixture
def page(tmp_path):
    def write(text, name="benchmark.md"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def only(path):
    (claim,) = read_published(path)
    return claim


def test_a_table_becomes_sides_and_comparisons(page):
    claim = only(page(PAGE))
    ours, base, other = claim.sides
    assert claim.title == "Time to 94 % on CIFAR-10."
    assert (ours.name, ours.time_s, ours.interval, ours.time_of, ours.runs_made) == (
        "ours",
        10.2,
        (9.8, 10.6),
        "target",
        5,
    )
    assert (ours.hardware.description, ours.quality.metric, ours.quality.value) == ("V100", "Top-1", 0.941)
    assert (base.name, base.time_s) == ("baseline", 15.3)
    assert (other.time_s, other.quality.value, other.runs_made) == (1204.5, None, None)
    assert [(each.new, each.base, each.ratio) for each in claim.comparisons] == [("ours", "baseline", 1.5)]


def test_a_spread_that_is_not_called_an_interval_is_none(page):
    assert only(page(PAGE)).sides[1].interval is None


def test_each_side_and_comparison_has_its_line(page):
    path = page(PAGE)
    claim = only(path)
    assert [each.where for each in claim.sides] == [f"{path}:{line}" for line in (7, 8, 9)]
    assert claim.comparisons[0].where == f"{path}:7"


def test_the_proposal_is_a_claim_file_with_quotations(page, tmp_path):
    (proposal,) = propose(page(PAGE))
    text = proposal.toml()
    (tmp_path / "claim.toml").write_text(text)
    assert 'time_s = 15.3  # line 8: "15.3 ± 0.4"' in text
    assert 'time_of = "target"  # line 5: "Time to 94 % (s)"' in text
    assert 'metric = "Top-1"  # line 5: "Top-1"' in text
    assert replace(read_claim(tmp_path / "claim.toml").sides[2], where="") == Side(
        "other",
        time_s=1204.5,
        time_of="target",
        hardware=HardwareView(description="A100"),
        quality=QualityView(target=0.94),
    )


@pytest.mark.parametrize(
    ("head", "cell", "time_s"),
    [
        ("time (ms)", "3.5", 0.0035),
        ("time", "3.5 ms", 0.0035),
        ("latency [µs]", "120", 0.00012),
        ("Training time, hours", "1.5", 5400.0),
        ("s/epoch time (s)", "12", 12.0),
        ("time", "3.5", None),
        ("throughput (images/s)", "350", None),
        ("model", "3.5", None),
        ("time", "about three", None),
        ("time", "2:31", None),
        ("samples per second", "12 s", None),
        ("time (s)", "3.5 ± 0.1 ms", 0.0035),
        ("time (s)", "3.5 [3.4, 3.6] ms", 0.0035),
        ("time", "8m30s (32.74x)", 510.0),
        ("time", "9" * 400 + ":00:00", None),
        ("time", "9" * 400 + " h 3 min", None),
        ("time (s)", "3.5 (-30 %)", 3.5),
        ("time (s)", "3.5 (3 runs)", None),
        ("time (s)", "< 5", None),
        ("time (s)", "0,125", None),
        ("time (s)", "1e999", None),
        ("time (s)", "-3", None),
        ("time (s)", "3.1<sup>2</sup>", None),
        ("time (s)", "3<br>5", None),
        ("time (s)", "<b>3.5</b>", 3.5),
        ("time saved (s)", "3.5", None),
        ("GPU time", "5 h", None),
        ("training time", "0:10:28", 628.0),
        ("training time", "1 h 23 min", 4980.0),
        ("training time", "3m 20.5s", 200.5),
        ("training time", "2 days", 172800.0),
        ("training time", "10:28", None),
        ("training time", "20 s 3 min", None),
        ("training time", "1 m", None),
        ("release time", "12:30:99", None),
        ("time saved", "0:10:28", None),
        ("shortest interval", "10 ms", None),
        ("delay", "10 ms", None),
        ("timeout", "60 s", None),
        ("wall time budget (h)", "3", None),
        ("s/epoch", "12", 12.0),
        ("ms/iter", "3.5", 0.0035),
        ("runtime in seconds", "12", 12.0),
        ("time (sec.)", "12", 12.0),
        ("Zeit (s)", "12", 12.0),
        ("time", "🥇 **12 s**", 12.0),
    ],
)
def test_a_time_needs_its_unit(page, head, cell, time_s):
    text = f"| system | {head} | accuracy |\n|---|---|---|\n| a | {cell} | 0.9 |\n| b | – | 0.8 |\n"
    assert only(page(text)).sides[0].time_s == time_s


def test_of_several_columns_of_times_none_is_taken_and_said_so(page):
    text = "| system | compile (s) time | total time (s) | accuracy |\n|---|---|---|---|\n| a | 5 s | 50 | 0.9 |\n"
    (proposal,) = propose(page(text))
    assert "time_s" not in proposal.data["sides"][0]
    assert '# Left out: "compile (s) time", "total time (s)", as several columns have times.' in proposal.toml()
    assert only(page(text)).caveats == [f"left out: {proposal.left_out[0]}"]


def test_of_several_columns_of_times_the_one_to_a_target_is_taken(page):
    text = "| system | time per epoch (s) | time to 94 % (s) |\n|---|---|---|\n| a | 5 | 50 |\n"
    assert only(page(text)).sides[0].time_s == 50.0


def test_a_target_in_a_heading_is_read_unless_the_quality_may_be_on_another_scale(page):
    text = "| system | time to 93.5 % accuracy (s) | top-1 |\n|---|---|---|\n| a | 5 | 94 % |\n| b | 6 | 94.1 |\n"
    assert [each.quality.target for each in only(page(text)).sides] == [0.935, None]
    assert only(page("| a | time to 93% Accuracy |\n|---|---|\n| x | 0:02:38 |\n")).sides[0].quality.target == 0.93


@pytest.mark.parametrize(
    ("head", "time_of"),
    [
        ("time per epoch (s)", "epoch"),
        ("epoch time (s)", "epoch"),
        ("time / epoch, s", "epoch"),
        ("time for 90 epochs (s)", None),
        ("training time, 10 epochs (s)", None),
        ("time per step (s)", "step"),
        ("step latency (s)", "step"),
        ("time of 100 steps (s)", None),
    ],
)
def test_the_time_of_many_epochs_is_not_that_of_one(page, head, time_of):
    side = only(page(f"| a | {head} |\n|---|---|\n| x | 3 |\n")).sides[0]
    assert (side.time_s, side.time_of) == (3.0, time_of)


@pytest.mark.parametrize("head", ["time × 1000 (s)", "log time (s)", "time (10^3 s)", "normalised time (s)"])
def test_a_figure_in_another_scale_is_not_read(page, head):
    assert only(page(f"| a | {head} | top-1 |\n|---|---|---|\n| x | 3 | 0.9 |\n")).sides[0].time_s is None


def test_of_a_mean_beside_its_extremes_the_mean_is_taken(page):
    text = "| Command | Mean [s] | Min [s] | Max [s] | Relative |\n|:---|---:|---:|---:|---:|\n"
    claim = only(page(f"{text}| `a` | 5.4 ± 0.1 | 5.2 | 5.8 | 1.00 |\n"))
    assert (claim.sides[0].time_s, claim.sides[0].reported, claim.sides[0].interval) == (5.4, "mean", None)
    assert claim.caveats == ['left out: "Min [s]", "Max [s]", as several columns have times']


@pytest.mark.parametrize(
    "head",
    [
        "Δ accuracy (%)",
        "accuracy drop (%)",
        "accuracy loss",
        "accuracy improvement (%)",
        "relative accuracy",
        "accuracy vs. baseline",
        "accuracy_std",
        "# of accuracy evaluations",
        "epochs to 90 % accuracy",
    ],
)
def test_a_difference_of_qualities_is_no_quality(page, head):
    side = only(page(f"| model | {head} | time (s) |\n|---|---|---|\n| a | 0.4 | 3 |\n")).sides[0]
    assert side.quality.value is None


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("accuracy (%)", 0.763),
        ("test accuracy (%) after 90 epochs", 0.763),
        ("% accuracy", 0.763),
        ("accuracy (95 % CI)", 76.3),
        ("accuracy after 10 % of the epochs", 76.3),
    ],
)
def test_a_percent_sign_of_a_heading_is_the_unit_unless_a_number_has_it(page, head, value):
    claim = only(page(f"| model | {head} |\n|---|---|\n| a | 76.3 |\n"))
    assert claim.sides[0].quality.value == value


def test_names_of_columns_with_their_unit_are_read_as_headings(page):
    text = "name,wall_time_s,val_acc,n_runs,images_s\na,3.5,0.94,5,900\n"
    side = only(page(text, "results.csv")).sides[0]
    assert (side.time_s, side.quality.metric, side.quality.value, side.runs_made) == (3.5, "val_acc", 0.94, 5)


@pytest.mark.parametrize(
    "head",
    [
        "Deadline (ms)",
        "SLO (ms)",
        "Latency SLA (ms)",
        "Max allowed latency (ms)",
        "Latency constraint (ms)",
        "Target time (s)",
        "Required time (s)",
        "Time threshold (s)",
        "Simulated time (s)",
        "Projected time (h)",
        "Time step (s)",
        "Time constant (s)",
        "Think time (s)",
        "Audio duration (s)",
        "Time since release (days)",
        "Time to failure (h)",
        "Jitter (ms)",
        "Time SE (s)",
        "Planned time (s)",
        "Time requested (h)",
        "Time cap (s)",
        "Roofline (ms)",
        "Time out (s)",
        "Time remaining (s)",
        "Lead time (h)",
        "Hours of speech (h)",
        "Dataset duration (h)",
        "Frame length (ms)",
        "Look-ahead (ms)",
        "Time reduction (s)",
        "Estimated time (s)",
        "Default time (s)",
        "Time standard deviation (s)",
        "Hours of audio (h)",
        "Latency (min, max)",
        "Latency (s, ms)",
    ],
)
def test_a_limit_a_goal_or_an_input_is_no_time(page, head):
    assert only(page(f"| a | {head} | accuracy |\n|---|---|---|\n| x | 3 | 0.9 |\n")).sides[0].time_s is None


@pytest.mark.parametrize(
    "head",
    [
        "Time to target (s)",
        "Time required (s)",
        "Time per time step (s)",
        "Simulated annealing time (s)",
        "Time (s), mean ± SD",
        "Time to the threshold (s)",
        "Time after warm-up (s)",
        "Prediction time (s)",
        "Estimator time (s)",
        "CPU-bound time (s)",
        "Latency of video decoding (s)",
        "Reduce time (s)",
        "Depth estimation latency (s)",
        "CI time (s)",
        "Time to transcribe 1 min of audio (s)",
        "Time for 2 hours of audio (s)",
        "elapsed (s)",
        "Latency (s, A100)",
        "Time (mean ± std) [s]",
        "Time (s, mean ± std)",
    ],
)
def test_a_time_that_is_said_in_such_words_is_one(page, head):
    assert only(page(f"| a | {head} | accuracy |\n|---|---|---|\n| x | 3 | 0.9 |\n")).sides[0].time_s == 3.0


@pytest.mark.parametrize(
    "head",
    [
        "F1 at threshold 0.5",
        "Max-pool accuracy",
        "Nominal accuracy",
        "Claim accuracy",
        "Accuracy ± SE",
        "Accuracy ± std",
        "Accuracy (mean ± std. deviation)",
        "Accuracy after 5 min",
    ],
)
def test_a_quality_that_is_said_in_words_of_limits_is_one(page, head):
    assert only(page(f"| a | {head} |\n|---|---|\n| x | 0.9 |\n")).sides[0].quality.value == 0.9


@pytest.mark.parametrize(
    "table",
    [
        "| Task | V100 | A100 |\n|---|---|---|\n| A per GPU | 9 img/s | 8 img/s |\n| B per GPU | 9 img/s | 2 img/s |\n",
        "| Task | V100 (img/s, k) | A100 (img/s, k) |\n|---|---|---|\n| r50 | 390 | 800 |\n| vit | 9 | 20 |\n",
    ],
)
def test_rates_of_a_part_or_with_a_factor_are_of_no_system_beside_another(page, table):
    with pytest.raises(NothingStatedError):
        read_published(page(f"# Benchmarks\n\n{table}"))


def test_a_row_of_limits_beside_several_systems_is_left_out(page):
    rows = "| sort | 3 ms | 4 ms |\n| scan | 5 ms | 6 ms |\n| Deadline | 10 ms | 10 ms |\n"
    claim = only(page(f"# Benchmarks\n\n| Task | ours | theirs |\n|---|---|---|\n{rows}"))
    assert [each.name for each in claim.sides] == ["ours, sort", "theirs, sort", "ours, scan", "theirs, scan"]


def test_inputs_beside_several_systems_are_left_out(page):
    rows = "| Test length | 10 min | 10 min |\n| Ramp-up | 30 s | 30 s |\n| Mean latency | 41 ms | 29 ms |\n"
    claim = only(page(f"# Load test\n\n| | v1 | v2 |\n|---|---|---|\n{rows}| p99 latency | 180 ms | 95 ms |\n"))
    assert {each.name.split(", ")[1] for each in claim.sides} == {"Mean latency", "p99 latency"}


@pytest.mark.parametrize(
    ("head", "cell"),
    [
        ("Warmup", "2 h"),
        ("Audio", "10 s"),
        ("Segment", "30 s"),
        ("Training data", "960 h"),
        ("Retention", "5 days"),
        ("Age", "3 days"),
        ("Last", "3 h"),
        ("ETA", "2 h"),
        ("Builds", "300 min"),
        ("Start time", "12:30:00"),
        ("Finished at", "12:30:00"),
    ],
)
def test_a_length_an_age_or_a_time_of_day_is_no_time(page, head, cell):
    assert only(page(f"| a | {head} | accuracy |\n|---|---|---|\n| x | {cell} | 0.9 |\n")).sides[0].time_s is None


@pytest.mark.parametrize("head", ["Train", "Total", "Elapsed", "Cold start", "Build", "Process", "Before"])
def test_a_heading_that_says_what_took_long_is_of_a_time(page, head):
    assert only(page(f"| a | {head} |\n|---|---|\n| x | 3 min |\n")).sides[0].time_s == 180.0


@pytest.mark.parametrize(("head", "cell"), [("Startup time", "0:00:12"), ("End-to-end time", "0:00:12")])
def test_a_time_from_start_to_end_is_no_time_of_day(page, head, cell):
    assert only(page(f"| a | {head} |\n|---|---|\n| x | {cell} |\n")).sides[0].time_s == 12.0


def test_a_heading_of_training_hours_has_its_unit(page):
    assert only(page("| a | Training hours |\n|---|---|\n| x | 3 |\n")).sides[0].time_s == 10800.0


@pytest.mark.parametrize(
    ("heads", "cells", "time_s"),
    [
        ("Method | Duration (s) | Accuracy", "MLP | 12 | 98", 12.0),
        ("Duration | Accuracy", "12 s | 98", 12.0),
        ("Model | Hours", "MLP | 12 h", 43200.0),
        ("Hours | Accuracy", "960 h | 98", None),
        ("Model | Hours | WER", "CTC | 960 h | 4", None),
    ],
)
def test_the_length_of_a_data_set_is_a_time_only_beside_a_system(page, heads, cells, time_s):
    rules = "|---" * (heads.count("|") + 2)
    claim = only(page(f"| Dataset | {heads} | images/s |\n{rules}|---|\n| MNIST | {cells} | 300 |\n"))
    assert claim.sides[0].time_s == time_s


def test_the_length_of_a_video_is_no_time_beside_a_system(page):
    claim = only(page("| Video | Model | Length (s) | mAP |\n|---|---|---|---|\n| a | YOLO | 30 | 0.4 |\n"))
    assert claim.sides[0].time_s is None


def test_the_hours_of_data_sets_are_no_times(page):
    with pytest.raises(NothingStatedError):
        read_published(page("| Dataset | Hours |\n|---|---|\n| LibriSpeech | 960 h |\n| TED-LIUM | 452 h |\n"))
    assert only(page("| Dataset | Training time |\n|---|---|\n| LibriSpeech | 96 h |\n")).sides[0].time_s == 345600.0


@pytest.mark.parametrize(
    "head",
    [
        "Input FPS",
        "Camera fps",
        "FPS cap",
        "QPS sent",
        "Rated throughput (img/s)",
        "Advertised throughput (img/s)",
        "Data sheet (img/s)",
    ],
)
def test_the_rate_of_an_input_or_a_promise_is_no_throughput(page, head):
    text = f"| a | {head} | accuracy |\n|---|---|---|\n| x | 30 | 0.9 |\n"
    assert only(page(text)).sides[0].throughput is None


@pytest.mark.parametrize("head", ["Cost limit", "Max cost (USD)", "Cost reduction ($)", "Estimated cost", "Prize"])
def test_a_limit_or_a_saving_is_no_cost(page, head):
    assert only(page(f"| a | {head} | accuracy |\n|---|---|---|\n| x | $30 | 0.9 |\n")).sides[0].cost_usd is None


@pytest.mark.parametrize("head", ["Ideal speedup", "Expected speedup", "Linear speed-up", "Claimed speedup"])
def test_a_speed_up_that_nobody_measured_is_no_ratio(page, head):
    rows = "| x | 1x | 0.9 |\n| y | 4x | 0.9 |\n"
    assert not only(page(f"| a | {head} | accuracy |\n|---|---|---|\n{rows}")).comparisons


def test_the_measured_speed_up_beside_the_ideal_one_is_read(page):
    rows = "| 1 GPU | 1.0x | 1x |\n| 4 GPUs | 3.6x | 4x |\n"
    (comparison,) = only(page(f"| a | Speedup | Ideal speedup |\n|---|---|---|\n{rows}")).comparisons
    assert comparison.ratio == 3.6


@pytest.mark.parametrize(("head", "cell"), [("Accuracy", "+0.3"), ("Accuracy", "-0.3"), ("Latency", "+4 ms")])
def test_a_figure_with_a_sign_is_a_change(page, head, cell):
    with pytest.raises(NothingStatedError):
        read_published(page(f"| a | {head} |\n|---|---|\n| x | {cell} |\n"))


def test_a_loss_may_be_below_zero(page):
    assert only(page("| a | Loss |\n|---|---|\n| x | -1.2 |\n")).sides[0].quality.value == -1.2


@pytest.mark.parametrize("head", ["Loss scale", "Accuracy rank", "Accuracy margin"])
def test_a_setting_or_a_rank_is_no_quality(page, head):
    (side,) = only(page(f"| a | {head} | Top-1 |\n|---|---|---|\n| x | 128 | 76.0 |\n")).sides
    assert (side.quality.metric, side.quality.value) == ("Top-1", 76.0)


@pytest.mark.parametrize("head", ["Baseline accuracy", "Teacher top-1", "Accuracy (paper)", "Accuracy before"])
def test_the_quality_of_another_is_left_out_beside_the_rows_own(page, head):
    claim = only(page(f"| a | {head} | Accuracy after |\n|---|---|---|\n| x | 76.13 | 75.98 |\n"))
    assert claim.sides[0].quality.value == 75.98
    assert claim.caveats == [f'left out: "{head}", as others are of the row itself']


def test_a_rate_is_no_name(page):
    rows = "| 1 | 96 img/s | 10.4 ms |\n| 2 | 196 img/s | 10.2 ms |\n"
    sides = only(page(f"| Batch size | Throughput | Latency |\n|---|---|---|\n{rows}")).sides
    assert [(each.name, each.throughput) for each in sides] == [("Batch size 1", 96.0), ("Batch size 2", 196.0)]


def test_an_amount_is_no_name_unless_it_is_of_a_model(page):
    text = "| Version | Size | Compile time |\n|---|---|---|\n| 1.0 | 8.1 MB | 41 s |\n| 2.0 | 7.2 MB | 30 s |\n"
    assert [each.name for each in only(page(text)).sides] == ["Version 1.0", "Version 2.0"]
    text = "| Model | Quality | t/s |\n|---|---|---|\n| 125M | good | 42 |\n| 350M | good | 31 |\n"
    assert [each.name for each in only(page(text)).sides] == ["125M", "350M"]


def test_a_name_that_is_a_number_says_of_what(page):
    sides = only(page("| lr | Val acc |\n|---|---|\n| 0.1 | 0.93 |\n| 0.01 | 0.91 |\n")).sides
    assert [each.name for each in sides] == ["lr 0.1", "lr 0.01"]


def test_the_name_of_a_run_is_read_instead_of_its_id(page):
    text = "run_id,name,metrics.val_accuracy\nabc123,base,0.91\ndef456,new,0.92\n"
    assert [each.name for each in only(page(text, "runs.csv")).sides] == ["base", "new"]


@pytest.mark.parametrize(
    ("text", "figure", "value"),
    [
        ("| Lib | Ops/sec |\n|---|---|\n| a | 1,250,331 ±0.32% |\n", "throughput", 1250331),
        ("| Model | Time |\n|---|---|\n| a | 2.0 s (1.55x faster) |\n", "time_s", 2.0),
    ],
)
def test_a_spread_or_ratio_in_words_beside_a_figure_is_passed_over(page, text, figure, value):
    assert getattr(only(page(text)).sides[0], figure) == value


def test_a_mean_of_tasks_is_no_task_where_systems_stand_side_by_side(page):
    claim = only(page("| | A (ms) | B (ms) |\n|---|---|---|\n| x | 1.0 | 2.0 |\n| geomean | 1.7 | 2.8 |\n"))
    assert [each.name for each in claim.sides] == ["A, x", "B, x"]
    assert claim.caveats == ["left out: line 4 sums up other rows"]


@pytest.mark.parametrize(
    "table",
    [
        "| Plan | Requests/s | Price |\n|---|---|---|\n| Free | 10 | $0 |\n",
        "| Tier | Response time | Uptime |\n|---|---|---|\n| Gold | 15 min | 99.9% |\n",
        "| Option | Type | Time (s) |\n|---|---|---|\n| timeout | float | 30 |\n",
        "| Column | Type | Example |\n|---|---|---|\n| latency_ms | float | 12.5 ms |\n",
        "| Stage | Time (h) | Loss |\n|---|---|---|\n| pretrain | 20 | 2.1 |\n",
        "| Interval | Seconds |\n|---|---|\n| Minute | 60 |\n| Hour | 3600 |\n",
    ],
)
def test_offers_types_and_phases_are_no_sides(page, table):
    with pytest.raises(NothingStatedError):
        read_published(page(table))


def test_a_spread_below_a_figure_is_no_side(page):
    table = "| Model | Accuracy |\n|---|---|\n| A | 94.1 |\n| std | 0.2 |\n| n | 10 |\n"
    assert [each.name for each in only(page(table)).sides] == ["A"]


@pytest.mark.parametrize(
    "table",
    [
        "| | p50 | p95 |\n|---|---|---|\n| REST | 12 ms | 31 ms |\n| gRPC | 7 ms | 15 ms |\n",
        "| Log | Retention | Flush |\n|---|---|---|\n| access | 30 days | 5 s |\n| error | 90 days | 1 s |\n",
    ],
)
def test_quantiles_and_how_long_something_is_kept_are_no_systems(page, table):
    try:
        claims = read_published(page(table))
    except NothingStatedError:
        claims = []
    assert [side.time_s for claim in claims for side in claim.sides if side.time_s] == []


@pytest.mark.parametrize(
    "table",
    [
        "| Engine | TTFT (ms) | TPOT (ms) |\n|---|---|---|\n| vLLM | 120 | 11 |\n",
        "| Metric | vLLM | TGI |\n|---|---|---|\n| Mean TTFT (ms) | 120 | 210 |\n",
    ],
)
def test_times_of_tokens_are_none_of_systems(page, table):
    with pytest.raises(NothingStatedError):
        read_published(page(table))


def test_operations_of_several_types_are_sides(page):
    table = "| Operation | Type | Time (ns) |\n|---|---|---|\n| add | int | 30 |\n| add | float | 31 |\n"
    assert [each.name for each in only(page(table)).sides] == ["add, int", "add, float"]


def test_a_system_keeps_the_brackets_of_its_name(page):
    text = "| Task | fp32 (CPU) | int8 (CPU) |\n|---|---|---|\n| sort | 41 ms | 17 ms |\n"
    assert [each.name for each in only(page(text)).sides] == ["fp32 (CPU), sort", "int8 (CPU), sort"]


def test_the_burden_of_hardware_is_no_hardware(page):
    text = "| a | Hardware Burden | BLEU |\n|---|---|---|\n| x | 146G | 35.0 |\n"
    assert only(page(text)).sides[0].hardware == HardwareView()


@pytest.mark.parametrize("head", ["time_std_s", "latency (min)", "time (min/max)", "σ of the time (s)"])
def test_a_spread_or_an_extreme_is_no_time(page, head):
    assert only(page(f"| a | {head} | accuracy |\n|---|---|---|\n| x | 3 | 0.9 |\n")).sides[0].time_s is None


@pytest.mark.parametrize("cell", ["–", "n/a", "same", "?"])
def test_a_cell_that_names_nothing_is_no_hardware(page, cell):
    text = f"| model | GPU | time (s) |\n|---|---|---|\n| a | {cell} | 3 |\n"
    assert only(page(text)).sides[0].hardware == HardwareView()


def test_a_row_that_sums_up_others_is_no_side(page):
    claim = only(page("| model | time (s) |\n|---|---|\n| a | 1 |\n| **Total** | 1 |\n| Geomean | 1 |\n"))
    assert [each.name for each in claim.sides] == ["a"]
    assert claim.caveats == ["left out: line 4 sums up other rows", "left out: line 5 sums up other rows"]


def test_a_table_in_a_comment_is_no_claim_and_moves_no_line(page):
    table = "| a | time (s) |\n|---|---|\n| x | 1 |\n"
    claim = only(page(f"<!--\n{table}-->\n\n{table}"))
    assert claim.sides[0].where.endswith(":9")


def test_a_metric_and_its_value_in_each_row_are_read_for_each_dataset(page):
    text = (
        "method,dataset,task,metric_name,metric_value\nFoo,CIFAR-10,Classification,Percentage correct,99.1\n"
        "Foo,CIFAR-10,Classification,Time (s),30\nBar,CIFAR-10,Classification,Percentage correct,98.1\n"
        "Foo,COCO,Detection,mAP,0.41\n"
    )
    path = page(text, "export.csv")
    first, second = read_published(path)
    assert [(each.name, each.quality.value, each.time_s) for each in first.sides] == [
        ("Foo", 0.991, 30.0),
        ("Bar", 0.981, None),
    ]
    assert (first.title, second.title, second.sides[0].quality.value) == (
        "Classification, CIFAR-10",
        "Detection, COCO",
        0.41,
    )
    assert 'time_s = 30.0  # line 3: "30"' in propose(path)[0].toml()


def test_a_sentence_that_mentions_a_quality_is_none(page):
    text = "| trick | epochs |\n|---|---|\n| examples below the mean loss are left out from the second epoch on | 3 |\n"
    with pytest.raises(UsageError, match="no table of it states a time"):
        read_published(page(text))


def test_a_column_of_ratios_and_intervals_has_no_names(page):
    claim = only(
        page("| batch | reached | time (s) |\n|---|---|---|\n| 16 | 5/5 [0.5, 1] | 3 |\n| 32 | 5/5 [0.5, 1] | 2 |\n")
    )
    assert [(each.name, each.time_s) for each in claim.sides] == [("batch 16", 3.0), ("batch 32", 2.0)]


def test_a_heading_that_is_a_unit_is_one_of_several_times(page):
    claim = only(page("| a | by hand, ms | ms | top-1 |\n|---|---|---|---|\n| x | 3 | 4 | 0.9 |\n"))
    assert (claim.sides[0].time_s, only(page("| a | ms |\n|---|---|\n| x | 3 |\n")).sides[0].time_s) == (None, 0.003)


def test_a_year_is_when_a_side_was_published(page):
    claim = only(page("| model | accuracy | year |\n|---|---|---|\n| a | 91 % | 2022 |\n| b | 90 % | 22 |\n"))
    assert [each.year for each in claim.sides] == [2022, None]


def test_a_table_in_a_quotation_or_a_list_is_read(page):
    quoted = "> Quoted.\n>\n> | a | time (s) |\n> |---|---|\n> | x | 1 |\n"
    claims = read_published(page(f"{quoted}\n- Listed.\n\n  | a | time (s) |\n  |---|---|\n  | x | 2 |\n"))
    assert [(each.title, each.sides[0].time_s) for each in claims] == [("Quoted.", 1.0), ("Listed.", 2.0)]


def test_an_underscore_within_a_word_is_no_emphasis(page):
    claim = only(page("| _model_ | wall_time_s |\n|---|---|\n| __resnet_50__ | 5 |\n"))
    assert (claim.sides[0].name, claim.sides[0].time_s) == ("resnet_50", 5.0)


def test_a_mark_after_a_backslash_is_a_letter(page):
    claim = only(page("| model | GPU | time (s) |\n|---|---|---|\n| a\\_b \\| c | V100 \\* 4 | 5 |\n"))
    assert (claim.sides[0].name, claim.sides[0].hardware.description) == ("a_b | c", "V100 * 4")


def test_of_qualities_on_training_and_other_data_the_other_is_taken(page):
    claim = only(page("| a | train loss | val loss | train_acc |\n|---|---|---|---|\n| x | 0.1 | 0.5 | 1.0 |\n"))
    assert (claim.sides[0].quality.metric, claim.sides[0].quality.value) == ("val loss", 0.5)
    assert claim.caveats == ['left out: "train loss", "train_acc", as others are not of the training data']
    claim = only(page("| a | train loss |\n|---|---|\n| x | 0.1 |\n"))
    assert claim.sides[0].quality.value == 0.1


def test_a_figure_and_what_it_is_of_are_from_one_cell(page):
    text = "| system | top-1 | top-5 |\n|---|---|---|\n| a | 94.1 % | 99 % [98, 99.5] |\n"
    quality = only(page(text)).sides[0].quality
    assert (quality.metric, quality.value, quality.low) == ("top-1", 0.941, None)


def test_a_table_whose_rows_are_figures_is_read_by_columns(page):
    text = "| | PyTorch | JAX |\n|---|---|---|\n| training time | 3.2 s | 2.1 s |\n| accuracy (%) | 94 | 93.5 |\n"
    path = page(text)
    assert [(each.name, each.time_s, each.quality.value) for each in only(path).sides] == [
        ("PyTorch", 3.2, 0.94),
        ("JAX", 2.1, 0.935),
    ]
    assert 'time_s = 2.1  # line 3: "2.1 s"' in propose(path)[0].toml()


def test_the_smallest_and_largest_time_are_no_interval(page):
    assert only(page("| a | time [min, max] (s) |\n|---|---|\n| x | 3 [2, 4] |\n")).sides[0].interval is None


@pytest.mark.parametrize("head", ["price ($/h)", "cost ($ per hour)", "price per hour ($)", "price ($)"])
def test_a_price_is_no_cost(page, head):
    claim = only(page(f"| system | time (s) | {head} |\n|---|---|---|\n| a | 5 | 3.06 |\n"))
    assert claim.sides[0].cost_usd is None


@pytest.mark.parametrize(
    ("head", "reported"), [("mean time (s)", "mean"), ("time to best accuracy (s)", None), ("meantime (s) time", None)]
)
def test_what_is_reported_of_the_runs_is_a_word_of_the_heading(page, head, reported):
    assert only(page(f"| a | {head} | top-1 |\n|---|---|---|\n| x | 3 s | 0.9 |\n")).sides[0].reported == reported


@pytest.mark.parametrize("head", ["best time of 5 runs (s)", "best time (s), n = 5"])
def test_the_number_of_runs_is_read_from_the_heading_of_a_time(page, head):
    side = only(page(f"| a | {head} | top-1 |\n|---|---|---|\n| x | 3 s | 0.9 |\n")).sides[0]
    assert (side.reported, side.runs_made) == ("best", 5)


def test_a_row_with_more_cells_than_the_heading_is_left_out(page):
    claim = only(page("model,time (s),accuracy\na,1,234,0.94\nb,100,0.93\n", "results.csv"))
    assert [each.name for each in claim.sides] == ["b"]
    assert claim.caveats == ["left out: line 2 has more cells than the heading"]


def test_a_second_row_of_a_name_is_left_out_and_said_so(page):
    claim = only(page("| model | time (s) |\n|---|---|\n| a | 1 |\n| a | 2 |\n"))
    assert claim.caveats == ["left out: line 4 has the name of a row before it"]


@pytest.mark.parametrize("ratios", [("1.5x", "2x"), ("1x", "1x"), ("1.5x", "–")])
def test_a_ratio_without_the_one_row_it_is_relative_to_is_not_read(page, ratios):
    text = "| system | speed-up | time (s) |\n|---|---|---|\n" + "".join(
        f"| {name} | {ratio} | 1 |\n" for name, ratio in zip("ab", ratios, strict=True)
    )
    assert only(page(text)).comparisons == []


@pytest.mark.parametrize(("head", "unit"), [("ratio", ""), ("memory", "x"), ("relative time", "x")])
def test_a_ratio_of_something_else_is_no_comparison(page, head, unit):
    text = f"| part | {head} | time (ms) |\n|---|---|---|\n| forward | 0.5{unit} | 2 |\n| other | 1{unit} | 3 |\n"
    assert only(page(text)).comparisons == []


def test_ratios_of_several_columns_are_left_out(page):
    text = (
        "| a | speed-up on 1 | speed-up on 8 | time (s) |\n|---|---|---|---|\n| x | 1x | 2x | 1 |\n| y | | 1x | 2 |\n"
    )
    claim = only(page(text))
    assert claim.comparisons == []
    assert claim.caveats == ['left out: "speed-up on 1", "speed-up on 8", as several columns have ratios']


def test_the_title_is_what_was_said_right_above(page):
    assert only(page("## Times\n\n<!-- table -->\n\n| a | time (s) |\n|---|---|\n| x | 1 |\n")).title == "Times"


def test_html_is_read_as_markdown_is(page):
    text = """<h2>Time to accuracy</h2>
    <table><tr><th>System</th><th>Best time (min)</th><th>Cost</th></tr>
    <tr><td><b>ours</b></td><td>2</td><td>$1.50</td></tr>
    <tr><td>theirs</td><td>3</td><td>$2</td></tr></table>"""
    claim = only(page(text, "results.html"))
    assert claim.title == "Time to accuracy"
    assert [(each.name, each.time_s, each.cost_usd, each.reported) for each in claim.sides] == [
        ("ours", 120.0, 1.5, "best"),
        ("theirs", 180.0, 2.0, "best"),
    ]
    assert claim.sides[1].where.endswith("results.html:4")


def test_cells_of_html_over_several_rows_and_columns_keep_the_others_in_place(page):
    text = """<table><tr><th>Model<th>GPU<th colspan=2>Accuracy<th>Time (s)</tr>
    <tr><td>a<td rowspan=2>V100<td>0.9<td>0.8<td>100</tr>
    <tr><td>b<td>0.8<td>0.7<td>200</tr></table>"""
    assert [
        (each.name, each.hardware.description, each.quality.value, each.time_s)
        for each in only(page(text, "results.html")).sides
    ] == [("a", "V100", 0.9, 100.0), ("b", "V100", 0.8, 200.0)]


@pytest.mark.parametrize("span", ["0", "-1", "9" * 5000, "two"])
def test_a_span_that_is_none_is_one_column(page, span):
    text = f"<table><tr><th>Model<th>Time (s)<tr><td colspan='{span}'>a<td>3</table>"
    assert [each.time_s for each in only(page(text, "results.html")).sides] == [3.0]


def test_a_second_row_of_headings_of_html_is_no_side(page):
    text = """<table><tr><th rowspan=2>Model<th colspan=2>Time (s)</tr><tr><th>mean<th>max</tr>
    <tr><td>a<script>x</script><td>3<td>5</table>"""
    (proposal,) = propose(page(text, "results.html"))
    assert [each["name"] for each in proposal.data["sides"]] == ["a"]
    assert proposal.data["sides"][0]["time_s"] == 3.0
    assert proposal.left_out == ('"Time max (s)", as several columns have times',)


def test_a_comma_between_digits_is_not_read_where_semicolons_part_the_cells(page):
    claim = only(page("model;time (s);top-1\na;1,234;94 %\nb;5;93 %\n", "results.csv"))
    assert [each.time_s for each in claim.sides] == [None, 5.0]


def test_decimal_commas_are_read_where_semicolons_part_the_cells_and_every_number_allows_it(page):
    path = page(
        "Modell;Zeit (s);Top-1;Framework\na;1.234,5;94,1 %;JAX 0.4\nb;1,234;93 %;TensorFlow 1.14\n", "results.csv"
    )
    assert [(each.time_s, each.quality.value, each.framework) for each in only(path).sides] == [
        (1234.5, 0.941, "JAX 0.4"),
        (1.234, 0.93, "TensorFlow 1.14"),
    ]
    assert 'time_s = 1234.5  # line 2: "1.234,5"' in propose(path)[0].toml()


@pytest.mark.parametrize("other", ["12.5", "1.234"])
def test_commas_beside_points_are_not_read_where_semicolons_part_the_cells(page, other):
    claim = only(page(f"model;time (s);top-1\na;10,5;94 %\nb;{other};93 %\n", "results.csv"))
    assert claim.sides[0].time_s is None or claim.sides[1].time_s is None


def test_a_comma_between_digits_is_not_read_beside_a_comma_before_decimals(page):
    claim = only(page("| a | time (s) | top-1 |\n|---|---|---|\n| x | 1,234 | 0.9 |\n| y | 12,5 | 0.8 |\n"))
    assert [each.time_s for each in claim.sides] == [None, None]


def test_tab_separated_values_are_read_and_a_curve_of_dawnbench_is_not(page):
    assert [each.time_s for each in read(page("model\ttime (s)\na\t3.5\n", "results.tsv"))[0].sides] == [3.5]
    with pytest.raises(UsageError, match="the curve of a DAWNBench entry"):
        read(page("epoch\thours\ttop5Accuracy\n1\t0.1\t0.5\n", "entry.tsv"))


CROSSED = """\
| Benchmark | main | this PR | ratio |
|---|---|---|---|
| `import *` | 10.5 ms | 7.0 ms | 0.67 |
| startup time | 4.2±0.1ms | ✅ | |
| **Total** | 14.7 ms | 7.0 ms | |
"""


def test_each_time_is_a_side_where_systems_stand_beside_and_tasks_below_one_another(page):
    path = page(CROSSED)
    assert [(each.name, each.time_s) for each in only(path).sides] == [
        ("main, import *", 0.0105),
        ("this PR, import *", 0.007),
        ("main, startup time", 0.0042),
        ("main, Total", 0.0147),
        ("this PR, Total", 0.007),
    ]
    text = propose(path)[0].toml()
    assert 'name = "main, import *"\n' in text
    assert 'time_s = 0.007  # line 3: "7.0 ms"' in text


def test_minutes_side_by_side_that_nothing_calls_a_speed_are_left_out(page):
    (side,) = only(page("| Plan | Free | Pro |\n|---|---|---|\n| Builds | 300 min | 3000 min |\n")).sides
    assert (side.name, side.time_s) == ("Builds", None)
    faster = "Faster\n\n| Task | Old | New |\n|---|---|---|\n| build | 30 min | 20 min |\n"
    assert [each.time_s for each in only(page(faster)).sides] == [1800.0, 1200.0]


def test_rows_named_by_a_number_are_called_as_their_heading(page):
    claim = only(page("| Batch | PyTorch | JAX |\n|---|---|---|\n| 1 | 1.2 ms | 0.9 ms |\n"))
    assert [each.name for each in claim.sides] == ["PyTorch, Batch 1", "JAX, Batch 1"]


def test_a_time_beside_one_that_cannot_be_read_is_not_that_of_the_row(page):
    text = "| task | ours | theirs | top-1 |\n|---|---|---|---|\n| sort | 12 ms (warm) | 30 ms | 0.9 |\n"
    assert only(page(text)).sides[0].time_s is None


@pytest.mark.parametrize(
    "table",
    [
        "| Option | Default | Meaning |\n|---|---|---|\n| `timeout` | 30 s | how long to wait |\n",
        "| Name | Default | Largest |\n|---|---|---|\n| `timeout` | 30 s | 60 s |\n",
        "| Limits | Free | Pro |\n|---|---|---|\n| Timeout | 10 min | 60 min |\n",
        "| Dataset | Clips | FPS |\n|---|---|---|\n| a | 300 | 30 |\n",
        "| Epoch | time (s) | accuracy |\n|---|---|---|\n| 1 | 30 | 0.8 |\n",
        "| Step | Train loss | Validation loss |\n|---|---|---|\n| 100 | 3.1 | 3.2 |\n| 200 | 2.9 | 3.1 |\n",
        "| Name | Default | New |\n|---|---|---|\n| poll interval | 100 ms | 200 ms |\n",
        "| Step | Oven | Pan |\n|---|---|---|\n| Preheat | 10 min | 5 min |\n",
        "| Step | Duration |\n|---|---|\n| warm-up | 3 min |\n| hold | 5 min |\n",
        "| Setting | Time |\n|---|---|\n| sleep | 10 min |\n",
        "| Parameter | Duration (s) |\n|---|---|\n| warm-up | 60 |\n",
        "| Option | Target accuracy |\n|---|---|\n| quick | 0.9 |\n",
    ],
)
def test_settings_and_the_epochs_of_a_run_are_no_sides(page, table):
    with pytest.raises(UsageError, match="no table of it states"):
        read_published(page(table))


@pytest.mark.parametrize("head", ["Setting", "Params", "Option", "Parameters", "Hyperparameter"])
@pytest.mark.parametrize("measured", ["Training time", "Time (s)", "Latency (s)"])
def test_settings_beside_what_they_led_to_are_sides(page, head, measured):
    claim = only(page(f"| {head} | {measured} | Top-1 |\n|---|---|---|\n| 125M | 38 s | 76.1 % |\n"))
    assert (claim.sides[0].time_s, claim.sides[0].quality.value) == (38.0, 0.761)


def test_steps_of_a_program_before_and_after_are_sides(page):
    claim = only(page("| Step | Before | After |\n|---|---|---|\n| Loading | 12 s | 3 s |\n| Training | 9 s | 8 s |\n"))
    assert [each.name for each in claim.sides][:2] == ["Before, Loading", "After, Loading"]


def test_the_default_is_a_side_beside_others(page):
    rows = "| Default | 120 | 0.9 | 30 |\n| fast | 61 | 0.9 | 60 |\n"
    side = only(page(f"| Config | Time (s) | Top-1 | images/s |\n|---|---|---|---|\n{rows}")).sides[0]
    assert (side.time_s, side.quality.value, side.throughput) == (120.0, 0.9, 30.0)
    columns = "| Model | Default | Optimized |\n|---|---|---|\n| BERT | 8 ms | 3 ms |\n"
    assert [each.time_s for each in only(page(columns)).sides] == [0.008, 0.003]


@pytest.mark.parametrize(
    "head",
    [
        "Test error (%)",
        "Error (%)",
        "box AP",
        "AP50",
        "Dice",
        "AUROC",
        "FID",
        "PSNR",
        "SSIM",
        "R²",
        "R2",
        "MSE",
        "EM",
        "pass@1",
        "Recall@10",
        "MRR",
        "bpc",
        "bits per byte",
    ],
)
def test_a_quality_is_read_under_the_usual_name_of_its_metric(page, head):
    assert only(page(f"| a | {head} | Time (s) |\n|---|---|---|\n| x | 9.1 | 3 |\n")).sides[0].quality.metric == head


@pytest.mark.parametrize(
    ("head", "cell"), [("AP count", "3"), ("Error (s)", "0.1"), ("Relative error (%)", "3"), ("R2", "12 ms")]
)
def test_a_count_an_error_in_seconds_or_a_time_is_no_quality(page, head, cell):
    assert only(page(f"| a | {head} | images/s |\n|---|---|---|\n| x | {cell} | 3 |\n")).sides[0].quality.value is None


@pytest.mark.parametrize(
    ("heads", "cells"),
    [
        ("Library | Join (s) | Groupby (s)", "12 | 6"),
        ("Rows | pandas (s) | polars (s)", "12 | 6"),
        ("Framework | ResNet-50 (min) | BERT (min)", "0.2 | 0.1"),
        ("Model | PyTorch | ONNX Runtime", "12 s | 6 s"),
        ("Benchmark | ref | changed", "12 s | 6 s: 2.00x faster"),
        ("Task | Baseline time (s) | Ours time (s) | Speed-up", "12 | 6 | 2x"),
        ("Task | Baseline latency (s) | Ours latency (s)", "12 | 6"),
    ],
)
def test_times_of_systems_side_by_side_are_all_read(page, heads, cells):
    rules = "|---" * (heads.count("|") + 1)
    claim = only(page(f"| {heads} |\n{rules}|\n| A | {cells} |\n"))
    assert [each.time_s for each in claim.sides] == [12.0, 6.0]


def test_times_of_phases_are_of_no_systems(page):
    claim = only(page("| Task | Load time (s) | Query time (s) | Speed-up |\n|---|---|---|---|\n| A | 12 | 6 | 2x |\n"))
    assert [each.time_s for each in claim.sides] == [None]


def test_costs_of_systems_side_by_side_are_read_below_their_times(page):
    rows = "| Accuracy | 93 % | 92 % |\n| Training time | 35 min | 1h 20min |\n| Cost | $1.20 | $2.75 |\n"
    claim = only(page(f"| | ours | baseline |\n|---|---|---|\n{rows}"))
    assert [(each.name, each.time_s, each.cost_usd) for each in claim.sides] == [
        ("ours", 2100.0, 1.2),
        ("baseline", 4800.0, 2.75),
    ]


@pytest.mark.parametrize(
    ("head", "cell", "rate"),
    [
        ("sentences/s", "204", 204.0),
        ("Throughput (im/s)", "204", 204.0),
        ("images/s", "1,204", 1204.0),
        ("infer_samples_per_sec", "4302.84", 4302.84),
        ("Requests/s", "12.5k", 12500.0),
        ("Speed (FPS)", "30 ± 2", 30.0),
        ("images/s/GPU", "390", None),
        ("throughput gain (img/s)", "390", None),
        ("throughput (GB/s)", "390", 390e9),
        ("memory bandwidth (GB/s)", "390", None),
        ("throughput (k tok/s)", "12.5", 12500.0),
        ("throughput (k tok/s)", "12.5k", None),
        ("Throughput", "950 img/s", 950.0),
        ("Speed", "12.5 M rows/s", 12.5e6),
        ("Ops/sec", "1,234,567", 1234567.0),
        ("RPS", "4,400", 4400.0),
        ("tokens/s", "0", None),
        ("M samples/s", "12.5", 12.5e6),
        ("tok/s (k)", "12.5", None),
        ("Ops/s (M)", "12.5", None),
        ("Tokens/s [k]", "12.5", None),
        ("tok/s, k", "12.5", None),
        ("Throughput (k)", "12.5 tok/s", None),
        ("QPS (millions)", "12.5", 12.5e6),
        ("Tokens/s (in thousands)", "12.5", 12500.0),
        ("Tokens/s (thousands)", "12.5k", None),
        ("images/s", "12 500", 12500.0),
        ("images/s", "12 50", None),
        ("Throughput (thousand tok/s)", "12.5", None),
        ("Throughput, thousands of images/s", "12.5", None),
        ("images/s (x1000)", "12.5", None),
        ("images/s ('000)", "12.5", None),
        ("Throughput (1000 tok/s)", "12.5", None),
        ("images/s (1000x1000)", "12.5", 12.5),
        ("images/s, 1 million images", "12.5", 12.5),
        ("YOLOv8-M (images/s)", "12.5", 12.5),
        ("images/s (per GPU)", "390", None),
        ("images/s, per chip", "390", None),
        ("Per-device throughput (images/s)", "390", None),
        ("images/s (each)", "390", None),
        ("Throughput/GPU", "390 img/s", None),
        ("samples per second", "390", 390.0),
        ("Max throughput (img/s)", "390", 390.0),
        ("Required throughput (img/s)", "390", None),
        ("Throughput SLA (img/s)", "390", None),
    ],
)
def test_a_rate_is_one_per_second_by_its_heading(page, head, cell, rate):
    assert only(page(f"| a | {head} | top-1 |\n|---|---|---|\n| x | {cell} | 0.9 |\n")).sides[0].throughput == rate


def test_a_star_in_code_is_a_letter(page):
    claim = only(page("| Command | time (s) |\n|---|---|\n| `find -name '*.jpg'` | 5 |\n"))
    assert claim.sides[0].name == "find -name '*.jpg'"


def test_a_footnote_in_a_cell_of_html_is_no_digit(page):
    text = "<table><tr><th>Model<th>Time (s)<tr><td>a<td>3<sup>1</sup><tr><td>b<td>5</table>"
    assert [each.time_s for each in only(page(text, "results.html")).sides] == [None, 5.0]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_is_read_as_markdown_is(page, mark):
    text = "\n".join(mark.join(row) for row in (("model", "latency (ms)"), ("a", "3.5"), ("b", "4.5")))
    assert [each.time_s for each in only(page(text, "results.csv")).sides] == [0.0035, 0.0045]


def test_a_claim_in_words_is_to_be_written_down(page):
    with pytest.raises(UsageError) as refused:
        read(page("We are 5 times faster.\n", "note.md"))
    assert 'title = "We are 5 times faster."' in refused.value.do
    assert "lint --template" in refused.value.do


def test_a_table_in_a_block_of_code_is_no_claim(page):
    with pytest.raises(UsageError, match="it has no table"):
        read_published(page("```\n| a | time (s) |\n|---|---|\n| x | 1 |\n```\n"))


def test_a_page_without_figures_says_what_was_looked_for(page):
    with pytest.raises(UsageError, match="no table of it states a time with its unit"):
        read(page("| option | meaning |\n|---|---|\n| -n | runs |\n"))


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.sampled_from([".md", ".html", ".csv"]))
def test_any_text_is_read_or_refused(tmp_path_factory, text, suffix):
    path = tmp_path_factory.mktemp("page") / f"page{suffix}"
    path.write_text(f"| a | time (s) |\n|---|---|\n| {text} | 1 |\n{text}" if suffix == ".md" else text)
    try:
        found = propose(path)
    except UsageError:
        return
    for each in found:
        tomllib.loads(each.toml())
    read_published(path)


def test_a_pdf_is_refused_with_a_way_to_its_text(tmp_path):
    path = tmp_path / "paper.pdf"
    path.write_bytes(b"%PDF-1.5\n1 0 obj\n")
    with pytest.raises(UsageError, match=r"it is a PDF, which is not read[\s\S]*pdftotext"):
        read(path)


def test_a_table_in_html_on_a_page_in_markdown_is_read_with_its_lines(page):
    table = "<table>\n<tr><th>Model</th><th>Latency (ms)</th></tr>\n<tr><td>a</td><td>9.1</td></tr>\n</table>\n"
    markdown, html = read_published(page(f"{PAGE}\nOf a call.\n\n{table}\n```\n{table}```\n"))
    assert markdown.sides[0].name == "ours"
    assert (html.title, html.sides[0].time_s) == ("Of a call.", 0.0091)
    assert html.sides[0].where.endswith(":15")


@pytest.mark.parametrize(
    ("heads", "figure", "value"),
    [
        ("Baseline (ms) | Ours (ms)", "time_s", 0.012),
        ("V100 (img/s) | A100 (img/s)", "throughput", 12.0),
        ("Requests/s (nginx) | Requests/s (caddy)", "throughput", 12.0),
    ],
)
def test_systems_side_by_side_may_have_their_unit_in_the_heading(page, heads, figure, value):
    claim = only(page(f"| Dataset | {heads} |\n|---|---|---|\n| A | 12 | 6 |\n"))
    system = heads.split(" | ", maxsplit=1)[0].replace("Requests/s ", "").split(" (")[0].strip("()")
    assert (claim.sides[0].name, getattr(claim.sides[0], figure)) == (f"{system}, A", value)
    assert len(claim.sides) == 2


def test_rates_with_their_unit_are_of_systems_side_by_side(page):
    claim = only(page("# Benchmarks\n\n| Parser | a.json | b.json |\n|---|---|---|\n| x | 3.0 GB/s | 0.5 GB/s |\n"))
    assert [(each.name, each.throughput) for each in claim.sides] == [("a.json, x", 3e9), ("b.json, x", 5e8)]


@pytest.mark.parametrize(
    "text",
    [
        "| Clip | Audio (s) | Length (s) |\n|---|---|---|\n| a | 30 | 31 |\n",
        "| Task | Owner (days) | Review (days) |\n|---|---|---|\n| docs | 3 | 1 |\n",
        "| GPU | Memory | GB/s |\n|---|---|---|\n| K40 | 12 GB | 288 |\n",
        "| GPU | PCIe | HBM |\n|---|---|---|\n| H100 | 64 GB/s | 3000 GB/s |\n",
        "| Sensor | Frame rate | Sampling rate |\n|---|---|---|\n| a | 30 frames/s | 200 samples/s |\n",
        "| Training loss | Validation loss |\n|---|---|\n| 0.5 | 0.6 |\n| 0.3 | 0.5 |\n",
        "| Exercise | Work (s) | Rest (s) |\n|---|---|---|\n| Squat | 30 | 20 |\n",
        "| Corpus | Train (h) | Test (h) |\n|---|---|---|\n| LibriSpeech | 960 | 5.4 |\n",
        "| Split | Hours | Utterances |\n|---|---|---|\n| train | 960 | 281241 |\n",
        "| Language | Syllables per second |\n|---|---|\n| Japanese | 7.8 |\n",
        "| fib | Estimate | Lower bound | Upper bound |\n|---|---|---|---|\n| 20 | 26 µs | 25 µs | 27 µs |\n",
    ],
)
def test_figures_of_no_system_are_not_read(page, text):
    with pytest.raises(NothingStatedError):
        read_published(page(text))


@pytest.mark.parametrize(
    ("heads", "second", "names"),
    [
        ("Query | System", "Q1 | ClickHouse", ["Q1, DuckDB", "Q1, ClickHouse"]),
        ("Model | Batch", "Q1 | 32", None),
    ],
)
def test_a_column_that_tells_rows_of_one_name_apart_is_part_of_their_names(page, heads, second, names):
    first = "Q1 | DuckDB" if names else "Q1 | 1"
    claim = only(page(f"| {heads} | Time (s) |\n|---|---|---|\n| {first} | 0.8 |\n| {second} | 0.5 |\n"))
    assert [each.name for each in claim.sides] == (names or ["Q1, Batch 1", "Q1, Batch 32"])
    assert all(each.hardware.description is None for each in claim.sides)


def test_tasks_of_one_name_are_told_apart_beside_several_systems(page):
    rows = "| torch | mlp | 4 | 3 |\n| torch | cnn | 9 | 8 |\n"
    claim = only(page(f"| framework | network | by hand, ms | ours, ms |\n|---|---|---|---|\n{rows}"))
    names = [f"{system}, torch, {network}" for network in ("mlp", "cnn") for system in ("by hand", "ours")]
    assert [each.name for each in claim.sides] == names


def test_systems_of_one_name_are_not_told_apart(page):
    claim = only(
        page("| a | ours, ms | theirs, ms | ours, ms | theirs, ms |\n|---|---|---|---|---|\n| x | 4 | 3 | 2 | 1 |\n")
    )
    assert [each.time_s for each in claim.sides] == [None]


def test_repetitions_are_not_told_apart_by_their_seeds(page):
    claim = only(page("| Model | Seed | Time (s) |\n|---|---|---|\n| a | 1 | 0.8 |\n| a | 2 | 0.5 |\n"))
    assert [(each.name, each.time_s) for each in claim.sides] == [("a", 0.8)]


@pytest.mark.parametrize(
    ("head", "cell", "interval"),
    [
        ("95 % CI", "[74.6, 76.2]", (74.6, 76.2)),
        ("CI (s)", "74.6–76.2", (74.6, 76.2)),
        ("95 % CI", "[0.1, 0.2]", None),
        ("CI", "±0.2", None),
        ("range", "[74.6, 76.2]", None),
    ],
)
def test_an_interval_may_have_a_column_of_its_own(page, head, cell, interval):
    claim = only(page(f"| a | Time (s) | {head} |\n|---|---|---|\n| x | 75.3 | {cell} |\n"))
    assert claim.sides[0].interval == interval


def test_the_interval_of_a_quality_is_on_its_scale(page):
    claim = only(page("| a | Accuracy (%) | 95 % CI |\n|---|---|---|\n| x | 94.1 | 93.9–94.3 |\n"))
    assert (claim.sides[0].quality.low, claim.sides[0].quality.high) == (0.939, 0.943)


@pytest.mark.parametrize(
    ("head", "cell", "runs"),
    [("N", "1024", None), ("n", "1024", None), ("Trials", "50", None), ("runs", "10", 10), ("seeds", "3", 3)],
)
def test_a_size_is_no_number_of_runs(page, head, cell, runs):
    claim = only(page(f"| a | Time (s) | {head} |\n|---|---|---|\n| x | 75.3 | {cell} |\n"))
    assert claim.sides[0].runs_made == runs


def test_n_beside_a_spread_is_a_number_of_runs(page):
    claim = only(page("| a | Time (s) | n |\n|---|---|---|\n| x | 75.3 ± 0.4 | 20 |\n"))
    assert claim.sides[0].runs_made == 20


@pytest.mark.parametrize(
    ("head", "cell", "hardware"),
    [
        ("System", "DuckDB", None),
        ("System", "8x V100", "8x V100"),
        ("GPU memory", "12 GB used", None),
        ("GPU", "12 GB", None),
        ("GPU", "yes", None),
        ("GPU", "H100", "H100"),
    ],
)
def test_hardware_is_named_and_no_amount(page, head, cell, hardware):
    claim = only(page(f"| a | Time (s) | {head} |\n|---|---|---|\n| x | 75.3 | {cell} |\n"))
    assert claim.sides[0].hardware.description == hardware


@pytest.mark.parametrize(
    "head",
    [
        "Target accuracy",
        "% of FP32 accuracy",
        "Packet loss (%)",
        "Cost savings ($)",
        "Monthly cost ($)",
        "CI (ms)",
        "± (ms)",
        "Accuracy threshold",
        "F1 threshold",
        "Accuracy requirement",
        "Accuracy budget",
        "Min accuracy",
        "Loss weight",
        "Accuracy SE",
        "Projected accuracy",
    ],
)
def test_a_heading_of_another_figure_states_none(page, head):
    claim = only(page(f"| a | images/s | {head} |\n|---|---|---|\n| x | 390 | 0.9 |\n")).sides[0]
    assert (claim.quality.value, claim.cost_usd, claim.time_s) == (None, None, None)


def test_a_record_of_several_lines_in_csv_begins_at_its_first(page):
    claim = only(page('name,time_s,note\nx,1.5,"two\nlines"\ny,2.5,\n', "a.csv"))
    assert [each.where.rpartition(":")[2] for each in claim.sides] == ["2", "4"]


def test_characters_by_name_and_footnotes_are_understood_in_markdown(page):
    claim = only(page("| a | time (s) |\n|---|---|\n| x[^1] | 5.1 &plusmn; 0.2 |\n| y | 7.1[^2] |\n"))
    assert [(each.name, each.time_s) for each in claim.sides] == [("x", 5.1), ("y", 7.1)]


@pytest.mark.parametrize(
    ("heads", "cells", "sides"),
    [
        (
            "Model | PyTorch latency (ms) | ONNX Runtime latency (ms)",
            "R50 | 8 | 4",
            ["PyTorch, R50", "ONNX Runtime, R50"],
        ),
        (
            "name | old time/op | new time/op | delta",
            "Encode | 8ms ± 1% | 4ms ± 2% | -50%",
            ["old, Encode", "new, Encode"],
        ),
        ("Model | Latency - FP32 (ms) | Latency - INT8 (ms)", "R50 | 8 | 4", ["FP32, R50", "INT8, R50"]),
        ("Engine | Load (ms) | Aggregate (ms)", "DuckDB | 8 | 4", ["Load, DuckDB", "Aggregate, DuckDB"]),
        ("N | numpy (s) | numba (s)", "1000 | 0.008 | 0.004", ["numpy, N 1000", "numba, N 1000"]),
        ("Model | GPU | PyTorch (ms) | TensorRT (ms)", "R50 | T4 | 8 | 4", ["PyTorch, R50", "TensorRT, R50"]),
        ("Task | Default (ms) | torch.compile (ms)", "R50 | 8 | 4", ["Default, R50", "torch.compile, R50"]),
        ("Test | Python 3.10 (s) | Python 3.11 (s)", "R50 | 0.008 | 0.004", ["Python 3.10, R50", "Python 3.11, R50"]),
        ("Case | pandas (s) | polars (s)", "join | 0.008 | 0.004", ["pandas, join", "polars, join"]),
        ("Task | Prefill latency (ms) | Decode latency (ms)", "R50 | 8 | 4", []),
        ("Task | First token latency (ms) | Next token latency (ms)", "R50 | 8 | 4", []),
        ("Task | Preprocessing time (ms) | Evaluation time (ms)", "R50 | 8 | 4", []),
    ],
)
def test_systems_side_by_side_are_named_by_what_their_headings_do_not_share(page, heads, cells, sides):
    rule = "|".join(["---"] * len(heads.split("|")))
    claim = only(page(f"| {heads} |\n|{rule}|\n| {cells} |\n"))
    assert [(each.name, each.time_s) for each in claim.sides if each.time_s] == [
        *zip(sides, (0.008, 0.004), strict=False)
    ]


def test_hardware_beside_systems_side_by_side_is_that_of_each(page):
    claim = only(page("| Model | GPU | A (ms) | B (ms) |\n|---|---|---|---|\n| R50 | T4 | 8 | 4 |\n"))
    assert [each.hardware.description for each in claim.sides] == ["T4", "T4"]


def test_minutes_of_benchmarks_side_by_side_are_read_beside_an_accelerator(page):
    text = "| Submitter | Accelerator | ResNet (min) | BERT (min) |\n|---|---|---|---|\n| Dell | H100 | 13.2 | 5.5 |\n"
    assert [(each.name, each.time_s) for each in only(page(text)).sides] == [("ResNet, Dell", 792), ("BERT, Dell", 330)]


def test_figures_of_several_kinds_below_one_another_are_of_the_columns(page):
    rows = [
        "Latency | 12 ms | 4 ms",
        "Throughput | 82 img/s | 238 img/s",
        "Top-1 | 76 % | 75 %",
        "Size | 98 MB | 25 MB",
    ]
    text = "| | FP32 | INT8 |\n|---|---|---|\n" + "".join(f"| {row} |\n" for row in [*rows, "Price per hour | $3 | $3"])
    first, second = only(page(text)).sides
    assert (first.name, first.time_s, first.throughput, first.quality.value) == ("FP32", 0.012, 82, 0.76)
    assert (second.name, second.time_s, second.throughput, second.quality.value) == ("INT8", 0.004, 238, 0.75)


def test_the_columns_of_hyperfines_csv_are_in_seconds(page):
    head = "command,mean,stddev,median,user,system,min,max"
    text = f"{head}\nrg foo,0.1234,0.002,0.1229,0.3,0.1,0.12,0.13\ngrep foo,1.2345,0.02,1.229,1.1,0.1,1.2,1.3\n"
    path = page(text, "bench.csv")
    assert [(each.name, each.time_s, each.reported) for each in only(path).sides] == [
        ("rg foo", 0.1234, "mean"),
        ("grep foo", 1.2345, "mean"),
    ]
    assert 'reported = "mean"  # line 1: "mean"' in propose(path)[0].toml()
    with pytest.raises(NothingStatedError):
        only(page(text.replace("stddev", "noise"), "other.csv"))


@pytest.mark.parametrize(
    ("head", "cell", "figure"),
    [
        ("videos/s", "12", ("throughput", 12)),
        ("Messages/s", "12", ("throughput", 12)),
        ("Mrows/s", "12", ("throughput", 12e6)),
        ("TFLOPs/s", "12", None),
        ("Cost per second", "12", None),
        ("ms/frame", "12", ("time_s", 0.012)),
        ("hours/week", "12", None),
        ("Runtime, s (mean ± std)", "12 ± 1", ("time_s", 12)),
        ("Time ± 95% CI (s)", "12 ± 1", ("time_s", 12)),
        ("Std of the time (s)", "12", None),
        ("Total training hours", "12", ("time_s", 43200)),
        ("Time (s) [95% CI]", "12 [11, 13]", ("time_s", 12)),
        ("Runtime / s", "12", ("time_s", 12)),
        ("Images / s", "12", ("throughput", 12)),
        ("wall_s", "12", ("time_s", 12)),
        ("Training GPU hours", "12", None),
    ],
)
def test_what_a_heading_of_a_time_or_rate_is(page, head, cell, figure):
    (side,) = only(page(f"| Model | {head} | Accuracy |\n|---|---|---|\n| a | {cell} | 0.9 |\n")).sides
    read_there = [(name, getattr(side, name)) for name in ("time_s", "throughput") if getattr(side, name) is not None]
    assert read_there == ([] if figure is None else [figure])


def test_a_setting_with_a_latency_beside_each_number_is_measured(page):
    text = "| Flags | Latency | Throughput |\n|---|---|---|\n| -O2 | 8 ms | 123 img/s |\n| -O3 | 7 ms | 139 img/s |\n"
    assert [(each.time_s, each.throughput) for each in only(page(text)).sides] == [(0.008, 123), (0.007, 139)]


@pytest.mark.parametrize(
    ("above", "head", "row"),
    [
        ("# Pancakes", "Dish | Prep time | Cook time", "Pancake | 10 min | 20 min"),
        ("# Travel", "From | By train | By car", "Berlin | 3 h | 4 h"),
        ("# Marathon\n\nResults of 2024", "Runner | Time", "Kipchoge | 2:01:09"),
        ("# Camera\n\nA Python library.\n\n## Formats", "Format | Resolution | FPS", "MJPG | 1280x720 | 30"),
    ],
)
def test_a_table_without_a_word_of_programs_near_is_left_alone(page, above, head, row):
    marks = "|".join("-" for _ in head.split("|"))
    with pytest.raises(NothingStatedError):
        propose(page(f"{above}\n\n{head}\n{marks}\n{row}\n{row.replace('1', '2')}x\n", "README.md"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("README.md", "# polars\n\nA query engine.\n\n## Speed\n\n| | Time |\n|---|---|\n| polars | 12 s |\n"),
        ("README.md", "# Times on ImageNet\n\n## All\n\n| | Time |\n|---|---|\n| a | 12 min |\n"),
        ("README.md", "| | Time |\n|---|---|\n| ResNet-50 | 12 min |\n"),
        ("times.csv", "name,wall_s\na,12\nb,13\n"),
        ("a.html", "<h1>Our framework</h1><table><tr><th>a<th>Time</tr><tr><td>b<td>12 s</tr></table>"),
    ],
)
def test_a_word_of_programs_may_stand_above_the_table_or_in_it(page, name, text):
    assert only(page(text, name)).sides[0].time_s in (12, 720)


def test_how_long_something_lasts_after_an_action_is_no_time(page):
    with pytest.raises(NothingStatedError):
        propose(page("| | |\n|---|---|\n| machine | a GPU |\n| warm after a call | 30 s |\n"))


def test_a_column_of_units_is_that_of_the_numbers(page):
    parse, dump = only(page("| Case | Time | Unit |\n|---|---|---|\n| parse | 3.2 | ms |\n| dump | 4 | s |\n")).sides
    assert (parse.time_s, dump.time_s) == (0.0032, 4.0)


def test_of_two_columns_of_numbers_a_column_of_units_is_of_neither(page):
    text = "| Case | Time | Width | Unit |\n|---|---|---|---|\n| parse | 3.2 | 5 | ms |\n"
    with pytest.raises(NothingStatedError):
        propose(page(text))


def test_latencies_on_a_processor_each_are_sides_and_times_of_processors_are_none(page):
    text = "| Net | CPU {0} (ms) | GPU {0} (ms) |\n|---|---|---|\n| A | 10 | 2 |\n"
    sides = only(page(text.format("latency"))).sides
    assert [(each.name, each.time_s) for each in sides] == [("CPU, A", 0.01), ("GPU, A", 0.002)]
    with pytest.raises(NothingStatedError):
        propose(page(text.format("time")))


@pytest.mark.parametrize(
    ("above", "head", "row"),
    [
        ("# Films", "Title | Runtime | Rating", "Alien | 117 min | 8.5"),
        ("# A course on GPUs", "Lesson | Time", "Neural networks | 3 h"),
        ("# Support of our software", "Severity | Response time", "P1 | 1 h"),
        ("# API rate limits", "Endpoint | Requests/s", "/a | 10"),
        ("# Recording software", "Preset | Resolution | FPS", "HD | 1280x720 | 60"),
    ],
)
def test_lengths_plans_limits_and_formats_are_no_results(page, above, head, row):
    marks = "|".join("-" for _ in head.split("|"))
    with pytest.raises(NothingStatedError):
        propose(page(f"{above}\n\n{head}\n{marks}\n{row}\n", "README.md"))


def test_frames_per_second_of_models_at_a_resolution_are_rates(page):
    text = "# Camera\n\n| Model | Resolution | FPS |\n|---|---|---|\n| YOLO | 640x640 | 30 |\n"
    assert only(page(text, "README.md")).sides[0].throughput == 30


def test_a_score_with_a_unit_of_rates_is_a_rate(page):
    assert only(page("| Test | Score | Units |\n|---|---|---|\n| a | 1200 | req/s |\n")).sides[0].throughput == 1200


def test_two_words_of_programs_in_the_headings_need_no_page(page):
    assert only(page("Name,State,Runtime,accuracy\na,done,12,0.91\n", "x.csv")).sides[0].quality.value == 0.91


def test_a_table_that_could_be_of_anything_is_left_alone_and_says_what_it_lacks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("| name | seconds |\n|---|---|\n| a | 1.2 |\n| b | 1.4 |\n")
    with pytest.raises(NothingStatedError, match="programs were measured") as caught:
        propose(page)
    assert "# Benchmark" in caught.value.do
    page.write_text("# Benchmark\n\n" + page.read_text())
    assert len(propose(page)) == 1
