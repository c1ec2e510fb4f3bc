"""A claim is held by one process at a time; waiting processes continue when it is released."""

import threading

import pytest

from levelbench.errors import StoreError
from levelbench.records.locks import claimed


def test_the_second_waits_for_the_first_and_reports_it(tmp_path):
    path, waiting, order = tmp_path / "claims" / "run", threading.Event(), []

    def second():
        with claimed(path, waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with claimed(path, lambda: order.append("waited")):
        thread.start()
        assert waiting.wait(60)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]


def test_many_waiters_hold_it_one_at_a_time(tmp_path):
    holders, most = [], []

    def each():
        with claimed(tmp_path / "run", lambda: None):
            holders.append(1)
            most.append(len(holders))
            holders.pop()

    threads = [threading.Thread(target=each) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(most), max(most)) == (20, 1)


def test_nothing_is_left_behind_even_by_an_error(tmp_path):
    with pytest.raises(KeyError), claimed(tmp_path / "run", lambda: None):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_in_three_parts(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"), claimed(tmp_path / "file" / "x", lambda: None):
        pass
