"""Git revisions checked out next to each other, and what is still read from the working tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from levelbench.errors import UsageError
from levelbench.experiments import file_events
from levelbench.experiments.command_process import carry_out_command
from levelbench.experiments.commands import doubts_of, make_command
from levelbench.experiments.revisions import TreeReads, revisions


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """The folder ``part`` of a repository with two commits, the second of which sleeps longer."""
    folder = tmp_path / "repository" / "part"
    folder.mkdir(parents=True)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)

    def git(*words):
        named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)

    git("init", "..")
    for seconds in (0.0, 0.2):
        (folder / "run.sh").write_text(f"sleep {seconds}\n")
        git("add", ".")
        git("commit", "-m", str(seconds))
    monkeypatch.chdir(folder)
    return folder


def test_each_revision_is_checked_out_in_its_own_folder_and_removed_at_the_end(repository):
    with revisions(["HEAD~1", "HEAD"]) as (found, _, remarks):
        assert remarks == []
        names, commits, folders = zip(*found, strict=True)
        assert names == ("HEAD~1", "HEAD")
        assert len(set(commits)) == 2
        assert [(each / "run.sh").read_text() for each in folders] == ["sleep 0.0\n", "sleep 0.2\n"]
    assert not any(each.exists() for each in folders)
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) == 1


def test_an_unknown_revision_is_refused_and_leaves_no_folder(repository):
    with pytest.raises(UsageError, match="not a revision"), revisions(["HEAD", "nowhere"]):
        pass


def test_names_of_the_same_commit_are_refused(repository):
    subprocess.run(["git", "branch", "-M", "main"], check=True)
    with (
        pytest.raises(UsageError, match=r"main and HEAD are the same commit, .*: main~1,main"),
        revisions(["main", "HEAD"]),
    ):
        pass


def test_outside_a_repository_revisions_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="not a git repository"), revisions(["a", "b"]):
        pass


def test_uncommitted_changes_and_submodules_are_remarked(repository):
    (repository / "run.sh").write_text("sleep 9")
    (repository.parent / ".gitmodules").write_text("")
    with revisions(["HEAD~1", "HEAD"]) as (_, _, remarks):
        assert ["changes" in remarks[0], "submodules" in remarks[1]] == [True, True]


needs_inotify = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@pytest.fixture
def tree(tmp_path):
    """A working tree with a package, in which git tracks ``pkg/a.py`` and ``data.txt``."""
    (tmp_path / "tree" / "pkg").mkdir(parents=True)
    (tmp_path / "tree" / "pkg" / "a.py").write_text("")
    (tmp_path / "tree" / "data.txt").write_text("1")
    return tmp_path / "tree"


@needs_inotify
def test_imports_from_the_working_tree_are_seen_with_and_without_bytecode(tree):
    code = [sys.executable, "-c", "import pkg.a"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    with TreeReads(tree, ["pkg/a.py", "data.txt"]) as reads:
        subprocess.run(code, env=environment, check=True)
        assert reads.take() == ["pkg/a.py"]
        assert reads.take() == []
    assert (tree / "pkg" / "__pycache__").is_dir()
    with TreeReads(tree, ["pkg/a.py", "data.txt"]) as reads:
        subprocess.run(code, env=environment, check=True)
        assert reads.take() == ["pkg/a.py"]


@needs_inotify
def test_built_libraries_are_seen_and_other_files_are_not(tree):
    with TreeReads(tree, ["pkg/a.py"]) as reads:
        for name in ("fast.cpython-311-x86_64-linux-gnu.so", "lib.so.1", "results.csv", "so.txt"):
            (tree / "pkg" / name).write_text("")
        assert sorted(reads.take()) == ["pkg/fast.cpython-311-x86_64-linux-gnu.so", "pkg/lib.so.1"]


@needs_inotify
def test_listing_a_folder_is_not_reading_it(tree):
    with TreeReads(tree, ["pkg/a.py"]) as reads:
        assert list((tree / "pkg").iterdir())
        assert reads.take() == []


def test_without_inotify_nothing_is_seen(tree, monkeypatch):
    monkeypatch.setattr(file_events.ctypes, "CDLL", lambda name: object())
    with TreeReads(tree, ["pkg/a.py"]) as reads:
        (tree / "pkg" / "a.py").read_text()
        assert reads.take() == []


@needs_inotify
def test_revisions_that_run_code_of_the_working_tree_are_doubted(repository):
    with revisions(["HEAD~1", "HEAD"]) as (places, reads, _):
        own, installed = (
            make_command(f"sh {script}", places[0].folder, reads=reads) for script in ("run.sh", repository / "run.sh")
        )
        assert doubts_of(own, carry_out_command(own)) == []
        (doubt,) = doubts_of(installed, carry_out_command(installed))
    assert "it read part/run.sh of the working tree" in doubt


@needs_inotify
def test_revisions_that_run_code_of_the_checkout_of_another_are_doubted(repository):
    with revisions(["HEAD~1", "HEAD"]) as (places, reads, _):
        script = places[1].folder / "run.sh"
        installed, own = (make_command(f"sh {script}", place.folder, reads=reads) for place in places)
        (doubt,) = doubts_of(installed, carry_out_command(installed))
        assert doubts_of(own, carry_out_command(own)) == []
    assert "it read part/run.sh in the checkout of HEAD: if it is installed" in doubt


@pytest.fixture
def packaged(repository):
    """The same repository with two revisions of a package in ``src``, of which ``core`` changes."""
    package = repository.parent / "src" / "pkg"
    package.mkdir(parents=True)
    (repository.parent / "pyproject.toml").write_text("")
    for text in ("1", "2"):
        (package / "__init__.py").write_text("")
        (package / "core.py").write_text(text)
        subprocess.run(["git", "add", ".."], check=True)
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *named, "commit", "-qm", text], check=True)
    return package


@pytest.mark.slow
@needs_inotify
@pytest.mark.parametrize("bytecode", ["", "1"])
@pytest.mark.parametrize(
    ("imports", "path", "doubted"),
    [("pkg.core", "", [True, False]), ("pkg", "", [False, False]), ("pkg.core", "src", [False, False])],
)
def test_a_copy_that_is_installed_is_doubted_where_its_text_is_not_that_of_the_revision(
    packaged, tmp_path, monkeypatch, imports, path, doubted, bytecode
):
    site = tmp_path / "site-packages"
    shutil.copytree(packaged, site / "pkg")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", bytecode)
    found = []
    with revisions(["HEAD~1", "HEAD"]) as (places, _, _):
        checkouts = {each.name: each.folder.parent for each in places}
        tracked = ["pyproject.toml", "src/pkg/__init__.py", "src/pkg/core.py"]
        with TreeReads(packaged.parents[1], tracked, checkouts, [site]) as reads:
            for place in places:
                search = place.folder.parent / path if path else site
                code = f"env PYTHONPATH={search} {sys.executable} -c 'import {imports}'"
                command = make_command(code, place.folder, reads=reads)
                found.append(doubts_of(command, carry_out_command(command)))
    assert [bool(each) for each in found] == doubted
    if any(doubted):
        assert f"it read src/pkg/core.py as installed in {site}, which is not what this revision has" in found[0][0]


@pytest.mark.slow
@needs_inotify
def test_a_copy_that_is_installed_anew_for_each_process_is_its_own_revision(packaged, tmp_path):
    site = tmp_path / "site-packages"
    with revisions(["HEAD~1", "HEAD"]) as (places, _, _):
        checkouts = {each.name: each.folder.parent for each in places}
        tracked = ["pyproject.toml", "src/pkg/__init__.py", "src/pkg/core.py"]
        with TreeReads(packaged.parents[1], tracked, checkouts, [site]) as reads:
            for place in places:
                shutil.rmtree(site, ignore_errors=True)
                shutil.copytree(place.folder.parent / "src", site)
                command = make_command(f"cat {site}/pkg/core.py", place.folder, reads=reads)
                assert doubts_of(command, carry_out_command(command)) == []
            command = make_command(f"cat {site}/pkg/core.py", places[0].folder, reads=reads)
            assert len(doubts_of(command, carry_out_command(command))) == 1


def test_checkouts_of_a_killed_levelbench_are_removed(repository, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, own = tmp_path / f"levelbench-{gone.pid}-abc" / "0", tmp_path / f"levelbench-{os.getpid()}-abc" / "0"
    for folder in (left, own):
        subprocess.run(["git", "worktree", "add", "--detach", folder, "HEAD"], check=True, capture_output=True)
    with revisions(["HEAD~1", "HEAD"]):
        assert (left.parent.exists(), own.exists()) == (False, True)
