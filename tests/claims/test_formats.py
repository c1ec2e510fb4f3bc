"""The report for other programs: JSON, SARIF, annotations; and the pages of rules."""

import json
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.claims.made import ERROR, PAGE, RULES, claim, rule

from levelbench.claims.formats import as_json, as_sarif, escaped_data, escaped_property, github_lines
from levelbench.claims.lint import lint
from levelbench.claims.pages import BEGIN, END, all_pages, checklist, rule_text, rules_table, with_table
from levelbench.claims.rules import all_rules

DOCS = Path(__file__).parents[2] / "docs" / "reference"

# The part of OASIS's schema of SARIF 2.1.0 that the output uses; where it allows no other property, neither does this.
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
HELP = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "markdown": {}}}


def closed(required, **properties):
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


PHYSICAL = closed(
    ["artifactLocation"],
    artifactLocation=closed(["uri"], uri={"type": "string", "format": "uri-reference"}),
    region=closed(["startLine"], startLine={"type": "integer", "minimum": 1}),
)
LOCATION = closed(
    [],
    physicalLocation=PHYSICAL,
    logicalLocations={
        "type": "array",
        "items": closed([], fullyQualifiedName={"type": "string"}, kind={"type": "string"}),
    },
)
SUPPRESSION = closed(
    ["kind"],
    kind={"enum": ["inSource", "external"]},
    status={"enum": ["accepted", "underReview", "rejected"]},
    justification={"type": "string"},
)
RESULT = closed(
    ["message"],
    ruleId={"type": "string"},
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    message=MESSAGE,
    locations={"type": "array", "items": LOCATION},
    suppressions={"type": "array", "uniqueItems": True, "items": SUPPRESSION},
    properties={"type": "object"},
)
DESCRIPTOR = closed(
    ["id"],
    id={"type": "string"},
    name={"type": "string"},
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=HELP,
    properties={"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}},
)
DRIVER = closed(
    ["name"],
    name={"type": "string"},
    version={"type": "string"},
    rules={"type": "array", "uniqueItems": True, "items": DESCRIPTOR},
)
NOTIFICATION = closed(["message"], level={"enum": ["none", "note", "warning", "error"]}, message=MESSAGE)
INVOCATION = closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications={"type": "array", "items": NOTIFICATION},
)
RUN = closed(
    ["tool"],
    invocations={"type": "array", "items": INVOCATION},
    tool=closed(["driver"], driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results={"type": "array", "items": RESULT},
)
SARIF = closed(
    ["version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"enum": ["2.1.0"]},
    runs={"type": "array", "items": RUN},
)


@pytest.fixture
def report(tmp_path, monkeypatch):
    """A claim in a file whose third line is guilty, and one that was read from no file."""
    monkeypatch.chdir(tmp_path)
    text = 'title = "t"\n[[comparisons]]\nratio = 5.0\n'
    Path("a claim.toml").write_text(text)
    claims = [("a claim.toml", claim(where="a claim.toml")), ("digits", claim("runs", read_from="records"))]
    return lint(claims, RULES, {"LB204": "5 runs cost too much"})


def sarif_of(report, show="warning"):
    return json.loads(msgspec.json.encode(as_sarif(report, show)))


@pytest.mark.parametrize("show", ["error", "not-stated"])
def test_sarif_is_of_its_schema(report, show):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(SARIF).validate(sarif_of(report, show))
    jsonschema.Draft202012Validator(SARIF).validate(sarif_of(lint([("c", claim())])))


def test_sarif_is_read_by_somebody_elses_models(report):
    models = pytest.importorskip("sarif_pydantic")
    text = json.dumps(sarif_of(replace(report, unread=("it is not JSON",)), "not-stated"))
    (run,) = models.Sarif.model_validate_json(text).runs
    assert len(run.results) == len(json.loads(text)["runs"][0]["results"])
    with pytest.raises(ValueError, match="level"):
        models.Sarif.model_validate_json(text.replace('"level": "error"', '"level": "awful"'))


def test_what_could_not_be_read_is_said_in_every_format(report):
    lacking = replace(report, unread=("reading entry.json: it is not JSON",))
    assert sarif_of(report)["runs"][0]["invocations"][0]["executionSuccessful"]
    invocation = sarif_of(lacking)["runs"][0]["invocations"][0]
    assert not invocation["executionSuccessful"]
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == lacking.unread[0]
    assert as_json(lacking)["unread"] == [*lacking.unread]
    assert "::warning title=unreadable::reading entry.json: it is not JSON" in github_lines(lacking)


def test_sarif_names_the_line_and_what_was_ignored(report):
    (run,) = sarif_of(report)["runs"]
    first, second, *_ = run["results"]
    location = first["locations"][0]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "a%20claim.toml"}, "region": {"startLine": 3}}
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "comparisons[0].ratio"
    assert first["level"] == "error"
    assert first["suppressions"] == []
    assert second["suppressions"][0]["justification"] == "5 runs cost too much"
    assert [run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] for each in run["results"]] == [
        each["ruleId"] for each in run["results"]
    ]


def test_a_text_of_a_claim_is_no_placeholder_and_no_link_in_sarif(tmp_path):
    found = rule("LB105", ("error", "the {0} of [this](http://evil)", "look"))
    (run,) = sarif_of(lint([("x", claim())], (found,)))["runs"]
    assert "{{0}}" in run["results"][0]["message"]["text"]
    assert "](" not in run["results"][0]["message"]["text"]


def test_json_counts_every_severity_and_lists_the_shown(report):
    value = json.loads(msgspec.json.encode(as_json(report)))
    first, second = value["claims"]
    assert value["counts"] == {"error": 2, "warning": 0, "not-stated": 2}
    assert [each["code"] for each in first["findings"]] == ["LB105"]
    assert (first["findings"][0]["file"], first["findings"][0]["line"]) == ("a claim.toml", 3)
    assert first["suppressed"][0]["reason"] == value["ignored"]["LB204"] == "5 runs cost too much"
    assert (second["source"], second["findings"][0]["file"]) == ("digits", None)


def test_annotations_name_file_line_and_severity(report):
    lines = github_lines(report, "not-stated")
    assert lines[0].startswith(
        "::error file=a claim.toml,line=3,title=LB105 rule-105::8-bit is 5 times faster: 5 times"
    )
    assert lines[1].startswith("::notice file=a claim.toml")
    assert lines[2].startswith("::error title=")
    assert lines[-1] == "::notice title=LB204 ignored::findings: 2; reason: 5 runs cost too much"


def test_annotations_from_a_folder_of_a_repository_name_files_as_the_repository_does(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "claim.toml").write_text("")
    monkeypatch.chdir(tmp_path / "docs")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (line,) = github_lines(lint([("claim.toml", claim())], (rule("LB105", ("error", "x", "y")),)))
    assert line.startswith("::error file=docs/claim.toml,")


def unescaped(text):
    for code, sign in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, sign)
    return text


@given(st.text(alphabet="%,:\r\n0ADa25"))
def test_what_is_escaped_is_read_back_and_ends_no_command(text):
    assert unescaped(escaped_property(text)) == text
    assert not re.search(r"[\r\n:,]", escaped_property(text))
    assert not re.search(r"[\r\n]", escaped_data(text))


def test_a_text_of_a_claim_begins_no_command_of_a_workflow():
    found = rule("LB105", ("error", "x\n::set-env name=A::b", "look\r\n::stop::"))
    lines = github_lines(lint([("a,b:c", claim("t\n::error::"))], (found,)))
    assert len(lines) == 1
    assert len(lines[0].splitlines()) == 1


def test_a_page_in_the_terminal(golden):
    golden("lint_explain", rule_text(PAGE))


def test_the_table_goes_between_its_marks():
    page = f"# Title\n\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(page, (PAGE,)) == f"# Title\n\n{BEGIN}\n{rules_table((PAGE,))}{END}\nafter\n"
    with pytest.raises(ValueError, match="rules"):
        with_table("# Title\n", (PAGE,))


def test_the_checklist_has_a_box_for_every_rule():
    assert checklist((PAGE, ERROR)).count("- [ ] ") == 2
    assert all(f"({rule.code})" in checklist() for rule in all_rules())


def test_the_committed_pages_are_the_generated_ones():
    pages = all_pages((DOCS / "lint.md").read_text())
    stale = "levelbench lint --docs docs writes them anew"
    assert {path.relative_to(DOCS).as_posix() for path in (DOCS / "rules").iterdir()} < set(pages), stale
    for name, text in pages.items():
        assert (DOCS / name).read_text() == text, stale
