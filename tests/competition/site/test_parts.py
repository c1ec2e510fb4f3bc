"""The pieces of the site's pages: escaping, links, and the text of qualities."""

from html import escape

import pytest

from levelbench.competition.site.boards import TITLES
from levelbench.competition.site.parts import fill, inside, outside, quality_text, target_text
from levelbench.records.schema import Target
from levelbench.report.markup import Html


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.org",
        "https://",
        "https:\n//x.org",
        "ftp://x.org",
        "/x",
        "",
    ],
)
def test_only_an_http_address_is_a_link(address):
    assert "<a" not in outside(address)


def test_a_link_outside_follows_nothing_back():
    assert 'rel="noopener nofollow noreferrer"' in outside("https://example.org/a?b=1&c=2")


@pytest.mark.parametrize(
    "name", ["../x.html", "/x.html", "a/../../x.html", "javascript:x.html", "//x.html", "x.html?a"]
)
def test_no_page_of_the_site_is_outside_of_it(name):
    assert inside("", name, "text") == "text"


def test_a_template_escapes_what_is_not_markup_and_reads_no_braces_of_a_value():
    assert fill('<p title="{a}">{b}{c}</p>', a="\"'", b="{a}<", c=Html("<br>")) == (
        '<p title="&quot;&#x27;">{a}&lt;<br></p>'
    )


def test_every_ascii_character_is_escaped_as_the_standard_library_does():
    text = "".join(map(chr, range(32, 127)))
    assert fill("{a}", a=text) == escape(text)
    assert [fill("{a}", a=each) for each in text] == [escape(each) for each in text]


@pytest.mark.parametrize("character", ["\u202e", "\u200b", "\x00", "\x1b", "\ud800"])
def test_a_character_that_hides_or_turns_text_is_shown(character):
    shown = fill("{a}", a=f"a{character}b")
    assert character not in shown
    assert "\\" in shown


@pytest.mark.parametrize(
    ("value", "target", "text"),
    [
        (0.94, Target("top1", 0.94), "94 %"),
        (0.75, Target("f1", 0.75), "0.75"),
        (1.6, Target("perplexity", 1.6, "lower", 1.0, None), "1.6"),
        (94.0, Target("top1Accuracy", 94.0, high=100.0), "94"),
    ],
)
def test_a_quality_is_shown_on_its_own_scale(value, target, text):
    assert quality_text(value, target) == text


def test_the_target_says_which_side_is_good():
    assert target_text(Target("loss", 1.5, "lower", 0.0, None)) == "loss at most 1.5 on the validation split"


@pytest.mark.parametrize(("task", "title"), [("cifar10", "CIFAR-10"), ("squad", "SQuAD"), ("my-task", "my-task")])
def test_a_task_is_called_what_people_call_it(task, title):
    assert TITLES.get(task, task) == title
