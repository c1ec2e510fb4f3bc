"""``levelbench lint``: what it reads, prints and answers with."""

import json
import re

import pytest
from tests.claims.made import RULES, claim, rule

from levelbench.claims.lint import lint
from levelbench.claims.reading import kind_of
from levelbench.claims.reading.claim_file import parse_claim
from levelbench.claims.rules import all_rules
from levelbench.cli.lint_verb import report_lines

GUILTY = """\
title = "8-bit kernels make training 5 times faster"

[[sides]]
name = "8-bit"

[[sides]]
name = "float32"

[[comparisons]]
new = "8-bit"
base = "float32"
of = "kernel"
ratio = 5.0
part_share = 0.3
claimed_for = "whole"
"""
IGNORED = {"LB105": "the part is the whole here"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder of its own, with a claim that is guilty of LB105 on line 15."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claim.toml").write_text(GUILTY)
    return tmp_path


def test_findings_are_printed_by_claim_with_evidence_and_remedy(golden):
    claims = [("claim.toml", claim()), ("digits", claim("digits: torch against numpy")), ("claim.toml", claim("clean"))]
    report = lint(claims[:2], RULES, IGNORED)
    assert lint(claims[2:], ()).linted[0].findings == ()
    golden("lint", "\n".join(report_lines(report, "not-stated")) + "\n")


def test_of_one_claim_the_first_three_questions_are_printed_and_the_others_counted():
    unsaid = [("not-stated", f"not stated: fact {at}", "say it", f"fact{at}") for at in range(5)]
    lines = report_lines(lint([("claim.toml", claim())], (rule("LB103", *unsaid),)), "warning")
    assert [line for line in lines if "fact" in line] == [f"  ask LB103: fact {at}" for at in range(3)]
    said = "8-bit is 5 times faster (claim.toml): "
    said += "1 claim checked against 1 rule: 0 errors, 0 warnings, 5 not stated (--show not-stated lists them all)"
    assert lines[-1] == said


def test_of_several_claims_what_is_not_stated_is_only_counted():
    lines = report_lines(lint([("claim.toml", claim())] * 2, RULES), "warning")
    assert "2 not stated (--show not-stated lists them)" in lines[-1]
    assert not any("LB103" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], 1),
        (["--fail-on", "error"], 1),
        (["--fail-on", "never"], 0),
        (["--select", "LB122"], 0),
        (["--ignore", "LB105=the part is the whole here", "--select", "LB105"], 0),
    ],
)
def test_a_finding_so_severe_ends_in_1(call, words, expected):
    assert call("lint", "claim.toml", *words)[0] == expected


def test_a_claim_is_read_and_the_line_is_named(call):
    code, out, _ = call("lint", "claim.toml", "--select", "kernels-only")
    assert code == 1
    assert "error LB105 kernels-only at claim.toml:15, comparisons[0].claimed_for" in out
    assert "1.32 times" in out


def test_what_is_ignored_is_said_with_its_reason(call):
    _, out, _ = call("lint", "claim.toml", "--select", "LB105", "--ignore", "kernels-only=the part is the whole here")
    assert "LB105: 1 finding, because: the part is the whole here" in out
    assert "1 ignored" in out


@pytest.mark.parametrize("name", ["lint.toml", "pyproject.toml"])
def test_settings_are_those_of_the_current_folder(call, here, name):
    table = "" if name == "lint.toml" else "tool.levelbench.lint."
    head = f"[{table[:-1]}]\n" if table else ""
    (here / name).write_text(f'{head}select = ["LB105"]\n[{table}ignore]\nLB105 = "the part is the whole"\n')
    code, out, _ = call("lint", "claim.toml")
    assert code == 0
    assert "because: the part is the whole" in out


def test_settings_beside_the_claim_silence_nobody(call, here):
    (here / "theirs").mkdir()
    (here / "theirs" / "claim.toml").write_text(GUILTY)
    (here / "theirs" / "lint.toml").write_text('[ignore]\nLB105 = "trust me"\n')
    assert call("lint", "theirs/claim.toml", "--select", "LB105")[0] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("selct = []", "close: select"),
        ('select = "LB105"', "not a list of codes"),
        ('ignore = ["LB105"]', "no reasons"),
        ('[ignore]\nLB105 = ""', "no reason"),
        ('[ignore]\nLB1O5 = "x"', "close: LB1"),
        ('show = "eror"', "close: error"),
        ("fail-on = 1", "not text"),
        ("=", "not TOML"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(call, here, settings, said):
    (here / "lint.toml").write_text(settings)
    code, _, err = call("lint", "claim.toml")
    assert code == 2
    assert said in err


def test_json_has_the_findings_and_the_exit_code(call):
    code, out, _ = call("lint", "claim.toml", "--select", "LB105", "--json")
    value = json.loads(out)
    assert value["exit_code"] == code == 1
    assert value["claims"][0]["findings"][0]["line"] == 15


@pytest.mark.parametrize(("layout", "begins"), [("sarif", '{\n  "$schema"'), ("github", "::error file=claim.toml")])
def test_other_formats_are_printed(call, layout, begins):
    code, out, _ = call("lint", "claim.toml", "--select", "LB105", "--format", layout)
    assert code == 1
    assert out.startswith(begins)


def test_a_text_of_a_claim_does_not_steer_the_terminal(call, here):
    (here / "claim.toml").write_text(GUILTY.replace("8-bit kernels", "8-bit \\u001b[2J \\n\\n0 errors"))
    _, out, _ = call("lint", "claim.toml")
    assert "\x1b" not in out
    assert "\n0 errors" not in out
    assert "\\x1b[2J" in out


def test_a_rule_is_explained_by_code_and_by_name(call):
    code, out, _ = call("lint", "--explain", "kernels-only")
    assert code == 0
    assert out == call("lint", "--explain", "lb105")[1]
    assert all(f"\n{title}\n" in out for title in ("Why", "Sound practice", "Guilty", "Innocent", "Cannot see"))


def test_all_rules_are_explained_and_listed(call):
    explained, listed = call("lint", "--explain", "all")[1], call("lint", "--rules")[1].splitlines()
    assert [line.split()[0] for line in listed] == [rule.code for rule in all_rules()]
    assert all(f"{rule.code} {rule.name} (" in explained for rule in all_rules())
    value = json.loads(call("lint", "--rules", "--json")[1])
    assert [rule["code"] for rule in value["rules"]] == [rule.code for rule in all_rules()]


def test_a_misspelt_rule_is_answered_with_the_nearest(call):
    code, _, err = call("lint", "--explain", "kernel-only")
    assert code == 2
    assert "close: kernels-only" in err


def test_a_template_is_linted_as_soon_as_something_is_filled_in(call, here):
    text = call("lint", "--template")[1]
    (here / "new.toml").write_text(text)
    code, _, err = call("lint", "new.toml")
    assert code == 2
    assert "it states only names" in err
    (here / "new.toml").write_text(text.replace("#time_s = 0.0", "time_s = 12.5", 1))
    code, out, _ = call("lint", "new.toml")
    assert code == 0
    assert "0 errors, 0 warnings, " in out
    assert "not stated" in out
    assert call("lint", "--template", "markdown")[1].startswith("# Checklist")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "it names nothing to check"),
        (["clam.toml"], "did you mean claim.toml?"),
        (["claim.toml", "--select", "LB9"], "no rule has that name"),
        (["claim.toml", "--ignore", "LB105"], "no reason is given"),
        (["claim.toml", "--config", "none.toml"], "none.toml"),
        (["note.txt"], "not a claim.toml, a record, a submission or an MLPerf log"),
        (["--docs", "."], "no lint.md"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, here, words, said):
    (here / "note.txt").write_text("we are 5 times faster\n")
    code, _, err = call("lint", *words)
    assert code == 2
    assert said in err


def test_a_word_that_is_neither_a_file_nor_a_run_is_said_to_be_neither(call, store):
    code, _, err = call("lint", "leaderbord", "--store", store)
    assert code == 2
    assert "there is no such file or folder, and no run has that name" in err


def test_a_file_that_cannot_be_read_is_said_and_ends_in_4(call, store):
    (store / "broken.jsonl").write_text("no record\n")
    code, out, err = call("lint", store)
    assert code == 4
    assert "broken.jsonl" in err
    assert "1 file not read" in out


def test_records_are_told_from_other_files(store):
    assert kind_of(store) == "records"
    assert {kind_of(path) for path in store.rglob("*.jsonl")} == {"record"}


def test_pages_are_written_and_stale_ones_go(call, here):
    (here / "lint.md").write_text("<!-- rules: written by levelbench lint --docs -->\n<!-- end of rules -->\n")
    (here / "rules").mkdir()
    (here / "rules" / "LB999.md").write_text("old")
    assert call("lint", "--docs", ".")[0] == 0
    assert {path.stem for path in (here / "rules").iterdir()} == {rule.code for rule in all_rules()}
    assert "[LB105](rules/LB105.md)" in (here / "lint.md").read_text()


@pytest.mark.parametrize("in_file", [True, False])
def test_a_claim_in_words_is_answered_with_the_few_lines_that_write_it_down(call, tmp_path, in_file):
    sentence = "Our method is 3 times as fast as the baseline"
    (tmp_path / "claim.txt").write_text(f"{sentence}.\n")
    code, _, said = call("lint", str(tmp_path / "claim.txt") if in_file else sentence)
    assert code == 2
    assert "levelbench lint --template" in said
    lines = said[said.index("title = ") : said.index("then levelbench")].splitlines()
    claim = parse_claim("\n".join(line.strip() for line in lines))
    assert claim.title.startswith(sentence)
    assert [side.name for side in claim.sides] == ["ours", "theirs"]


def test_what_time_measured_is_linted_with_its_doubts(call, here):
    call("time", "true", "--vs", "true 2", "-n", 3, "--fail-on", "never")
    next((here / "levelbench-results" / "commands").rglob("*-s1-*.jsonlines")).unlink()
    code, out, _ = call("lint", "latest")
    assert code == 0
    assert "doubt: 3 processes of true were asked for, and 2 of them count" in out.replace("true 2", "true")


def test_pages_of_one_name_are_proposed_together_and_one_without_figures_is_named(call, here):
    table = "| model | time (s) |\n|---|---|\n| x | {} |\n"
    for number, name in enumerate(("one", "two", "three")):
        (here / name).mkdir()
        (here / name / "README.md").write_text(table.format(number) if number else "No table.\n")
    pages = [f"{name}/README.md" for name in ("one", "two", "three")]
    code, out, _ = call("lint", *pages, "--propose", "claims")
    assert (code, out.splitlines()[-1]) == (0, "one/README.md: it has no table")
    assert "time_s = 1.0" in (here / "claims" / "README-1.toml").read_text()
    assert "time_s = 2.0" in (here / "claims" / "README-2.toml").read_text()


def test_the_tables_of_a_page_are_proposed_as_claim_files(call, here):
    page = here / "RESULTS.md"
    page.write_text("| system | time (s) |\n|---|---|\n| a | 1 |\n| b | 2 |\n")
    code, out, _ = call("lint", str(page), "--propose", str(here / "claims"))
    assert (code, out) == (0, f"{here}/claims/RESULTS-1.toml: complete it, then lint it\n")
    code, out, _ = call("lint", str(here / "claims" / "RESULTS-1.toml"))
    assert (code, "1 claim checked" in out) == (0, True)
    code, _, err = call("lint", str(page), "--propose", str(here / "claims"))
    assert (code, "is there already" in err) == (2, True)
    code, _, err = call("lint", "missing.md", "--propose", str(here / "claims"))
    assert (code, "there is no such file" in err) == (2, True)


def test_settings_among_several_files_are_passed_over(call, here):
    (here / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    code, out, _ = call("lint", "claim.toml", "pyproject.toml")
    assert (code, "1 claim checked" in out) == (1, True)
    code, _, err = call("lint", "pyproject.toml")
    assert (code, "it has settings, and no claim" in err) == (2, True)


def test_findings_and_the_summary_fit_a_terminal(call, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", call("lint", "claim.toml")[1]).splitlines()
    assert any("LB105" in line for line in lines)
    assert max(map(len, lines)) <= 70


def test_a_file_that_cannot_be_read_does_not_hide_the_findings_of_others(call, here):
    (here / "broken.toml").write_text('title = "')
    code, out, _ = call("lint", "broken.toml", "claim.toml", "--select", "LB105", "--format", "github")
    assert code == 1
    assert [line.split("::")[1].split(" ")[0] for line in out.splitlines()] == ["error", "warning"]
    assert "title=unreadable::reading the claim broken.toml" in out


def test_a_page_without_figures_among_several_is_passed_over(call, here):
    (here / "README.md").write_text("# Mine\n\nNo table.\n")
    code, _, err = call("lint", "claim.toml", "README.md", "--fail-on", "never")
    assert (code, "passed over README.md: it has no table" in err) == (0, True)
    code, _, err = call("lint", "README.md", "README.md")
    assert (code, "write the claim down" in err) == (2, True)


def test_a_missing_file_among_several_is_an_error(call, here):
    code, _, err = call("lint", "claim.toml", "clame.toml")
    assert (code, "did you mean claim.toml" in err) == (2, True)
