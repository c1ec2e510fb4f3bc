"""Work shared out among processes, or done in step: what comes of it is the same as one after another, in order."""

import gc
import os
from multiprocessing import parent_process

import msgspec
import pytest
from tests.records.submissions.scored import DAWNBENCH, OURS, a_run, submission

from levelbench.errors import MissingError
from levelbench.records.submissions.schema import Price
from levelbench.records.submissions.scoring import score
from levelbench.records.submissions.several import in_step, shared_out


def counting(name, steps, told):
    for step in range(steps):
        told.append(f"{name}{step}")
        yield
    return name


def test_works_in_step_do_each_step_together_and_return_in_their_order():
    told = []
    assert in_step(counting(name, steps, told) for name, steps in (("a", 2), ("b", 0), ("c", 3))) == ["a", "b", "c"]
    assert told == ["a0", "c0", "a1", "c1", "c2"]


def test_an_error_in_a_step_is_the_callers():
    def broken():
        yield
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        in_step([counting("a", 2, []), broken()])


def test_what_several_processes_make_comes_in_order_and_the_collector_is_as_it_was():
    before = gc.get_threshold()
    items = list(range(250)) * 8
    # bytes() is the work, as what another process can find by its name.
    assert b"".join(shared_out(items, bytes, 2, dict, ())) == bytes(items)
    assert gc.get_threshold() == before


def end_where_another_began_it():
    if parent_process() is not None:
        os._exit(3)


def test_a_process_that_is_ended_from_outside_is_told():
    with pytest.raises(MissingError, match="came to an end before its work"):
        list(shared_out([9] * 50, bytes, 2, end_where_another_began_it, ()))


def test_a_score_is_that_of_the_very_submission_and_rules_that_are_asked_for():
    first = submission([a_run(10.0)], price=Price(1.0))
    dearer = msgspec.structs.replace(first, price=Price(2.0))
    assert score(first, DAWNBENCH) is score(first, DAWNBENCH)
    assert score(dearer, DAWNBENCH).cost.value == 2 * score(first, DAWNBENCH).cost.value
    assert score(first, OURS).ruleset == OURS.id
    assert score(first, DAWNBENCH, threshold=2.0).reached == 0 < score(first, DAWNBENCH).reached
