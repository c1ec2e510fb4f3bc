from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import RecordError
from levelbench.records import End, Evaluation, Measurement, Samples
from levelbench.records.lines import RUN, encode

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
whole = st.integers(0, 2**62)
figures = st.floats()
phases = st.dictionaries(texts, whole, max_size=4)
qualities = st.dictionaries(texts, figures, max_size=3)
EVENTS = (
    st.builds(Evaluation, whole, whole, figures, whole, qualities, st.none() | figures, phases)
    | st.builds(Samples, texts, texts, st.lists(whole, max_size=20) | st.lists(figures, max_size=20))
    | st.builds(Measurement, texts, texts, st.none() | figures, st.none() | texts, st.none() | texts)
    | st.builds(End, st.sampled_from(["done", "failed"]), whole, phases, qualities, st.none() | texts, st.lists(texts))
)


@given(event=EVENTS)
def test_any_event_is_read_back_unchanged_even_if_not_finite(event):
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    # repr tells NaN from NaN no more than it should, and -0.0 from 0.0.
    assert repr(RUN.decode_event(line)) == repr(event)


@given(event=EVENTS)
def test_a_line_is_json_that_any_reader_accepts(event):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(encode(event), parse_constant=refuse)["kind"]


def test_numpy_scalars_and_arrays_become_plain_values():
    samples = Samples("step_time", "ns", np.array([1, 2]))
    assert RUN.decode_event(encode(samples)) == Samples("step_time", "ns", [1, 2])
    diverged = Measurement("loss", "", np.float32("nan"), None)
    assert math.isnan(RUN.decode_event(encode(diverged)).value)


def test_text_that_has_no_utf8_is_written_with_its_escape():
    end = End("failed", 0, {}, error="no file caf\udce9")
    assert RUN.decode_event(encode(end)).error == r"no file caf\udce9"


def test_a_value_that_no_record_can_hold_is_refused():
    with pytest.raises(TypeError, match="object"):
        encode(End("done", 0, {}, environment_after={"it": object()}))


def test_a_first_line_that_is_not_a_header_is_an_error_in_three_parts():
    for line in (b"", b"{", b"[]", b'{"kind":"evaluation"}', b"\xff\xfe", b"[" * 100_000):
        with pytest.raises(RecordError, match="reading x: line 1 is not the header") as caught:
            RUN.decode_header(line, "reading x")
        assert caught.value.do
