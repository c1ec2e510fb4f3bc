"""Tables that people publish: what stands in them is read with its place, and nothing is guessed."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levelbench.claims.reading import read
from levelbench.claims.reading.claim_file import read_claim
from levelbench.claims.reading.published import propose, read_published
from levelbench.claims.view import HardwareView, Side
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
    def write(text, name="README.md"):
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
    assert replace(read_claim(tmp_path / "claim.toml").sides[2], where="") == Side(
        "other", time_s=1204.5, time_of="target", hardware=HardwareView(description="A100")
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
    ],
)
def test_a_time_needs_its_unit(page, head, cell, time_s):
    text = f"| system | {head} | accuracy |\n|---|---|---|\n| a | {cell} | 0.9 |\n| b | – | 0.8 |\n"
    assert only(page(text)).sides[0].time_s == time_s


@pytest.mark.parametrize("ratios", [("1.5x", "2x"), ("1x", "1x"), ("1.5x", "–")])
def test_a_ratio_without_the_one_row_it_is_relative_to_is_not_read(page, ratios):
    text = "| system | speed-up | time (s) |\n|---|---|---|\n" + "".join(
        f"| {name} | {ratio} | 1 |\n" for name, ratio in zip("ab", ratios, strict=True)
    )
    assert only(page(text)).comparisons == []


def test_a_ratio_of_something_else_is_no_comparison(page):
    text = "| part | ratio | time (ms) |\n|---|---|---|\n| forward | 0.5 | 2 |\n| other | 1 | 3 |\n"
    assert only(page(text)).comparisons == []


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
    with pytest.raises(UsageError, match="of its 1 tables, none states a time with its unit"):
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
