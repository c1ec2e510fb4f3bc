"""MLPerf's common rules: one planted fault each, and the official checker's result next to ours."""

import pytest

from levelbench.competition.exchange.mlperf import check_log, check_seeds, read_log

FAULTS = {}
"""By name: what to change in a good log, the code of ours, and whether the official checker refuses it too."""


def fault(name, code, *, official=True, division="open"):
    def keep(change):
        FAULTS[name] = (change, code, official, division)
        return change

    return keep


def without(key):
    return lambda lines, event: [line for line in lines if line["key"] != key]


def changed(key, **fields):
    def change(lines, event):
        return [{**line, **fields} if line["key"] == key else line for line in lines]

    return change


def bare(key):
    """The events of a key without the metadata that says where in training they are."""
    return changed(key, metadata={"file": "train.py", "lineno": 7})


REQUIRED = ["submission_org", "submission_platform", "cache_clear", "init_start", "init_stop", "run_start", "run_stop"]
for key in [*REQUIRED, "eval_accuracy", "train_samples", "eval_samples", "submission_benchmark", "submission_division"]:
    fault(f"no {key}", "key-missing")(without(key))
fault("no blocks", "key-missing")(
    lambda lines, event: [line for line in lines if not line["key"].startswith(("block_", "eval_st"))]
)
for key in ["eval_accuracy", "eval_start", "eval_stop", "block_start", "block_stop"]:
    fault(f"{key} without a place", "place-missing")(bare(key))
fault("run_stop without a status", "status-missing")(bare("run_stop"))
fault("an empty organisation", "value-empty")(changed("submission_org", value=""))
fault("an unknown division", "division-unknown")(changed("submission_division", value="ajar"))
fault("an unknown format", "format-unknown")(
    lambda lines, event: [*lines, event(5, "lowest_numerical_precision_in_linear", "fp7")]
)
fault("half a worker", "not-integer")(lambda lines, event: [*lines, event(5, "tensor_parallelism", 1.5)])
fault("two organisations", "key-repeated")(lambda lines, event: [*lines, event(0, "submission_org", "other")])
fault("two counts", "key-repeated")(lambda lines, event: [*lines, event(0, "train_samples", 1)])
fault("initialisation for hours", "init-cap")(
    lambda lines, event: [
        {**line, "time_ms": line["time_ms"] + 4 * 3_600_000} if line["time_ms"] > 1_700_000_060_000 else line
        for line in lines
    ]
)
fault("half an hour in the closed division", "init-cap", division="closed")(
    lambda lines, event: [
        {**line, "time_ms": line["time_ms"] + 1_800_000} if line["time_ms"] > 1_700_000_060_000 else line
        for line in lines
    ]
)
fault("no accumulation in the closed division", "key-missing", division="closed")(
    without("gradient_accumulation_steps")
)
fault("run_start before init_stop", "run-order")(
    lambda lines, event: [*lines[:12], lines[13], lines[12], *lines[14:]],
)
fault("init_start after init_stop", "init-order")(
    lambda lines, event: [*lines[:13], event(60_005, "init_start"), *lines[13:]]
)
fault("training before run_start", "before-run")(lambda lines, event: [lines[14], *lines[:14], *lines[15:]])
fault("an empty block", "count-range")(
    lambda lines, event: [
        {**line, "metadata": {**line["metadata"], "epoch_count": 0}} if line["key"] == "block_start" else line
        for line in lines
    ]
)
fault("a clock that is set back", "time-back", official=False)(
    lambda lines, event: [
        {**line, "time_ms": line["time_ms"] - 3_600_000} if i > 18 else line for i, line in enumerate(lines)
    ]
)
fault("a stop before the start", "time-negative", official=False)(changed("run_stop", time_ms=1_700_000_060_009))
fault("a curve that goes back", "curve-back", official=False)(
    lambda lines, event: [
        {**line, "metadata": {"epoch_num": 1, "samples_count": 512}, "value": 0.4} if i == 22 else line
        for i, line in enumerate(lines)
    ]
)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, make_lines, make_event, log_of):
    change, code, _, division = FAULTS[name]
    findings = check_log(log_of(change(make_lines(division=division), make_event)))
    assert code in {finding.code for finding in findings if finding.severity == "error"}


@pytest.mark.parametrize("name", [name for name, (_, _, _, division) in FAULTS.items() if division == "open"])
def test_a_planted_fault_is_judged_by_the_official_checker_as_expected(
    name, make_lines, make_event, text_of, tmp_path, official
):
    """The closed division is left out: there each benchmark's own rules refuse the log first."""
    change, _, refused, _ = FAULTS[name]
    (tmp_path / "result_0.txt").write_text(text_of(change(make_lines(), make_event)))
    assert official(tmp_path / "result_0.txt") is not refused


INNOCENT = {
    "as it is": lambda lines, event: lines,
    "epochs for blocks": lambda lines, event: [
        {**line, "key": line["key"].replace("block", "epoch"), "metadata": {**line["metadata"], "epoch_num": 1}}
        for line in lines
    ],
    "an hour of initialisation": lambda lines, event: [
        {**line, "time_ms": line["time_ms"] + 3_600_000} if line["time_ms"] > 1_700_000_060_000 else line
        for line in lines
    ],
    "several init_start": lambda lines, event: [*lines[:6], event(3, "init_start"), *lines[6:]],
    "keys of one's own": lambda lines, event: [*lines, event(90_011, "levelbench_target", {"metric": "loss"})],
    "one value from two ranks": lambda lines, event: [*lines[:2], event(1, "submission_org", "someone"), *lines[2:]],
    "an aborted run": lambda lines, event: [*lines[:-1], event(90_010, "run_stop", status="aborted")],
    "lines of two ranks out of order by half a second": lambda lines, event: [
        *lines,
        event(89_600, "tracked_stats", {"loss": 1.0}),
    ],
}


@pytest.mark.parametrize("name", INNOCENT)
def test_a_log_that_keeps_the_rules_has_no_error(name, make_lines, make_event, log_of):
    findings = check_log(log_of(INNOCENT[name](make_lines(), make_event)))
    assert [str(each) for each in findings if each.severity == "error"] == []


@pytest.mark.parametrize("name", INNOCENT)
def test_the_official_checker_finds_nothing_in_it_either(name, make_lines, make_event, text_of, tmp_path, official):
    (tmp_path / "result_0.txt").write_text(text_of(INNOCENT[name](make_lines(), make_event)))
    assert official(tmp_path / "result_0.txt")


def test_a_benchmark_that_no_round_has_is_allowed(log_of, make_lines):
    assert check_log(log_of(make_lines(benchmark="digits"))) == []


def test_a_finding_says_where_what_and_what_to_do(log_of, make_lines):
    (finding,) = check_log(log_of(without("run_stop")(make_lines(), None)))
    assert str(finding) == "result_0.txt: error key-missing: there is no run_stop. Log it."


@pytest.mark.parametrize("key", ["init_start", "init_stop", "run_start"])
def test_nothing_is_said_to_come_before_a_line_that_is_not_there(log_of, make_lines, key):
    found = check_log(log_of([line for line in make_lines() if line["key"] != key]))
    assert [finding.code for finding in found if finding.code != "status-missing"] == ["key-missing"]


def test_repeated_values_are_a_note(log_of, make_lines, make_event):
    (finding,) = check_log(log_of([*make_lines()[:1], make_event(1, "submission_org", "someone"), *make_lines()[1:]]))
    assert (finding.code, finding.severity) == ("key-repeated", "note")


def test_a_value_that_is_not_finite_is_a_warning(log_of, make_lines):
    (finding,) = check_log(log_of(make_lines(values=(float("nan"), 0.5))))
    assert (finding.code, finding.severity) == ("not-finite", "warning")


def test_the_first_round_is_checked_only_for_its_run(log_of):
    text = ":::MLPv0.5.0 ncf 1538678136 (./convert.py:119) run_start\n"
    assert {finding.key for finding in check_log(log_of(text))} == {"run_stop", "eval_accuracy"}


SEEDS = {
    "each its own": ([1, 2], set()),
    "the same": ([3, 3], {"seed-repeated"}),
    "none": ([None, 1], {"seed-missing"}),
    "no integer": (["x", 1], {"seed-format"}),
    "a number in text": (["7", 7], {"seed-repeated"}),
}


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_are_judged_as_the_official_checker_does(name, make_lines, text_of, tmp_path):
    seed_checker = pytest.importorskip("mlperf_logging.package_checker.seed_checker")
    seeds, codes = SEEDS[name]
    paths = [tmp_path / f"result_{number}.txt" for number in range(len(seeds))]
    for path, seed in zip(paths, seeds, strict=True):
        path.write_text(text_of([line for line in make_lines(seed=seed) if seed is not None or line["key"] != "seed"]))
    assert {finding.code for finding in check_seeds([read_log(path) for path in paths])} == codes
    assert seed_checker.SeedChecker("6.0.0").check_seeds(list(map(str, paths))) is (not codes)


def test_one_seed_from_two_lines_of_code_is_two_seeds(log_of, make_lines, make_event):
    other = [line for line in make_lines(seed=1) if line["key"] != "seed"]
    other.insert(6, {**make_event(3, "seed", 1), "metadata": {"file": "data.py", "lineno": 9}})
    assert check_seeds([log_of(make_lines(seed=1)), log_of(other, "result_1.txt")]) == []


def test_several_seeds_in_a_run_are_a_warning(log_of, make_lines, make_event):
    (finding,) = check_seeds([log_of([*make_lines(), make_event(9, "seed", 5)])])
    assert (finding.code, finding.severity) == ("seed-several", "warning")
