from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import UsageError
from levelbench.records import Selector, format_item, parse_item, parse_selector, read_record, summarise
from levelbench.records.schema import Distribution
from levelbench.records.selection import short_name

names = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=12
)
values = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        ["1", "0.5", "1e3", "true", "False", "nan", "inf", "", " a", "a,b", "a]", '"', "\\", "cuda:0", "é"]
    )
)


@given(name=names, settings=st.dictionaries(keys, values, max_size=5))
def test_an_item_is_read_back_unchanged_including_types(name, settings):
    read_name, read = parse_item(format_item(name, settings))
    assert read_name == name
    assert repr(read) == repr(settings)


@given(text=st.text(max_size=30) | st.text('ab[]=,"\\1. :/', max_size=20))
def test_any_text_is_parsed_or_a_usage_error(text):
    for parse in (parse_item, parse_selector):
        with suppress(UsageError):
            assert parse(text)


def test_the_type_of_a_value_follows_from_its_form():
    text = "digits[framework=numpy,lr=0.05, epochs=40,augment=true,rate=1e-3,device=cuda:0,name=nan]"
    assert parse_item(text) == (
        "digits",
        {
            "framework": "numpy",
            "lr": 0.05,
            "epochs": 40,
            "augment": True,
            "rate": 1e-3,
            "device": "cuda:0",
            "name": "nan",
        },
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("digits[lr=0.1", "brackets"),
        ("digits]", "brackets"),
        ("digits[lr=0.1]x", "brackets"),
        ("digits[lr]", "not name=value"),
        ("digits[lr=]", "not name=value"),
        ("digits[=1]", "not name=value"),
        ("digits[lr=1,,x=2]", "not name=value"),
        ("digits[lr=1,batch size=1]", 'in double quotes: "batch size"='),
        ("digits[lr=1,lr=2]", "given twice"),
        ("digits[n=9223372036854775808]", "64 bits"),
        ("digits[n=" + "9" * 30 + "]", "64 bits"),
        ("digits[lr=1e999]", "larger than a float"),
        ("[lr=1]", "no name"),
        ("", "no name"),
    ],
)
def test_an_item_that_cannot_be_read_says_what_is_wrong(text, found):
    with pytest.raises(UsageError, match=found):
        parse_item(text)


@pytest.fixture
def run(tmp_path, make_header, make_run):
    header = make_header(seed=3, id="beef0123", settings={"lr": 0.1, "hidden": 128, "nesterov": True, "note": "1"})
    return summarise(read_record(make_run(tmp_path, header)))


@pytest.mark.parametrize(
    "text",
    [
        "digits",
        "beef",
        "beef0123",
        "digits[framework=numpy]",
        "digits[lr=0.1,hidden=128]",
        "digits[hidden=128.0]",
        "digits[nesterov=true]",
        'digits[note="1"]',
        "digits[seed=3,status=done,reached=true]",
        "[recipe=mlp]",
        "digits[target=0.9]",
        "digits[crossing=confirmed,clock=wall,device=cpu]",
        "latest",
        "latest:5",
    ],
)
def test_a_run_is_selected_by(run, text):
    assert parse_selector(text).matches(run)


@pytest.mark.parametrize(
    "text",
    [
        *("digit", "bee", "eef0", "digits[lr=0.2]", "digits[hidden=true]", "digits[nesterov=1]", "digits[absent=1]"),
        *("digits[seed=4]", "digits[status=failed]", "digits[key=00000000]", "/elsewhere/", "digits[reached=false]"),
    ],
)
def test_a_run_is_not_selected_by(run, text):
    assert not parse_selector(text).matches(run)


@pytest.mark.parametrize("name", ["all-reduce", "allreduce", "dsgd"])
def test_a_scheme_is_selected_by_any_of_its_names(tmp_path, make_header, make_run, name):
    team = Distribution(2, "all-reduce", {}, "process", "gloo")
    run = summarise(read_record(make_run(tmp_path, make_header(distribution=team))))
    assert parse_selector(f"digits[scheme={name}]").matches(run)
    assert not parse_selector("digits[scheme=mavg]").matches(run)
    assert not parse_selector("digits[scheme=nobodys]").matches(run)


def test_a_key_is_a_prefix_even_if_it_looks_like_a_number(run):
    assert parse_selector(f"digits[key={run.key[:6]}]").matches(run)
    assert Selector("", filters=(("id", "beef"),)).matches(run)


def test_a_path_selects_a_record_or_all_below_a_folder_and_filters_may_follow(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Path(run.path).relative_to(tmp_path)
    for text in (run.path, str(tmp_path), f"./{relative}", "./digits", ".", f"{tmp_path}/digits/../digits/"):
        assert parse_selector(text).matches(run), text
    assert parse_selector("./digits[lr=0.1]").matches(run)
    assert not parse_selector("./digits[lr=0.2]").matches(run)
    assert not parse_selector("./dig").matches(run)


def test_a_folder_with_records_is_a_path_unless_it_may_be_a_task_or_an_id(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("st3", "digits", "cafe"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "copy.jsonl").write_bytes(Path(run.path).read_bytes())
    (tmp_path / "empty").mkdir()
    assert parse_selector("st3").path == tmp_path / "st3"
    assert parse_selector("st3[lr=0.1]") == Selector("st3[lr=0.1]", filters=(("lr", "0.1"),), path=tmp_path / "st3")
    for word in ("digits", "cafe", "empty", "nothing"):
        assert (parse_selector(word).word, parse_selector(word).path) == (word, None)


def test_latest_is_counted_by_the_store():
    assert parse_selector("latest").latest == 1
    assert parse_selector("latest:20").latest == 20
    assert parse_selector("latest[lr=1]").latest is None


def test_short_names_leave_out_the_task_and_terse_ones_the_words_that_values_speak_for():
    label = "digits[recipe=onecycle,framework=torch,lr=0.1]"
    assert short_name(label) == "recipe=onecycle,framework=torch,lr=0.1"
    assert short_name(label, terse=True) == "onecycle,torch,lr=0.1"
    assert short_name("digits", terse=True) == "digits"
