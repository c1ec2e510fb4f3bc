"""docs/reference/mlperf.md is true: its example prints what the page says, and its counts are those of the code."""

import re
from pathlib import Path

import msgspec

from levelbench.competition.exchange.mlperf.entries import rules_for
from levelbench.competition.exchange.mlperf.logs import benchmarks
from levelbench.competition.rulesets import ruleset, task_rules

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "mlperf.md").read_text()


def test_the_worked_example_prints_what_the_page_says(tmp_path, monkeypatch, capsys, make_lines, text_of):
    for run in range(5):
        lines = make_lines(seed=run)
        lines[-1]["time_ms"] += 1000 * run
        (tmp_path / f"result_{run}.txt").write_text(text_of(lines))
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "docs/reference/mlperf.md", "exec"), {})
    score, windows, judged = capsys.readouterr().out.splitlines()
    assert score == "32.000 s, mean of runs (1, 2, 3), 0 failed"
    assert float(windows) == (32.0 + 33.0 + 33.5) / 3
    assert f"prints `{judged}`" in " ".join(PAGE.split())


def test_the_page_counts_the_benchmarks():
    assert f"{len(benchmarks())} benchmarks" in PAGE


def test_the_targets_of_the_ruleset_are_those_of_the_benchmarks():
    for name, known in benchmarks().items():
        rules = ruleset(rules_for(name))
        task = task_rules(rules, name)
        assert task is not None
        assert msgspec.structs.replace(task.target, split="") == msgspec.structs.replace(
            known.metrics[0].target(), split=""
        )
        assert (rules.aggregation.runs, rules.aggregation.drop) == (known.runs, known.drop)
