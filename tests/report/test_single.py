import dataclasses

from msgspec import structs

from levelbench.records.schema import DatasetFacts
from levelbench.records.summary import summarise
from levelbench.report.page import report_page
from levelbench.report.runs import curve_table, phases_table, run_facts


def facts(run):
    return {name.text: value.text for name, value in run_facts(run).rows}


def test_a_run_that_missed_says_how_long_it_tried_and_what_its_clock_left_out(make):
    run = summarise(make(rate=0.05, clock="dawnbench"))
    assert facts(run)["outcome"].startswith("missed after ")
    assert "; left out: evaluate " in facts(run)["outcome"]


def test_a_run_that_reached_says_when_and_after_how_much(make):
    outcome = facts(summarise(make()))["outcome"]
    assert outcome.startswith("reached in ")
    assert "on the wall clock, 14 epochs, 15,078 samples" in outcome
    assert "left out" not in outcome


def test_the_whole_run_and_a_step_have_their_times(make):
    run = dataclasses.replace(make(), samples={})
    assert ", median step " in facts(summarise(make()))["whole run"]
    assert "a step" not in facts(summarise(run))["whole run"]


def test_synthetic_data_is_called_so(make):
    record = make()
    data = DatasetFacts("toy", {}, {}, "none", "CC0", synthetic=True)
    record = dataclasses.replace(record, end=structs.replace(record.end, dataset=data))
    assert "synthetic" in facts(summarise(record))["data"]
    assert "data" not in facts(summarise(make()))


def test_phases_that_are_none_count_as_other_and_shares_sum_to_one(make):
    run = structs.replace(summarise(make()), phases_s={"forward": 3.0, "=cmd": 1.0, "other": 1.0})
    rows = phases_table(run).rows
    assert [(name.text, seconds.value) for name, seconds, _ in rows] == [("forward", 3.0), ("other", 2.0)]
    assert sum(share.value for *_, share in rows) == 1.0


def test_the_curve_marks_the_evaluation_that_counts(make):
    record = make()
    marks = [row[-1].text for row in curve_table(record, summarise(record)).rows]
    assert marks == [""] * (len(record.evaluations) - 1) + ["target reached"]


def test_the_epoch_0_of_a_program_that_tells_epochs_is_one(make):
    record = make()
    from_0 = [structs.replace(each, epoch=each.epoch - 1) for each in record.evaluations]
    none = [structs.replace(each, epoch=0.0) for each in record.evaluations]
    told, untold = (
        curve_table(dataclasses.replace(record, evaluations=each), summarise(record)) for each in (from_0, none)
    )
    assert [row[0].value for row in told.rows] == [each.epoch for each in from_0]
    assert told.rows[0][0].value == 0
    assert "epoch" not in [column.key for column in untold.columns]


def test_a_run_that_goes_on_has_not_missed(make):
    run = structs.replace(summarise(make(rate=0.05)), status="running", quality={})
    found = facts(run)
    assert found["outcome"] == "not known yet: it is still running"
    assert "quality" not in found


def test_what_a_program_reports_has_its_name_and_no_split_of_ours(make, group):
    record = make()
    specification = record.header.specification
    target = structs.replace(specification.target, metric="test_acc")
    header = structs.replace(
        record.header, specification=structs.replace(specification, target=target, scored_by="program")
    )
    told = dataclasses.replace(record, header=header)
    of_run = facts(summarise(told))
    assert of_run["target"] == "test_acc at least 0.97, confirmed"
    assert of_run["quality"].startswith("test_acc 0.9")
    assert "test_acc" in [column.title for column in curve_table(told, summarise(told)).columns]
    assert "validation" not in report_page(group([told]), []).partition("Settings and versions")[0]
