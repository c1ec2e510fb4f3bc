"""Whatever a compiler, disk or path does, either the library is right or an error says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from levelbench.errors import DefinitionError, MissingError, StoreError, UsageError
from levelbench.operators.custom import compile as compiling
from levelbench.operators.custom import load_file
from levelbench.operators.custom.compile import cache_folder, compile_source, dependencies

pytestmark = pytest.mark.sampled(3)

PLAIN = 'extern "C" __attribute__((visibility("default"))) int answer() { return %s; }\n'
OPERATOR = """#include <levelbench.h>
struct Copy {
  static constexpr auto inputs = "x";
  static constexpr auto outputs = "y";
  template <class T> void forward(const levelbench::Forward& call) const { call.output<T>()[0] = call.input<T>()[0]; }
};
LEVELBENCH_OPERATOR(Copy, float)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    def write(text, name="operator.cpp"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Write a program that replaces the compiler."""

    def install(text, mode=0o755):
        path = tmp_path / "fake-compiler"
        path.write_text(text)
        path.chmod(mode)
        monkeypatch.setenv("CXX", str(path))

    compiling._identity.cache_clear()
    return install


ASKED = '#!/bin/sh\ncase "$*" in *-dM*) exit 0;; esac\n'
"""Answers queries about itself."""


def answer(library):
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).answer())"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH"])
def test_folders_in_the_environment_make_a_different_library(source, monkeypatch, variable):
    path = source("#include <value.h>\n" + PLAIN % "VALUE")
    found = []
    for value in (1, 2):
        header = source(f"#define VALUE {value}\n", f"folder{value}/value.h")
        monkeypatch.setenv(variable, str(header.parent))
        found.append(answer(compile_source(path)))
    assert found == [1, 2]


def test_a_changed_header_in_a_system_folder_is_noticed(source, monkeypatch):
    path = source("#include <value.h>\n" + PLAIN % "VALUE")
    header = source("#define VALUE 1\n", "system/value.h")
    monkeypatch.setenv("LEVELBENCH_CXXFLAGS", f"-isystem {header.parent}")
    assert answer(compile_source(path)) == 1
    source("#define VALUE 2\n", "system/value.h")
    assert answer(compile_source(path)) == 2


def test_a_header_edited_during_compilation_is_compiled_again(source, monkeypatch):
    path = source('#include "value.h"\n' + PLAIN % "VALUE")
    header = source("#define VALUE 1\n", "value.h")
    run, edits = subprocess.run, ["#define VALUE 2\n"]

    def edited(words, **keywords):
        done = run(words, **keywords)
        if "-shared" in words and edits:
            os.utime(path, ns=(1, 1))
            while header.stat().st_mtime_ns <= Path(words[words.index("-o") + 1]).stat().st_mtime_ns:
                header.write_text(edits[0])
            edits.pop()
        return done

    monkeypatch.setattr(subprocess, "run", edited)
    first = compile_source(path)
    second = compile_source(path)
    assert (answer(first), answer(second)) == (1, 2)
    assert compile_source(path) == second


@pytest.mark.parametrize("name", ["a#b", "a b", "a$b", "a:b", "a\\b", "a\\ b", 'a"b', "a%b", "ä", "a\\#b"])
def test_files_with_any_path_are_compiled_once_and_again_when_a_header_changes(source, name):
    path = source(f'#include "value {name[0]}.h"\n' + PLAIN % "VALUE", f"{name}/it.cpp")
    source("#define VALUE 1\n", f"{name}/value {name[0]}.h")
    first = compile_source(path)
    assert compile_source(path) == first
    source("#define VALUE 2\n", f"{name}/value {name[0]}.h")
    assert compile_source(path) != first


def test_an_error_in_a_path_with_a_colon_has_its_line(source):
    with pytest.raises(DefinitionError, match=r"co:lon/it.cpp:2: .*nothing"):
        compile_source(source("\nint x = nothing;\n", "co:lon/it.cpp"))


def test_file_names_in_a_make_rule_are_unescaped():
    rule = b"made: /a\\ b\\#c$$d:e \\\n /x\\\\\\ y /z\\w\n"
    assert [*map(str, dependencies(rule))] == ["/a b#c$d:e", "/x\\ y", "/z\\w"]


def test_an_error_in_a_users_header_is_shown_with_its_line(source):
    path = source('#include "mine.h"\n' + OPERATOR)
    header = source("\n\nint value = nothing;\n", "mine.h")
    with pytest.raises(DefinitionError) as error:
        compile_source(path)
    assert f"{header}:3: " in error.value.found
    assert "int value = nothing;" in error.value.found


def test_an_undefined_function_is_named(source):
    path = source("int nowhere(int);\n" + PLAIN % "nowhere(1)")
    with pytest.raises(DefinitionError, match=r"nowhere\(int\).* nowhere defined"):
        compile_source(path)


@pytest.mark.parametrize(
    "text", [b"\n// \xe9\nint f() { return \xe9\xe8; }\n", b'static_assert(false, "\xe9t\xe9");\n']
)
def test_compiler_output_in_other_encodings_is_shown(source, text):
    with pytest.raises(DefinitionError, match=r"operator.cpp:\d"):
        compile_source(source(text))


def test_a_truncated_library_is_rebuilt(source):
    path = source(PLAIN % 7)
    library = compile_source(path)
    library.write_bytes(library.read_bytes()[:1000])
    assert answer(compile_source(path)) == 7


def test_a_lock_that_cannot_be_written_is_a_store_error(source):
    path = source(PLAIN % 1)
    compile_source(path)
    for each in cache_folder().iterdir():
        each.unlink()
        if each.suffix == ".lock":
            each.mkdir()
    with pytest.raises(StoreError, match="XDG_CACHE_HOME"):
        compile_source(path)


def test_a_full_disk_is_a_store_error(source, monkeypatch, fake):
    def full(self, *_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match="No space left"):
            compile_source(source(PLAIN % 1))
    fake(ASKED + 'echo "fatal error: error writing to x.s: No space left on device" >&2; exit 1\n')
    with pytest.raises(StoreError, match="No space left"):
        compile_source(source(PLAIN % 1))


def test_a_compiler_that_writes_nothing_is_an_error(source, fake):
    fake(ASKED + "exit 0\n")
    with pytest.raises(MissingError, match="succeeded but wrote no library"):
        compile_source(source(PLAIN % 1))


def test_a_compiler_that_is_not_a_program_is_an_error(source, fake):
    fake("\x7fELF nonsense")
    with pytest.raises(MissingError, match="cannot be run"):
        compile_source(source(PLAIN % 1))
    fake("#!/bin/sh\n", mode=0o644)
    with pytest.raises(MissingError, match="that can be run"):
        compile_source(source(PLAIN % 1))


@pytest.mark.parametrize("variable", ["CXX", "LEVELBENCH_CXXFLAGS"])
def test_unclosed_quotes_are_a_usage_error(source, monkeypatch, variable):
    monkeypatch.setenv(variable, "-DX='1")
    with pytest.raises(UsageError, match=variable):
        compile_source(source(PLAIN % 1))


def test_a_constructor_that_throws_a_number_does_not_crash(source):
    text = OPERATOR.replace("struct Copy {", "struct Copy {\n  Copy() { throw 5; }")
    with pytest.raises(DefinitionError, match="no std::exception"):
        load_file(source(text))


@pytest.mark.parametrize("at", [-1, 1])
def test_the_type_of_an_input_that_does_not_exist_is_refused(source, at):
    text = OPERATOR.replace("struct Copy {", f"struct Copy {{\n  static constexpr int typed_by = {at};")
    with pytest.raises(DefinitionError, match=f"typed_by is {at}"):
        load_file(source(text))
