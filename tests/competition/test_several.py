"""Work distributed over processes: the results are those of a single process, in the same order."""

import gc
import operator
import os
from multiprocessing import parent_process

import pytest

from levelbench.competition.leaderboard import shared_out
from levelbench.errors import MissingError


def test_what_several_processes_make_comes_in_order_and_the_collector_is_as_it_was():
    before = gc.get_threshold()
    items = list(range(250)) * 8
    # The worker is 3, and the work is a function that another process can import.
    with shared_out(len(items), 2, int, ("3",)) as share:
        assert list(share(operator.add, items)) == [3 + each for each in items]
        assert list(share(operator.mul, items)) == [3 * each for each in items]
    assert gc.get_threshold() == before


def end_where_another_began_it():
    if parent_process() is not None:
        os._exit(3)


def test_a_process_that_is_ended_from_outside_is_reported():
    with (
        pytest.raises(MissingError, match="died before it finished"),
        shared_out(500, 2, end_where_another_began_it, ()) as share,
    ):
        list(share(operator.is_, range(500)))
