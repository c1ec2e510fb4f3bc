"""Probes become findings, whatever they raise; findings become reports, exceptions, JSON and exit codes."""

import pytest

from levelbench.checks.findings import (
    NOTHING_CHECKED,
    EndProbe,
    Finding,
    Report,
    exit_code,
    failed,
    findings_of,
    merged,
    not_tried,
    noted,
    passed,
    reports_to_dict,
    run_probes,
)
from levelbench.errors import CheckFailedError, DefinitionError, LevelbenchError, MissingError, UnsupportedError

OTHERS = [MissingError("asked", "found", "do"), UnsupportedError("asked", "found", "do")]


def raising(error):
    def probe():
        yield passed("so far")
        raise error

    return probe


def test_a_finding_gets_the_name_of_its_probe_unless_it_has_its_own():
    found = findings_of("memory", lambda: [passed("a"), failed("b", probe="bounds")])
    assert [each.probe for each in found] == ["memory", "bounds"]


def test_the_case_is_filled_in_for_failures_and_notes_without_one():
    probe = [passed(), failed("x"), noted("x"), not_tried("x"), failed("x", case="own")]
    assert [each.case for each in findings_of("p", lambda: probe, case="float32[2]")] == [
        "",
        "float32[2]",
        "float32[2]",
        "",
        "own",
    ]


@pytest.mark.parametrize("error", OTHERS)
def test_a_refusal_is_not_a_failure(error):
    assert [*findings_of("p", raising(error))][1] == Finding("p", "not tried", "asked: found", "do")


def test_any_levelbench_error_can_be_made_a_refusal():
    error = DefinitionError("asked", "found", "do")
    assert [*findings_of("p", raising(error))][1].status == "failed"
    assert [*findings_of("p", raising(error), refusals=(LevelbenchError,), case="c")][1] == Finding(
        "p", "not tried", "asked: found", "do", "c"
    )


def test_an_exception_is_a_finding_whose_text_is_left_out_of_records():
    error = ValueError("a secret")
    assert [*findings_of("p", raising(error))][1].found == "it raised ValueError: a secret"
    (_, kept) = findings_of("p", raising(error), recorded=True)
    assert kept.status == "failed"
    assert "ValueError" in kept.found
    assert "secret" not in kept.found


def test_a_probe_can_be_ended_with_a_finding_from_inside():
    assert [*findings_of("p", raising(EndProbe(failed("deep down", "dig"))))] == [
        passed("so far", probe="p"),
        failed("deep down", "dig", probe="p"),
    ]


def test_probes_run_in_order_and_one_that_raises_does_not_stop_the_others():
    begun = []
    report = run_probes(
        "it", [("a", raising(ValueError())), ("b", lambda: [noted("x")])], begun.append, framework="torch"
    )
    assert begun == ["a", "b"]
    assert [(each.probe, each.status) for each in report.findings] == [("a", "passed"), ("a", "failed"), ("b", "noted")]
    assert report.title == "it on torch"
    assert report.of("b") == (noted("x", probe="b"),)


def test_equal_failures_become_one_finding_that_names_all_probes():
    found = merged([failed("x", "y", probe="a"), noted("x", "y", probe="b"), *[failed("x", "y", probe="c")] * 2])
    assert [(each.probe, each.found) for each in found] == [("a", "x (also in: c)"), ("b", "x")]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([[passed()], [noted("x")]], 0),
        ([[passed()], [failed("x")]], 1),
        ([[noted("x")], [not_tried("x")]], NOTHING_CHECKED),
        ([], NOTHING_CHECKED),
    ],
)
def test_the_exit_code_is_that_of_the_worst_finding(found, code):
    assert exit_code([Report("r", tuple(each)) for each in found]) == code


def test_a_report_raises_its_first_failure_and_counts_the_others():
    Report("r", (passed(), noted("x"))).raise_for_findings()
    findings = (passed(probe="a"), failed("x", "do it", case="c", probe="b"), *[failed("y", probe="b")] * 2)
    with pytest.raises(CheckFailedError, match=r"r on jax, check 'b' on c.*x; and 2 more findings") as caught:
        Report("r", findings, "jax").raise_for_findings()
    assert caught.value.do == "do it"


def test_all_checks_have_the_same_json():
    found = reports_to_dict([Report("a", (passed(probe="p"),)), Report("b", (failed("x", "y", probe="q"),), "jax")])
    assert found == {
        "passed": False,
        "reports": [
            {
                "name": "a",
                "framework": "",
                "passed": True,
                "findings": [{"probe": "p", "status": "passed", "found": "", "do": "", "case": ""}],
            },
            {
                "name": "b on jax",
                "framework": "jax",
                "passed": False,
                "findings": [{"probe": "q", "status": "failed", "found": "x", "do": "y", "case": ""}],
            },
        ],
    }


def test_only_failures_with_the_same_text_become_one():
    same = [failed("x", "y", probe="a"), failed("x", "y", probe="b"), failed("x", "y", probe="a")]
    others = [passed(probe="a"), passed(probe="b"), noted("x", probe="c")]
    (merged_one, *rest) = merged([same[0], *others, *same[1:]])
    assert merged_one.found == "x (also in: b)"
    assert rest == others
