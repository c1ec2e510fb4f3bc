"""The pages of leaderboards and rulesets: the workflow parses, its commands exist, the ruleset can be read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from levelbench.cli import VERBS, board_verb
from levelbench.competition.checks import CODES
from levelbench.competition.rulesets import read_ruleset

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "guides" / "publish-leaderboard.md").read_text()
CHECKS = (DOCS / "reference" / "board-checks.md").read_text()


def workflow():
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    return yaml.safe_load(text)


def test_the_workflow_runs_commands_that_exist():
    steps = [step for job in workflow()["jobs"].values() for step in job["steps"]]
    commands = [shlex.split(step["run"]) for step in steps if "run" in step]
    ours = [words for words in commands if words[0] == "levelbench"]
    assert len(ours) == 2
    for _, verb, word, *rest in ours:
        assert verb in VERBS
        command = board_verb.command.get_command(None, word)
        known = {name for parameter in command.params for name in parameter.opts}
        assert {each for each in rest if each.startswith("-")} <= known


def test_the_workflow_has_no_right_to_write_while_it_reads_what_others_sent():
    found = workflow()
    # YAML 1.1 reads the key "on" as true.
    assert "pull_request_target" not in found[True]
    assert found["permissions"] == {"contents": "read"}
    assert "permissions" not in found["jobs"]["check"]


def test_the_table_of_codes_covers_every_code():
    spans = [(first, last or first) for first, last in re.findall(r"^\| (B\d+)(?:,? (?:to )?(B\d+))? \|", CHECKS, re.M)]
    assert [code for code in CODES if not any(first <= code <= last for first, last in spans)] == []


def test_the_rulesets_of_the_page_can_be_read(tmp_path):
    texts = re.findall(r"```toml\n(.*?)```", (DOCS / "reference" / "rulesets.md").read_text(), flags=re.DOTALL)
    found = []
    for text in texts:
        (tmp_path / "club.toml").write_text(text)
        found.append(read_ruleset(tmp_path / "club.toml"))
    assert [(rules.id, rules.tasks[0].samples) for rules in found] == [("club-1.0", None), ("club-1.0", 359)]
