"""A file is compiled once for the same contents, and an error in it is shown with its line."""

import subprocess
import sys
from pathlib import Path

import pytest

from levelbench.errors import DefinitionError, MissingError, StoreError, UnsupportedError
from levelbench.operators.custom import compile as compiling
from levelbench.operators.custom import load_file
from levelbench.operators.custom.compile import cache_folder, compile_source

pytestmark = pytest.mark.sampled(3)

GOOD = """#include <levelbench.h>
struct Copy {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const levelbench::Forward& call) const {
    for (int64_t i = 0; i < call.input<T>().size(); ++i) call.output<T>()[i] = call.input<T>()[i];
  }
};
LEVELBENCH_OPERATOR(Copy, float)
"""
# A file without the header compiles in an instant, and the cache does not depend on its contents.
PLAIN = 'extern "C" int answer() { return %d; }\n'


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    def write(text, name="operator.cpp"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
def compilations(monkeypatch):
    """The commands that were run to compile."""
    run, seen = subprocess.run, []

    def noted(words, **keywords):
        if "-shared" in words:
            seen.append(words)
        return run(words, **keywords)

    monkeypatch.setattr(compiling.subprocess, "run", noted)
    return seen


def test_the_same_file_is_compiled_once(source, compilations):
    path = source(PLAIN % 1)
    assert compile_source(path) == compile_source(path)
    assert len(compilations) == 1


def test_a_changed_file_is_compiled_again_under_another_name(source, compilations):
    first = compile_source(source(PLAIN % 1))
    second = compile_source(source(PLAIN % 2))
    assert first != second
    assert first.is_file()
    assert compile_source(source(PLAIN % 1)) == first
    assert len(compilations) == 2


def test_a_changed_included_file_is_noticed(source, compilations):
    path = source('#include "other.h"\n' + PLAIN % 1)
    source("// one\n", "other.h")
    first = compile_source(path)
    assert compile_source(path) == first
    source("// two\n", "other.h")
    assert compile_source(path) != first
    assert len(compilations) == 2


@pytest.mark.parametrize("change", ["flags", "environment"])
def test_different_flags_make_a_different_library(source, monkeypatch, change):
    path = source(PLAIN % 1)
    first = compile_source(path)
    if change == "environment":
        monkeypatch.setenv("LEVELBENCH_CXXFLAGS", "-DX=1")
    assert compile_source(path, flags=("-DX=2",) if change == "flags" else ()) != first


def test_a_deleted_library_is_rebuilt(source, compilations):
    path = source(PLAIN % 1)
    compile_source(path).unlink()
    assert compile_source(path).is_file()
    assert len(compilations) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"library": "../../x.so", "files": {}}', '{"library": 3}'])
def test_a_damaged_note_is_ignored(source, text):
    path = source(PLAIN % 1)
    library = compile_source(path)
    (note,) = cache_folder().glob("*.json")
    note.write_text(text)
    assert compile_source(path) == library


def test_concurrent_processes_compile_one_library(source, tmp_path):
    path = source(PLAIN % 1)
    code = (
        "import pathlib, sys\nfrom levelbench.operators.custom.compile import compile_source\n"
        "print(compile_source(pathlib.Path(sys.argv[1])))"
    )
    words = [sys.executable, "-c", code, str(path)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {each.communicate()[0].strip() for each in started}
    assert all(each.returncode == 0 for each in started)
    assert len(found) == 1
    assert len(list(cache_folder().glob("*.so"))) == 1
    assert Path(found.pop()).is_file()


def test_only_libraries_and_notes_stay_in_the_cache(source):
    with pytest.raises(DefinitionError):
        compile_source(source("int x = y;\n"))
    compile_source(source(PLAIN % 1))
    assert {each.suffix for each in cache_folder().iterdir()} == {".so", ".json", ".lock"}


def test_the_cache_is_private_to_its_owner():
    assert cache_folder().stat().st_mode & 0o077 == 0


def test_a_cache_that_cannot_be_created_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="XDG_CACHE_HOME"):
        cache_folder()


def test_an_error_is_shown_with_the_users_own_line(source):
    path = source(GOOD.replace("call.output<T>()[i] = call", "call.output<T>()[i] = cull"))
    with pytest.raises(DefinitionError) as error:
        compile_source(path)
    assert f"{path}:6: " in error.value.found
    assert "cull" in error.value.found.splitlines()[0]
    assert "for (int64_t i = 0;" in error.value.found.splitlines()[1]
    assert "error:" in error.value.trace


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (") const {", ") {", "write: template <class T> void forward"),
        ("};\n", "  double cost(int) const { return 0; }\n};\n", "write: levelbench::Cost cost"),
        ("};\n", "  template <class T> void backward(T) const {}\n};\n", "write: template <class T> void backward"),
    ],
    ids=["forward", "cost", "backward"],
)
def test_a_malformed_member_is_refused_at_the_operators_line(source, old, new, text):
    path = source(GOOD.replace(old, new))
    with pytest.raises(DefinitionError) as error:
        compile_source(path)
    assert text in error.value.found
    assert "LEVELBENCH_OPERATOR(Copy, float)" in error.value.found


def test_a_file_that_does_not_exist_is_missing(tmp_path):
    with pytest.raises(MissingError, match="No such file"):
        compile_source(tmp_path / "none.cpp")


def test_a_compiler_that_does_not_exist_is_missing(source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingError, match="no no-such-compiler on the path"):
        compile_source(source(PLAIN % 1))


def test_cuda_is_compiled_only_with_nvcc_and_a_gpu(source, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho nvcc\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    if (Path("/usr/bin/nvidia-smi")).exists():
        pytest.skip("there is a GPU")
    with pytest.raises(UnsupportedError, match="no GPU"):
        compile_source(source(PLAIN % 1), cuda=True)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingError, match="nvcc"):
        compile_source(source(PLAIN % 1), cuda=True)


def test_a_file_without_an_operator_is_an_error(source):
    with pytest.raises(DefinitionError, match="it defines no operator"):
        load_file(source("#include <levelbench.h>\n"))


def test_a_file_without_the_header_is_an_error(source):
    with pytest.raises(DefinitionError, match=r"[Ii]nclude levelbench.h"):
        load_file(source(PLAIN % 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "text"),
    [
        ('static constexpr auto examples = "4x8, 2";', "does not give 1 shapes"),
        ('explicit Copy(levelbench::Attributes&) { throw std::runtime_error("never"); }', "its own defaults: never"),
    ],
)
def test_errors_that_show_only_on_loading_are_definition_errors(source, member, text):
    with pytest.raises(DefinitionError, match=text):
        load_file(source(GOOD.replace("struct Copy {", "struct Copy {\n  " + member)))
