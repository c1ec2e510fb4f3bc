"""A report's files appear whole or not at all, as a page, Markdown and tables."""

import os
import stat

import pytest
from tests.report.pages import compared

from levelbench.errors import StoreError
from levelbench.report.drawing import write_whole
from levelbench.report.page import write_csv, write_markdown, write_report


def test_the_file_appears_whole_or_not_at_all(two_arms, tmp_path, monkeypatch, undrawn):
    path = tmp_path / "report.html"
    path.write_text("before")

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreError, match="No space left"):
        write_report(two_arms, [], path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Choose a folder"):
        write_whole(tmp_path / "file" / "report.html", "x")


def test_folders_are_made_and_the_file_is_an_ordinary_one(two_arms, tmp_path, undrawn):
    path = write_report(two_arms, compared(two_arms), tmp_path / "a" / "b" / "report.html")
    assert stat.S_ISREG(path.stat().st_mode)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_markdown_holds_the_verdict_and_the_tables(two_arms, tmp_path):
    text = write_markdown(two_arms, compared(two_arms), tmp_path / "r.md").read_text(encoding="utf-8")
    assert "- FASTER" in text
    assert text.count("\n| :---") == 3


def test_csv_files_have_safe_names_and_every_table(make, group, tmp_path):
    paths = write_csv(group([make(task="../../etc/x", seed=seed) for seed in (1, 2)]), tmp_path / "csv")
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == sorted(path.name for path in paths)
    assert {path.name for path in paths} == {"etc-x-groups.csv", "etc-x-phases.csv", "etc-x-curves.csv", "runs.csv"}


def test_an_interrupt_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "report.html", "x")
    assert list(tmp_path.iterdir()) == []
