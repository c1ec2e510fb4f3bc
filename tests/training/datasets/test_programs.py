"""python-sources: which files are read, which module is in which split, and rows of tokens of a made library."""

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training import datasets
from levelbench.training.datasets import programs
from levelbench.training.datasets.programs import PythonSources

pytestmark = pytest.mark.usefixtures("own_cache")


def write(folder, **contents):
    for name, content in contents.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def library(tmp_path):
    """30 modules of one function each, a package, and what is left out."""
    modules = {f"m{at}": f"def f{at}(self):\n    return self.value{at}\n".encode() * 20 for at in range(30)}
    write(tmp_path, os=b"import sys\n", **modules, package__inner=b"x = 1\n", package__test__case=b"assert 0\n")
    return write(tmp_path, test__test_m0=b"", encodings__ascii=b"", _sysconfigdata_linux=b"", config=b"name = 0\n")


def test_tests_tables_and_files_of_the_build_are_left_out(library):
    (library / "os.txt").write_text("no source")
    found = programs.read_sources(library)
    assert set(found) == {"os.py", "config.py", "package/inner.py", *(f"m{at}.py" for at in range(30))}
    assert list(found) == sorted(found)


def test_all_files_of_a_module_and_of_those_that_share_its_code_are_in_one_split():
    names = ["json/a.py", "json/b/c.py", "profile.py", "cProfile.py", "pstats.py", "_py_abc.py", "abc.py", "_abc.py"]
    files = dict.fromkeys([*names, *(f"m{at}.py" for at in range(100))], b"")
    parts = programs.split_sources(files)
    assert sorted(name for part in parts for name in part) == sorted(files)
    for group in ({"json/a.py", "json/b/c.py"}, {"profile.py", "cProfile.py", "pstats.py"}, set(names[5:])):
        assert sum(bool(group & set(part)) for part in parts) == 1


def test_a_fifteenth_of_the_small_modules_is_held_out_for_each_and_no_large_one():
    files = {f"m{at}.py": b"" for at in range(40)} | {f"large{at}.py": bytes(1 + (1 << 16)) for at in range(40)}
    _, validation, test = programs.split_sources(files)
    assert (len(validation), len(test)) == (2, 2)
    assert not any("large" in name for name in (*validation, *test))


def test_the_labels_are_the_next_tokens_and_the_reference_is_their_bytes(library):
    data = PythonSources(library, tokens=280, length=16).load()
    files = programs.read_sources(library)
    for split in data.splits().values():
        np.testing.assert_array_equal(split.inputs[:, 1:], split.labels[:, :-1])
    trained_on = sum(len(files[name]) for name in programs.split_sources(files)[0])
    assert 0 <= trained_on - sum(data.train.reference) < 16 * 20
    assert data.classes == 280
    assert data.checksums == {"sources": programs.sources_digest(files)}


def test_an_edited_file_is_another_checksum_and_a_cached_result_is_the_same(library):
    first, again = (PythonSources(library, length=16).load() for _ in range(2))
    assert first.label_digests() == again.label_digests()
    write(library, m0=b"x = 2\n" * 20)
    edited = PythonSources(library, length=16).load()
    assert edited.checksums != first.checksums
    assert edited.label_digests() != first.label_digests()


def test_byte_pairs_are_of_the_training_split_alone(library):
    _, validation, test = programs.split_sources(programs.read_sources(library))
    before = PythonSources(library, length=16).load().train.inputs
    for name in (*validation, *test):
        (library / name).write_bytes(b"zqzqzqzq = 1\n" * 500)
    np.testing.assert_array_equal(PythonSources(library, length=16).load().train.inputs, before)


def test_a_folder_without_a_library_is_refused_with_what_to_name(tmp_path):
    with pytest.raises(MissingError, match="Lib of Python's source"):
        PythonSources().load(tmp_path)


def test_a_folder_of_too_many_files_is_refused(library, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_FILES", 5)
    with pytest.raises(DataError, match="more than 5 source files"):
        programs.read_sources(library)


def test_the_library_of_this_python_is_found():
    assert datasets.python_sources.lacks() is None
    assert "Python 3" in datasets.python_sources.where()
