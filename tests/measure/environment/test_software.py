import os
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from levelbench.measure.environment.software import (
    MALLOC_NAMES,
    THREAD_NAMES,
    commit_order,
    git,
    harmless,
    is_shallow,
    libraries,
    malloc,
    settings,
    threads,
)


def test_the_numpy_that_runs_and_its_blas_are_named():
    found = libraries()
    assert found["numpy"] == np.__version__
    assert found["blas"]["name"]
    assert found["python"]["version"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")


def test_no_framework_is_imported_to_find_its_version():
    code = (
        "import sys; from levelbench.measure.environment import capture; capture();"
        "print(sorted({'torch', 'jax', 'tensorflow', 'pynvml', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_threads_of_a_loaded_library_are_those_it_says():
    code = (
        "from levelbench.measure.environment.software import threads;"
        "print([each['threads'] for each in threads()['loaded'].values()])"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if "openblas" not in str(libraries()["blas"]["name"]):
        pytest.skip("numpy is built on another BLAS here")
    assert done.stdout.strip() == "[1]"


def test_torch_is_asked_only_if_it_is_loaded(monkeypatch):
    fake = types.SimpleNamespace(get_num_threads=lambda: 7, get_num_interop_threads=lambda: 3)
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert threads()["torch"] == {"threads": 7, "interop": 3}
    monkeypatch.delitem(sys.modules, "torch")
    assert "torch" not in threads()


def test_allocator_and_thread_settings_are_recorded_where_they_belong():
    environment = {"MALLOC_TOP_PAD_": "67108864", "OMP_NUM_THREADS": "2", "HOME": "/home/ada"}
    assert malloc(environment) == {"MALLOC_TOP_PAD_": "67108864"}
    assert threads(environment)["settings"] == {"OMP_NUM_THREADS": "2"}


def test_a_preloaded_library_is_named_without_its_folder():
    environment = {"LD_PRELOAD": "/home/ada/lib/libjemalloc.so.2:/opt/x/libtcmalloc.so"}
    assert malloc(environment) == {"LD_PRELOAD": "libjemalloc.so.2:libtcmalloc.so"}


SPEED = [
    "OMP_NUM_THREADS", "MKL_CBWR", "OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "JAX_DISABLE_JIT",
    "JAX_ENABLE_X64", "TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE", "XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS",
    "NPY_DISABLE_CPU_FEATURES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "PYTHONTRACEMALLOC", "PYTHONHASHSEED",
]  # fmt: skip


@pytest.mark.parametrize("name", SPEED)
def test_what_speed_depends_on_is_a_setting_and_none_of_an_allocator(name):
    assert threads({name: "1"})["settings"] == {name: "1"}
    assert malloc({name: "1"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "TORCHELASTIC_RUN_ID",
        "TORCH_LOGS",
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_CLI_CONFIG_FILE",
        "TRITON_CACHE_DIR",
        "KMP_INIT_AT_FORK",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "HOME",
    ],
)
def test_what_speed_does_not_depend_on_is_not_recorded(name):
    assert malloc({name: "1"}) | threads({name: "1"})["settings"] == {}


@pytest.mark.slow
def test_tracing_of_memory_and_a_lower_priority_are_in_the_environment():
    code = (
        "import os; os.nice(3); from levelbench.measure.environment import capture; found = capture();"
        "print(found['libraries']['python']['traced'], found['threads']['niceness'])"
    )
    environment = {**os.environ, "PYTHONTRACEMALLOC": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(os.nice(0) + 3)]


@pytest.mark.slow
@example_settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text()), st.sampled_from(SPEED))
def test_nothing_but_names_on_which_speed_depends_is_ever_recorded(environment, name):
    environment = {**environment, "API_TOKEN": "secret", "TORCH_TOKEN": "secret", name: "/home/ada/secret/last"}
    found = malloc(environment) | threads(environment)["settings"]
    assert all(MALLOC_NAMES.fullmatch(each) or THREAD_NAMES.fullmatch(each) for each in found)
    assert "TORCH_TOKEN" not in found
    assert re.fullmatch("#[0-9a-f]{4}", found[name])
    assert "secret" not in found.values()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_NUM_THREADS", "4,2"),
        ("OMP_PLACES", "{0:4},{4:4}"),
        ("OMP_PROC_BIND", "close"),
        ("GOMP_CPU_AFFINITY", "0-3 8"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.top_pad=0x4000000"),
        ("MALLOC_CONF", "background_thread:true,dirty_decay_ms:-1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128"),
        ("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"),
    ],
)
def test_numbers_and_known_words_are_recorded_as_they_are(name, value):
    assert malloc({name: value}) | threads({name: value})["settings"] == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,1", r"#[0-9a-f]{4},1"),
        ("XLA_FLAGS", "--xla_dump_to=/home/eve/ada --xla_gpu_autotune_level=2",
         r"--xla_dump_to=#[0-9a-f]{4} --xla_gpu_autotune_level=2"),
        ("MALLOC_CONF", "prof:true,prof_prefix:ada", r"prof:true,#[0-9a-f]{4}:#[0-9a-f]{4}"),
    ],
)  # fmt: skip
def test_anything_else_becomes_a_short_digest_by_which_values_differ(name, value, kept):
    found = kept_of(name, value)
    assert re.fullmatch(kept, found)
    assert harmless(found) == found
    assert kept_of(name, value.replace("ada", "eve").replace("8932", "1111")) != found


def kept_of(name, value):
    return settings({name: value}, re.compile(name))[name]


@example_settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_what_is_harmless_stays_as_it_is(value):
    assert harmless(harmless(value)) == harmless(value)


@pytest.fixture
def repository(tmp_path):
    def run(*words):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    run("init", "-q")
    run("config", "user.email", "ada@example.org")
    run("config", "user.name", "Ada")
    run("config", "commit.gpgsign", "false")
    (tmp_path / "task.py").write_text("a = 1\n")
    return tmp_path, run


def test_a_clean_repository_is_its_commit(repository):
    folder, run = repository
    run("add", "task.py")
    run("commit", "-qm", "first")
    found = git(folder)
    assert len(found["commit"]) == 40
    assert (found["dirty"], found["changes"], found["reason"]) == (False, None, None)


def test_another_edit_has_another_digest_and_the_same_edit_the_same(repository):
    folder, run = repository
    run("add", "task.py")
    run("commit", "-qm", "first")
    digests = []
    for line in ("a = 2\n", "a = 3\n", "a = 2\n"):
        (folder / "task.py").write_text(line)
        found = git(folder)
        assert found["dirty"] is True
        digests.append(found["changes"])
    assert digests[0] == digests[2] != digests[1]


def test_a_new_file_makes_a_repository_dirty(repository):
    folder, run = repository
    run("add", "task.py")
    run("commit", "-qm", "first")
    (folder / "new.py").write_text("")
    assert git(folder)["dirty"] is True


def test_records_that_are_written_into_a_repository_do_not_make_it_dirty(repository):
    folder, run = repository
    run("add", "task.py")
    run("commit", "-qm", "first")
    store = folder / "results" / "runs"
    store.mkdir(parents=True)
    (store / "run.jsonl").touch()
    assert git(folder)["dirty"] is True
    assert git(folder, apart=store)["dirty"] is False
    (folder / "results" / "new.py").touch()
    assert git(folder, apart=store)["dirty"] is True
    assert git(folder, apart=folder)["dirty"] is True


def test_a_repository_without_a_commit_says_so(repository):
    found = git(repository[0])
    assert (found["commit"], found["reason"]) == (None, "the repository has no commit yet")


def test_a_repositorys_own_helpers_are_not_run(repository):
    folder, run = repository
    run("add", "task.py")
    run("commit", "-qm", "first")
    helper = folder / ".git" / "helper"
    helper.write_text(f"#!/bin/sh\ntouch {folder / '.git' / 'was-run'}\n")
    helper.chmod(0o755)
    run("config", "core.fsmonitor", str(helper))
    run("config", "diff.external", str(helper))
    (folder / "task.py").write_text("a = 2\n")
    assert git(folder)["dirty"] is True
    assert not (folder / ".git" / "was-run").exists()


def test_commits_are_in_their_order_without_those_that_the_repository_does_not_know(repository):
    folder, run = repository
    run("add", "task.py")
    commits = []
    for at in range(3):
        run("commit", "--allow-empty", "-qm", f"{at}")
        commits.append(git(folder)["commit"])
    found = commit_order(folder, [commits[2], "f" * 40, commits[0], "--all", commits[1]])
    assert sorted(found, key=found.__getitem__) == commits
    assert commit_order(folder / "nowhere", commits) == {}


def test_a_clone_without_the_older_commits_is_shallow(repository, tmp_path):
    folder, run = repository
    for at in range(2):
        run("commit", "--allow-empty", "-qm", f"{at}")
    run("clone", "-q", "--depth", "1", f"file://{folder}", str(tmp_path / "shallow"))
    assert [is_shallow(each) for each in (tmp_path / "shallow", folder, tmp_path / "nowhere")] == [True, False, False]


def test_a_folder_outside_any_repository_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert git(tmp_path)["reason"] == "not in a git repository"


def test_a_machine_without_git_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git(tmp_path)["reason"].startswith("git is not installed")


def test_a_git_that_hangs_is_given_up(tmp_path, monkeypatch):
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert git(tmp_path, timeout_s=0.05)["reason"] == "git did not answer within 0.05 s"
