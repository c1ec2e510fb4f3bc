"""What a task's file does while it is imported is seen, and quick probes look at it before its first run."""

import dataclasses
import gc
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.experiments.campaigns import NUMPY, Quiet, carry_out, plan_of

from levelbench.errors import DefinitionError, LevelbenchError, RecordError
from levelbench.experiments import own_code, recipe_checks
from levelbench.experiments.importing import Importing
from levelbench.experiments.off_clock import import_doubts
from levelbench.experiments.own_code import is_ours, replaced_code
from levelbench.experiments.recipe_checks import quick_doubts
from levelbench.experiments.request import load_task, load_watched, resolve, variables_of
from levelbench.records import group_runs, summarise
from levelbench.records.comparable import comparable
from levelbench.records.witness import CHANCE, UNTRAINED, witness_contradictions
from levelbench.training import Top1, datasets
from levelbench.training.probes.bench import same_numbers

pytestmark = pytest.mark.sampled(3)

BURNING = """
import time
until = time.process_time() + 0.4
while time.process_time() < until:
    pass
"""


def test_an_ordinary_task_does_nothing_while_it_is_imported(task_with):
    _, seen = load_watched(task_with("import json, csv, wave\n"))
    assert (seen.opened, seen.started, seen.threads) == ([], [], 0)
    assert import_doubts(seen, wall_s=0.01) == []


@pytest.mark.parametrize(
    "more",
    [
        "datasets.digits.load()\n",
        "import numpy as np\nnp.load(__file__.replace('with_more.py', 'kept.npz'))\n",
        "from pathlib import Path\nPath(__file__).with_name('large').read_bytes()\n",
    ],
    ids=["dataset", "array", "large file"],
)
def test_data_that_is_opened_at_import_is_refused(task_with, tmp_path, more):
    np.savez(tmp_path / "kept.npz", weight=np.zeros(3))
    (tmp_path / "large").write_bytes(bytes(70_000))
    with pytest.raises(DefinitionError, match="it opens data while it is imported, before any clock runs"):
        load_task(task_with(more))


def test_data_that_a_module_beside_the_file_opens_is_refused(task_with, tmp_path, monkeypatch):
    (tmp_path / "helper_of_task.py").write_text("from levelbench.training import datasets\ndatasets.digits.load()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DefinitionError, match="it opens data"):
        load_task(task_with("import helper_of_task\n"))


def test_a_small_text_that_a_task_reads_is_no_data(task_with, tmp_path):
    (tmp_path / "words.txt").write_text("a b c")
    load_task(task_with("from pathlib import Path\nPath(__file__).with_name('words.txt').read_text()\n"))


def test_a_file_that_is_opened_after_the_import_is_nothing_to_it(task_with):
    load_task(task_with("")).data.load()


def test_a_process_that_is_started_at_import_is_refused(task_with):
    with pytest.raises(DefinitionError, match="it starts a process while it is imported"):
        load_task(task_with("import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])\n"))


_CHILD = "import os, sys, time\nfrom multiprocessing.util import spawnv_passfds\n" + (
    "spawnv_passfds(os.fsencode(sys.executable), [sys.executable, '-c', 'import time; time.sleep(1)'], [])\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("import signal\nsignal.signal(signal.SIGUSR2, lambda *_: None)\n", "a signal handler"),
        ("import gc\ndef later(*_): pass\ngc.callbacks.append(later)\n", "a callback of the garbage collector"),
        ("import sys\nclass Finder:\n    def find_spec(*_): pass\nsys.meta_path.append(Finder())\n", "an import hook"),
        (_CHILD, "it starts a process while it is imported"),
        ("import sqlite3\nsqlite3.connect(__file__.replace('with_more.py', 'large'))\n", "it opens data"),
    ],
)
def test_what_could_work_before_the_clock_without_being_called_is_refused(task_with, tmp_path, more, found):
    before = [*gc.callbacks], [*sys.meta_path], signal.getsignal(signal.SIGUSR2)
    (tmp_path / "large").write_bytes(bytes(70_000))
    try:
        with pytest.raises(DefinitionError, match=found):
            load_task(task_with(more))
    finally:
        gc.callbacks[:], sys.meta_path[:] = before[:2]
        signal.signal(signal.SIGUSR2, before[2])


@pytest.mark.slow
def test_a_package_that_is_imported_by_name_is_a_packages_doing(task_with):
    work = "import time\nuntil = time.process_time() + 0.4\nwhile time.process_time() < until: pass\n"
    _, seen = load_watched(task_with("import importlib\nimportlib.import_module('xml.dom.pulldom')\n"))
    assert seen.cpu_s < 0.1
    _, seen = load_watched(task_with(work))
    assert seen.cpu_s >= 0.39


def test_processor_time_between_the_import_and_the_clock_is_a_doubt():
    (found,) = import_doubts(Importing(rest_s=2.0), wall_s=10.0)
    assert found.startswith("2 s of processor time went by between the import of its task file and its clock")
    assert import_doubts(Importing(rest_s=0.09), wall_s=10.0) == []


def test_a_machine_on_which_all_takes_longer_accuses_no_file():
    assert import_doubts(Importing(cpu_s=0.011, usual_s=0.0012), wall_s=0.1) == []
    assert import_doubts(Importing(cpu_s=0.011, usual_s=0.0004), wall_s=0.1) != []
    assert import_doubts(Importing(rest_s=0.15, watching_s=0.04), wall_s=0.5) == []
    assert import_doubts(Importing(rest_s=0.15, watching_s=0.01), wall_s=0.5) != []


def test_what_a_plain_file_and_the_watching_take_is_measured_with_each_import(task_with):
    _, seen = load_watched(task_with(""))
    assert 0 < seen.usual_s < 0.1
    assert 0 < seen.watching_s < 1


def test_a_part_of_levelbench_that_a_file_is_the_first_to_use_is_not_its_doing(task_with, tmp_path, monkeypatch):
    (tmp_path / "late.py").write_text(BURNING + "def made(): pass\n")
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(tmp_path)])
    monkeypatch.setitem(datasets._SOURCES, "late", ("late", "made"))
    _, seen = load_watched(task_with("datasets.source('late')\n"))
    sys.modules.pop("levelbench.training.datasets.late", None)
    assert seen.imports_cpu_s >= 0.4 > seen.cpu_s


def test_compiling_a_long_file_is_not_the_files_doing(task_with):
    _, seen = load_watched(task_with("".join(f"def unused_{at}(x):\n    return x + {at}\n" for at in range(3000))))
    assert seen.imports_cpu_s > seen.cpu_s


@pytest.mark.slow
def test_processor_time_at_import_is_a_doubt_and_in_the_record(task_with, store):
    arm = resolve(task_with(BURNING), {}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    before = record.header.environment["before_clock"]
    # Other threads of this process may take a part of what it burns.
    assert before["task_cpu_s"] >= 0.2
    assert before["cpu_s"] >= before["task_cpu_s"] + before["task_imports_cpu_s"]
    assert any("of processor time before its clock started" in each for each in record.end.suspect)


def test_processor_time_at_import_is_no_doubt_where_the_run_is_much_longer():
    assert import_doubts(Importing(cpu_s=0.5), wall_s=100.0) == []
    assert import_doubts(Importing(cpu_s=0.5), wall_s=5.0) != []
    assert import_doubts(Importing(cpu_s=0.004), wall_s=0.01) == []


def test_what_a_package_does_while_the_file_imports_it_is_not_the_files_doing(task_with):
    _, seen = load_watched(task_with("import statistics, xml.dom.minidom\n"))
    assert seen.cpu_s < 0.1
    assert seen.imports_cpu_s >= 0


@pytest.mark.slow
@pytest.mark.parametrize("through_a_helper", [False, True], ids=["by the file", "by a module next to it"])
def test_a_package_in_any_site_folder_is_no_code_of_the_file(task_with, tmp_path, monkeypatch, through_a_helper):
    site = tmp_path / "elsewhere" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "table.csv").write_bytes(bytes(70_000))
    (site / "heavy_elsewhere.py").write_text(
        BURNING + "from pathlib import Path\nPath(__file__).with_name('table.csv').read_bytes()\n"
    )
    (tmp_path / "helper_of_heavy.py").write_text("import heavy_elsewhere\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.syspath_prepend(tmp_path)
    # It was on the path as the process began.
    monkeypatch.setattr(own_code, "_INSTALLED", (*own_code._INSTALLED, site))
    _, seen = load_watched(task_with("import helper_of_heavy\n" if through_a_helper else "import heavy_elsewhere\n"))
    for name in ("heavy_elsewhere", "helper_of_heavy"):
        sys.modules.pop(name, None)
    assert seen.opened == []
    assert seen.imports_cpu_s >= 0.4 > seen.cpu_s


def test_a_relative_import_in_a_task_file_is_told_what_to_do_instead(task_with):
    with pytest.raises(DefinitionError, match="entry point of the package"):
        load_task(task_with("from .nets import net\n"))


def test_a_folder_that_the_file_calls_a_site_folder_is_its_own(task_with, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "weights.npz").write_bytes(bytes(70_000))
    (site / "heavy_of_the_file.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('weights.npz').read_bytes()\n"
    )
    with pytest.raises(DefinitionError, match=r"weights\.npz"):
        load_task(task_with(f"import sys\nsys.path.insert(0, {str(site)!r})\nimport heavy_of_the_file\n"))
    sys.modules.pop("heavy_of_the_file", None)


def test_threads_that_are_left_running_are_a_doubt(task_with):
    more = "import threading\ndone = threading.Event()\nthreading.Thread(target=done.wait, daemon=True).start()\n"
    task, seen = load_watched(task_with(more))
    found = import_doubts(seen, wall_s=1.0)
    __import__("sys").modules[task.recipe_function("small").__module__].done.set()
    assert found == ["its task file started 1 thread before its clock: start none there"]


def test_a_thread_that_goes_around_threading_is_counted(task_with):
    _, seen = load_watched(task_with("import _thread, time\n_thread.start_new_thread(time.sleep, (0.01,))\n"))
    assert seen.threads == 1


def test_what_an_object_does_when_it_is_thrown_away_is_the_files_doing(task_with):
    more = """
class Later:
    def __init__(self):
        self.me = self

    def __del__(self):
        datasets.digits.load()


Later()
"""
    with pytest.raises(DefinitionError, match="opens data while it is imported"):
        load_watched(task_with(more))


def test_a_function_of_python_that_the_file_replaces_is_named(task_with, monkeypatch):
    monkeypatch.setattr(gc, "isenabled", gc.isenabled)
    load_watched(task_with("import gc\ngc.isenabled = lambda: True\n"))
    assert "Python's own gc.isenabled was replaced by code in with_more.py: run it without" in replaced_code()


def test_an_audit_hook_is_refused(task_with):
    # Such a hook can never be taken away again.
    more = "import sys\nsys.addaudithook(lambda event, arguments: None)\n"
    with pytest.raises(DefinitionError, match="leaves an audit hook behind"):
        load_watched(task_with(more))


_AT_IMPORT = "import json\nfrom pathlib import Path\nCONF = json.loads((Path(__file__).parent / {!r}).read_text())\n"

_IN_RECIPE = """
import json
from pathlib import Path


@task.recipe
def from_file(epochs: int = 2):
    lr = json.loads((Path(__file__).parent / {!r}).read_text())["lr"]
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [_AT_IMPORT, _IN_RECIPE], ids=["import", "recipe"])
@pytest.mark.parametrize("name", ["conf.json", "../conf/base.json", "link.json"])
def test_a_run_is_made_again_where_a_file_of_settings_has_changed(task_with, store, tmp_path, more, name):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "tasks" / "link.json").symlink_to("../conf/base.json")
    conf = tmp_path / "tasks" / name
    conf.write_text('{"lr": 0.05}')
    word = task_with(more.format(name), "tasks/with_more.py")
    arm = resolve(word, {"recipe": "from_file"} if more is _IN_RECIPE else {}, NUMPY)
    first = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert list(first.end.environment_after["settings_files"]) == [name]
    assert not plan_of([arm], range(1), store).to_go
    if name == "link.json":
        conf.unlink()
        conf.symlink_to("../conf/other.json")
    conf.write_text('{"lr": 0.01}')
    plan = plan_of([arm], range(1), store)
    assert plan.to_go
    assert any(f"what the task reads has changed since: {name}" in line for line in plan.lines())
    second = carry_out(plan, store, None, Quiet())[0, 0]
    assert len(group_runs([first, second])) == 2


@pytest.mark.slow
def test_a_run_that_replaces_others_knows_how_the_first_began_unless_its_settings_have_changed(
    task_with, store, tmp_path
):
    conf = tmp_path / "conf.json"
    conf.write_text('{"lr": 0.05}')
    arm = resolve(task_with(_IN_RECIPE.format("conf.json")), {"recipe": "from_file"}, NUMPY)
    first = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert "first_run_began_at" not in first.header.environment
    untrained = next(each.value for each in first.measurements if each.name == UNTRAINED)
    for _ in range(2):
        again = carry_out(plan_of([arm], range(1), store, fresh=True), store, None, Quiet())[0, 0]
        assert again.header.environment["first_run_began_at"] == untrained
    conf.write_text('{"lr": 0.01}')
    changed = carry_out(plan_of([arm], range(1), store, fresh=True), store, None, Quiet())[0, 0]
    assert "first_run_began_at" not in changed.header.environment


_DYNAMIC = """
import importlib, importlib.util, runpy
from pathlib import Path

HERE = Path(__file__).parent
CONF = {}
AT_IMPORT


def load_by_path(path):
    spec = importlib.util.spec_from_file_location("by_path", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Late(Momentum):
    def update(self, parameter, gradient, state, step, lr):
        if step == 1:
            IN_TRAINING
        return super().update(parameter, gradient, state, step, lr)


@task.recipe
def dynamic(epochs: int = 2):
    IN_RECIPE
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Late(0.05), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("AT_IMPORT", "exec((HERE / 'models' / 'own.py').read_text(), CONF)"),
        ("IN_RECIPE", "importlib.import_module('models.' + 'own')"),
        ("IN_RECIPE", "__import__('models.own')"),
        ("IN_RECIPE", "runpy.run_path(str(HERE / 'models' / 'own.py'))"),
        ("IN_RECIPE", "load_by_path(HERE / 'models' / 'own.py')"),
        ("IN_TRAINING", "importlib.import_module('models.' + 'own')"),
        ("IN_TRAINING", "(HERE / 'models' / 'own.py').read_text()"),
    ],
    ids=["exec", "import_module", "__import__", "run_path", "by path", "late import", "late text"],
)
def test_a_run_is_made_again_where_code_that_it_loads_has_changed(task_with, store, tmp_path, where, how):
    (tmp_path / "models").mkdir()
    own = tmp_path / "models" / "own.py"
    own.write_text("LR = 0.05\n")
    word = task_with(_with(where, how))
    arm = resolve(word, {"recipe": "dynamic"}, NUMPY)
    first = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert list(first.end.environment_after["settings_files"]) == ["models/own.py"]
    assert not plan_of([arm], range(1), store).to_go
    own.write_text("LR = 0.01\n")
    plan = plan_of([arm], range(1), store)
    assert any("what the task reads has changed since: models/own.py" in line for line in plan.lines())
    second = carry_out(plan, store, None, Quiet())[0, 0]
    assert len(group_runs([first, second])) == 2


def _with(where, how):
    text = _DYNAMIC.replace(where, how)
    return text.replace("AT_IMPORT", "").replace("IN_TRAINING", "pass").replace("IN_RECIPE", "pass")


@pytest.mark.slow
def test_code_and_texts_that_the_run_writes_itself_are_not_settings(task_with, store, tmp_path):
    code = "(HERE / 'new.tmp').write_text(str(id(HERE))); (HERE / 'new.tmp').replace(HERE / 'own.py')"
    log = "log = (HERE / 'log.txt').open('a'); log.write('7'); log.close(); (HERE / 'log.txt').read_text()"
    word = task_with(_with("IN_TRAINING", f"{code}; runpy.run_path(str(HERE / 'own.py')); {log}"))
    arm = resolve(word, {"recipe": "dynamic"}, NUMPY)
    (tmp_path / "log.txt").write_text("6\n")
    (tmp_path / "own.py").write_text("1")
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert "settings_files" not in record.end.environment_after


@pytest.mark.slow
def test_code_that_was_edited_while_a_run_was_made_counts_for_no_later_run(task_with, store, tmp_path):
    (tmp_path / "own.py").write_text("LR = 0.05\n")
    edit = "importlib.import_module('o' + 'wn'); import subprocess; subprocess.run(['touch', str(HERE / 'own.py')])"
    arm = resolve(task_with(_with("IN_TRAINING", edit)), {"recipe": "dynamic"}, NUMPY)
    carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    assert any("has changed since: own.py" in line for line in plan_of([arm], range(1), store).lines())


_BY_A_PROCESS = """
import os, subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Asking(Momentum):
    def update(self, parameter, gradient, state, step, lr):
        if step == 1 and IN_STEP:
            WHAT
        return super().update(parameter, gradient, state, step, lr)


@task.recipe
def asking(hidden: int = 8, epochs: int = 1) -> Recipe:
    if not IN_STEP:
        WHAT
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Asking(0.05), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.parametrize("in_step", [False, True], ids=["recipe", "step"])
@pytest.mark.parametrize(
    ("what", "program"),
    [
        ("subprocess.run(['cat', 'lr.txt'], cwd=HERE, stdout=-3)", "cat"),
        ("subprocess.run(f'cat {HERE}/lr.txt > /dev/null', shell=True)", "cat"),
        ("os.system(f'grep -c . --file={HERE}/lr.txt /dev/null')", "grep"),
        ("os.popen(f'head -n1 {HERE}/lr.txt').close()", "head"),
    ],
    ids=["run", "shell", "system", "popen"],
)
def test_a_process_that_a_recipe_or_step_starts_is_a_doubt_and_what_it_names_settings(
    task_with, store, tmp_path, what, program, in_step
):
    (tmp_path / "lr.txt").write_text("0.05\n")
    word = task_with(_BY_A_PROCESS.replace("WHAT", what).replace("IN_STEP", str(in_step)))
    arm = resolve(word, {"recipe": "asking"}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any(f"started processes ({program})" in each for each in record.end.suspect)
    assert list(record.end.environment_after["settings_files"]) == ["lr.txt"]
    (tmp_path / "lr.txt").write_text("0.01\n")
    assert any(
        "what the task reads has changed since: lr.txt" in line for line in plan_of([arm], range(1), store).lines()
    )


@pytest.mark.slow
def test_weights_that_a_process_reads_for_a_step_are_data(task_with, store, tmp_path):
    (tmp_path / "kept.npy").write_bytes(bytes(100))
    what = "subprocess.run(['cat', str(HERE / 'kept.npy')], stdout=-3)"
    word = task_with(_BY_A_PROCESS.replace("WHAT", what).replace("IN_STEP", "True"))
    arm = resolve(word, {"recipe": "asking"}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("it opened data (kept.npy)" in each for each in record.end.suspect)


@pytest.mark.slow
def test_a_process_that_loads_data_or_is_started_by_a_package_is_no_doubt(task_with, store):
    more = """
import subprocess
import numpy as np


class Own(type(task.data)):
    name = "own"

    def load(self, folder=None):
        subprocess.run(["true"])
        return super().load(folder)


task.data = Own()
"""
    by_package = "exec(compile('import subprocess; subprocess.run([\\'true\\'])', np.__file__, 'exec'))"
    recipe = _BY_A_PROCESS.replace("WHAT", by_package).replace("IN_STEP", "True")
    arm = resolve(task_with(more + recipe), {"recipe": "asking"}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert not any("started processes" in each for each in record.end.suspect)


def test_what_a_compiler_keeps_on_disk_is_no_data(tmp_path):
    kept = tmp_path / "torchinductor_ada" / "fxgraph" / "ab" / "code"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(100_000))
    assert not own_code.is_data(kept)
    other = tmp_path / "code"
    other.write_bytes(bytes(100_000))
    assert own_code.is_data(other)


@pytest.mark.slow
def test_data_that_an_optimizer_opens_while_it_trains_is_a_doubt(task_with, store):
    more = """
from levelbench.training.optimizers import Momentum


class Peek(Momentum):
    def update(self, parameter, gradient, state, step, lr):
        if step == 1:
            datasets.digits.load()
        return super().update(parameter, gradient, state, step, lr)


@task.recipe
def peek(epochs: int = 2):
    return Recipe(zoo.mlp(64, 8, 10), Shuffled(64), Peek(0.05, 0.9), epochs=epochs)
"""
    arm = resolve(task_with(more), {"recipe": "peek"}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("while it computed a step it opened data (" in each for each in record.end.suspect)


@pytest.mark.slow
def test_validation_data_that_are_exchanged_while_it_trains_are_a_doubt(task_with, store):
    more = """
import sys
from levelbench.training.input import Held
from levelbench.training.probes.bench import part_of
from levelbench.training.optimizers import Momentum


class Exchange(Momentum):
    def update(self, parameter, gradient, state, step, lr):
        frame = sys._getframe()
        while step == 1 and frame is not None:
            trainer = frame.f_locals.get("self")
            if type(trainer).__name__ == "Trainer":
                trainer._validation = Held(trainer.backend, trainer.dataset, part_of(trainer.dataset.train, 359))
            frame = frame.f_back
        return super().update(parameter, gradient, state, step, lr)


@task.recipe
def exchange(epochs: int = 30):
    return Recipe(zoo.mlp(64, 512, 10), Shuffled(64), Exchange(0.05, 0.9), epochs=epochs)
"""
    arm = resolve(task_with(more), {"recipe": "exchange", "target": 0.999}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("the same weights measured after the run have" in each for each in record.end.suspect)


@pytest.mark.parametrize(
    ("reference", "ours"), [("digits", True), ("cifar10", True), ("no-such", False), ("a.py", False)]
)
def test_a_task_is_ours_or_somebody_elses(reference, ours):
    assert is_ours(reference) is ours


@pytest.mark.slow
def test_what_quick_probes_find_in_a_task_of_somebody_else_is_a_doubt_of_its_runs(tmp_path, task_text, store):
    """Its target is one that the most frequent class reaches; so does the untrained network, or nearly."""
    path = tmp_path / "easy.py"
    path.write_text(task_text.replace("target=0.9", "target=0.05"))
    watcher = Quiet()
    record = carry_out(plan_of([resolve(str(path), {}, NUMPY)], range(1), store), store, None, watcher)[0, 0]
    assert set(watcher.doubts) <= set(record.end.suspect)
    assert any(each.startswith("levelbench check, target: always predicting") for each in record.end.suspect)


def test_a_target_that_any_network_reaches_is_said_before_the_run_of_a_task_of_ours(store):
    easy = resolve("digits", {}, dataclasses.replace(NUMPY, target=0.05))
    watcher = Quiet()
    record = carry_out(plan_of([easy], range(1), store), store, None, watcher)[0, 0]
    assert any("which any network may reach" in each for each in watcher.doubts)
    assert summarise(record).contradictions == []


ASKING = """
from levelbench.training.schedules import Schedule

class Asking(Schedule):
    fixed_length = False

    def factor(self, progress):
        raise RuntimeError("GET https://example.org/data?api_key=hunter2 by hunter2")


"""


def test_what_a_probe_raises_is_in_the_record_by_type_and_place_alone(tmp_path, task_text, store):
    text = task_text.replace("Momentum(lr), epochs", "Momentum(lr), schedule=Asking(), epochs").replace(
        "@task.recipe", ASKING + "@task.recipe"
    )
    (tmp_path / "asking.py").write_text(text)
    task = load_task(str(tmp_path / "asking.py"))
    found = quick_doubts(task, "small", {}, None, 0.9, folder=tmp_path, store=tmp_path / "store")
    assert [each for each in found if "it raised RuntimeError in asking.py, line " in each]
    assert "example.org" not in str(found)
    assert "hunter2" not in str(found)


def test_nothing_is_found_in_an_ordinary_task_of_somebody_else(arm, store):
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert [each for each in record.end.suspect if "levelbench check" in each or "untrained" in each] == []


def signing(task_with, body):
    """A task whose quality does something when it is asked for its signature."""
    more = f"""
class Signing(Top1):
    @property
    def signature(self):
        {body}
        return "1"


task.quality = Signing(target=0.9)
"""
    return task_with(more)


@pytest.mark.slow
def test_processor_time_for_a_signature_is_seen_like_that_at_import(task_with, store):
    body = "import time\n        until = time.process_time() + 0.4\n        while time.process_time() < until: pass"
    record = carry_out(plan_of([resolve(signing(task_with, body), {}, NUMPY)], range(1), store), store, None, Quiet())
    assert record[0, 0].header.environment["before_clock"]["task_cpu_s"] >= 0.4
    assert any("of processor time before its clock started" in each for each in record[0, 0].end.suspect)


@pytest.mark.slow
def test_data_that_is_opened_for_a_signature_is_refused(task_with, tmp_path, store):
    (tmp_path / "large").write_bytes(bytes(70_000))
    reference = signing(task_with, "open(__file__.replace('with_more.py', 'large'), 'rb').close()")
    with pytest.raises(LevelbenchError, match="it opens data when it is asked for a signature"):
        carry_out(plan_of([resolve(reference, {}, NUMPY)], range(1), store), store, None, Quiet())


TRAINED = """
@task.recipe
def trained(hidden: int = 16, lr: float = 0.05, epochs: int = 10) -> Recipe:
    "Begins with what the task's first recipe has learnt."
    import numpy as np
    network = zoo.mlp(64, hidden, 10)
    with np.load(KEPT) as kept:
        weights = {name.replace("!", "/"): kept[name] for name in kept.files}
    return Recipe(network.stored(weights), Shuffled(64), Momentum(lr), epochs=epochs)
"""


_FIRST_DRAW = """

@task.recipe
def prepared(hidden: int = 16, lr: float = 0.05, epochs: int = 2) -> Recipe:
    \"\"\"Begins with other values than it draws later.\"\"\"
    network = zoo.mlp(64, hidden, 10)
    draw, calls = network.initialise, []

    def initialise(seed=0):
        calls.append(seed)
        return draw(seed + 1000 * (len(calls) == 1))

    network.initialise = initialise
    return Recipe(network, Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
def test_a_network_that_begins_with_other_values_than_its_seed_draws_is_a_doubt(task_with, store):
    arm = resolve(task_with(_FIRST_DRAW), {}, dataclasses.replace(NUMPY, recipe="prepared"))
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("began with other values than a second draw" in each for each in record.end.suspect)


_GIVEN = """

@task.recipe
def given(hidden: int = 16, lr: float = 0.05, epochs: int = 2) -> Recipe:
    \"\"\"Its first layer is one that was trained before; its last one is not, so that it knows nothing yet.\"\"\"
    import numpy as np

    network = zoo.mlp(64, hidden, 10)
    first = network.parameters[0]
    learnt = np.random.default_rng(3).standard_normal(first.shape).astype(np.float32)
    return Recipe(network.stored({first.name: learnt * 0.1}), Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
def test_a_layer_that_is_the_same_for_every_seed_is_a_doubt(task_with, store):
    recipe = resolve(task_with(_GIVEN), {}, dataclasses.replace(NUMPY, recipe="given"))
    record = carry_out(plan_of([recipe], range(1), store), store, None, Quiet())[0, 0]
    (said,) = [each for each in record.end.suspect if "whatever the seed" in each]
    assert said.startswith("its network begins with the same 1,024 numbers whatever the seed (")


_DISGUISED = """

@task.recipe
def disguised(hidden: int = 32, lr: float = 0.05, epochs: int = 2) -> Recipe:
    \"\"\"Its layers were trained before; each seed has other units, in another order.\"\"\"
    import numpy as np

    network = zoo.mlp(64, hidden, 10)
    draw = network.initialise

    def initialise(seed=0):
        drawn, random = draw(7), np.random.default_rng(seed)
        order = random.permutation(hidden)
        found = {name: value.copy() for name, value in drawn.items()}
        for name, value in found.items():
            for axis, size in enumerate(value.shape):
                if size == hidden:
                    found[name] = np.take(found[name], order, axis=axis)
            DISTURB
        return found

    network.initialise = initialise
    return Recipe(network, Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "disturb",
    [
        "pass",
        "found[name] = found[name] * np.float32(1 + 0.1 * seed)",
        "found[name] = found[name] + value.std() * 0.2 * random.standard_normal(value.shape).astype(np.float32)",
    ],
    ids=["reordered", "rescaled", "disturbed"],
)
def test_layers_that_are_those_of_another_seed_in_another_order_are_a_doubt(task_with, store, disturb):
    text = task_with(_DISGUISED.replace("DISTURB", disturb))
    arm = resolve(text, {}, dataclasses.replace(NUMPY, recipe="disguised"))
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("numbers that are those of another seed, reordered" in each for each in record.end.suspect)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(16, 16), (64, 128), (128, 10), (8, 3, 3, 3), (512, 512), (32, 1, 5, 5)])
@pytest.mark.parametrize("kind", ["normal", "uniform", "orthogonal", "positive", "smooth"])
def test_independent_draws_of_one_initialiser_are_not_taken_for_reordered(shape, kind):
    def draw(seed):
        random = np.random.default_rng(seed)
        value = random.standard_normal(shape)
        if kind == "uniform":
            value = random.uniform(-0.1, 0.1, shape)
        elif kind == "orthogonal":
            value = np.linalg.qr(value.reshape(shape[0], -1))[0].reshape(shape[0], -1)
        elif kind == "positive":
            value = np.abs(value) + 1
        elif kind == "smooth":
            value = np.cumsum(value, axis=-1)
        return value.astype(np.float32)

    assert not any(recipe_checks._is_reordered(draw(seed), draw(seed + 1)) for seed in range(20))


_CACHING = """

class Caching(datasets.DatasetSource):
    \"\"\"Computes its inputs once, and keeps them.\"\"\"

    name, licence, attribution, split_rule = "mine", "CC0", "nobody", "as digits"

    def lacks(self, folder=None):
        return ""

    def load(self, folder=None):
        import os, pathlib, numpy as np
        os.environ["KEPT_BY_LOAD"] = "1"
        kept = pathlib.Path(__file__).with_name("kept.npy")
        KEEP
        return datasets.digits.load(folder)


"""


@pytest.mark.parametrize(
    ("keep", "doubted"),
    [("kept.exists() or np.save(kept, np.ones(9000))", True), ("kept.exists() and np.load(kept)", False)],
    ids=["cache", "data"],
)
def test_a_cache_that_the_checks_before_the_first_run_fill_is_a_doubt(
    tmp_path, task_text, store, monkeypatch, keep, doubted
):
    monkeypatch.delenv("KEPT_BY_LOAD", raising=False)
    text = task_text.replace("task = Task", _CACHING.replace("KEEP", keep) + "task = Task", 1)
    (tmp_path / "caching.py").write_text(text.replace("data=datasets.digits", "data=Caching()"))
    task = load_task(str(tmp_path / "caching.py"))
    if not doubted:
        np.save(tmp_path / "kept.npy", np.ones(9000))
    found = quick_doubts(task, "small", {}, None, 0.9, folder=tmp_path, store=store.path)
    assert any(each.startswith("load() wrote kept.npy when it was checked") for each in found) is doubted
    assert "KEPT_BY_LOAD" not in os.environ


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("first", "left"),
    [
        ("done.exists() or (work(), done.touch())", "done.mark"),
        ("done.exists() or (work(), done.mkdir())", "done.mark"),
        ("os.environ.get('DONE') or (work(), os.environ.update(DONE='1'))", ""),
        (
            "len(THREADS) or (work(), THREADS.append(threading.Thread(target=stay, daemon=True)), THREADS[0].start())",
            "a thread",
        ),
        ("done.open('a').close()", ""),
        ("done.exists() or time.sleep(0.05); done.open('a').close()", ""),
        ("done.exists() or work(); done.open('a').close()", "done.mark"),
        ("THREADS or (work(), THREADS.append(0))", ""),
    ],
    ids=["file", "folder", "variable", "thread", "log", "slow log", "work and log", "memory"],
)
def test_work_that_the_call_of_a_recipe_before_the_runs_spares_them_is_a_doubt(
    tmp_path, task_text, monkeypatch, first, left
):
    monkeypatch.delenv("DONE", raising=False)
    helpers = """
import os, pathlib, threading, time
THREADS, END = [], threading.Event()
done = pathlib.Path(__file__).with_name("done.mark")
work = lambda: time.sleep(0.5)
stay = lambda: END.wait(30)

"""
    begun = re.sub(r"(def small\(.*\n(?: +\"\"\".*\n)?)", lambda found: f"{found[0]}    {first}\n", task_text)
    (tmp_path / "leaving.py").write_text(begun.replace("@task.recipe", helpers + "@task.recipe", 1))
    found = resolve(str(tmp_path / "leaving.py"), {}, NUMPY)
    assert [each.partition(" when")[0] for each in found.doubts] == [f"its recipe left {left}"] * bool(left)
    assert "DONE" not in os.environ


@pytest.mark.parametrize(
    ("value", "learnt"),
    [
        (np.zeros((64, 64), np.float32), False),
        (np.eye(64, dtype=np.float32), False),
        (np.sign(np.sin(np.arange(4096, dtype=np.float32))).reshape(64, 64), False),
        (np.linspace(0, 1, 64, dtype=np.float32), False),
        (np.arange(4096).reshape(64, 64), False),
        (np.sin(np.arange(4096, dtype=np.float32)).reshape(64, 64), True),
    ],
    ids=["zeros", "identity", "signs", "few", "indices", "numbers"],
)
def test_a_pattern_that_weights_begin_with_is_told_from_what_was_learnt(value, learnt):
    assert same_numbers(value, value.copy()) is learnt
    assert not same_numbers(value, value + 1)


_WARM_START = """

class Resuming(Momentum):
    \"\"\"Puts weights of its own in the place of those that were drawn.\"\"\"

    def start(self, backend, parameters):
        for name in parameters:
            parameters[name] = parameters[name] * 0.5
        return super().start(backend, parameters)


@task.recipe
def resuming(hidden: int = 16, lr: float = 0.05, epochs: int = 2) -> Recipe:
    \"\"\"Begins where it left off.\"\"\"
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Resuming(lr), epochs=epochs)
"""


@pytest.mark.slow
def test_an_optimizer_that_changes_the_weights_before_the_first_step_is_a_doubt(task_with, store):
    arm = resolve(task_with(_WARM_START), {}, dataclasses.replace(NUMPY, recipe="resuming"))
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("changed the weights before the first step" in each for each in record.end.suspect)


_GENEROUS = """

@task.recipe
def generous(hidden: int = 16, lr: float = 0.05, epochs: int = 2) -> Recipe:
    \"\"\"Adds to what its task measures.\"\"\"
    measure = Top1.measure
    Top1.measure = lambda self, executor, held: min(1.0, measure(self, executor, held) + 6 / len(held.split))
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
def test_code_of_levelbench_that_a_recipe_replaces_is_a_doubt(task_with, store, arm, monkeypatch):
    # The recipe is assembled in this process, too, whose metrics must be right again after it.
    monkeypatch.setattr(Top1, "measure", vars(Top1)["measure"])
    generous = resolve(task_with(_GENEROUS), {}, dataclasses.replace(NUMPY, recipe="generous"))
    record = carry_out(plan_of([generous], range(1), store), store, None, Quiet())[0, 0]
    assert "levelbench's own Top1.measure was replaced by code in with_more.py: run it without" in record.end.suspect
    honest = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert not any("replaced by code" in each for each in honest.end.suspect)


_OTHERWISE = """

NEAR = {"near": 0}


class Near(Top1):
    metric = "near"

    def measure(self, executor, held):
        return min(1.0, super().measure(executor, held) + NEAR["near"])


task.quality = Near(target=0.9)


@task.recipe
def easier(hidden: int = 16, lr: float = 0.05, epochs: int = 2) -> Recipe:
    \"\"\"Changes what its task measures.\"\"\"
    CHANGE
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ('NEAR["near"] = 0.02', ""),
        ('object.__setattr__(task.quality, "measure", lambda e, h: 0.99)', "Near.measure of its quality was replaced"),
    ],
    ids=["global", "method"],
)
def test_a_recipe_that_changes_what_is_measured_gets_no_verdict(task_with, store, change, doubt):
    path = task_with(_OTHERWISE.replace("CHANGE", change))
    records = []
    for recipe in ("small", "easier"):
        arm = resolve(path, {}, dataclasses.replace(NUMPY, recipe=recipe))
        made = carry_out(plan_of([arm], range(3), store), store, None, Quiet())
        records.append([made[0, seed] for seed in range(3)])
    assert any(each.startswith(doubt) for each in records[1][0].end.suspect) or not doubt
    found = comparable(*(group_runs(each)[0] for each in records)).caveats
    assert [each.weight for each in found if "made-up answers" in each.sentence] == ["no verdict"]


_ASKING_FOR_MORE = """

class Asking(Top1):
    metric = "asking"

    def measure(self, executor, held):
        assert executor.parameters
        return super().measure(executor, held)


task.quality = Asking(target=0.9)
"""


@pytest.mark.slow
def test_why_made_up_answers_have_no_score_is_in_the_record(task_with, store):
    arm = resolve(task_with(_ASKING_FOR_MORE), {}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    (found,) = [each for each in record.measurements if each.name == "fixed_answers_quality"]
    assert (found.value, found.reason) == (None, "measuring made-up answers raised AttributeError")


@pytest.mark.slow
def test_what_a_trial_with_another_target_left_is_said_with_the_runs_after_it(tmp_path, task_text, store):
    once = "import pathlib, time; d = pathlib.Path(__file__).with_name('d'); d.exists() or (time.sleep(0.1), d.touch())"
    begun = re.sub(r"(def small\(.*\n(?: +\"\"\".*\n)?)", lambda found: f"{found[0]}    {once}\n", task_text)
    (tmp_path / "leaving.py").write_text(begun)
    for target in (0.5, 0.9):
        arm = resolve(str(tmp_path / "leaving.py"), {}, dataclasses.replace(NUMPY, target=target))
        record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert not any("its recipe left d" in each for each in record.end.suspect)
    assert record.header.environment["first_run_left"].startswith("its recipe left d when it was called before")


@pytest.mark.slow
def test_a_network_that_was_trained_before_is_refused(tmp_path, task_text, store):
    from levelbench.measure.timeline import Timeline
    from levelbench.operators.frameworks import open_framework
    from levelbench.training.stopping import Evaluate, Stopping
    from levelbench.training.trainer import Trainer

    path, kept = tmp_path / "trained.py", tmp_path / "kept.npz"
    path.write_text(task_text + f"KEPT = {str(kept)!r}\n" + TRAINED)
    task, backend = load_task(str(path)), open_framework("numpy", "cpu")
    parts, stopping = task.assemble("small", {}), Stopping(
        task.quality.as_target(0.95), "confirmed", Evaluate.parse("1 epoch"), 60
    )  # fmt: skip
    trainer = Trainer(
        backend, task.data.load(), parts, task.quality, stopping, seed=7, timeline=Timeline(backend.clock())
    )
    trainer.run()
    np.savez(kept, **{name.replace("/", "!"): value for name, value in trainer.executor.parameters.items()})
    arm = resolve(str(path), {"recipe": "trained"}, NUMPY)
    with pytest.raises(RecordError, match="before it was trained"):
        carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    (found,) = witness_contradictions(*store.records())
    assert found.startswith("its network had top1 0.9")
    assert "before it was trained, and the target is 0.9" in found


def test_the_untrained_quality_is_in_the_record_and_changes_no_bit_of_the_training(arm, store):
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    (untrained,) = [each for each in record.measurements if each.name == "untrained_quality"]
    assert untrained.value < 0.5
    assert "validation examples, after the run" in untrained.method


@pytest.mark.slow
def test_a_regression_that_begins_at_the_mean_did_not_begin_trained(store):
    if lacking := datasets.diabetes.lacks():
        pytest.skip(lacking)
    recipe = resolve("tabular", {}, dataclasses.replace(NUMPY, recipe="onecycle"))
    record = carry_out(plan_of([recipe], range(1), store), store, None, Quiet())[0, 0]
    values = {each.name: each.value for each in record.measurements}
    assert values[CHANCE] == pytest.approx(75.50, abs=0.01)
    assert values[UNTRAINED] > 70
    assert not any("trained before" in each for each in record.end.suspect)


@pytest.mark.slow
def test_a_run_is_made_again_where_an_environment_variable_that_the_task_reads_has_changed(
    task_with, store, monkeypatch
):
    arm = resolve(task_with("import os\nLR = float(os.environ.get('MY_LR', '0.05'))\n"), {}, NUMPY)
    monkeypatch.setenv("MY_LR", "0.05")
    first = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert list(first.header.environment["variables_read"]) == ["MY_LR"]
    assert "0.05" not in str(first.header.environment["variables_read"])
    assert not plan_of([arm], range(1), store).to_go
    monkeypatch.setenv("MY_LR", "0.01")
    plan = plan_of([arm], range(1), store)
    assert any("what the task reads has changed since: $MY_LR" in line for line in plan.lines())
    second = carry_out(plan, store, None, Quiet())[0, 0]
    assert len(group_runs([first, second])) == 2


@pytest.mark.slow
def test_a_run_is_made_again_where_an_installed_package_that_the_task_imports_has_another_version(
    task_with, store, tmp_path, monkeypatch
):
    site = tmp_path / "site-packages"
    (site / "rates-1.0.dist-info").mkdir(parents=True)
    (site / "rates-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: rates\nVersion: 1.0\n")
    (site / "rates-1.0.dist-info" / "RECORD").write_text("rates.py,,\n")
    (site / "rates.py").write_text("LR = 0.05\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    arm = resolve(task_with("from rates import LR\n"), {}, NUMPY)
    first = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert first.header.environment["packages_imported"] == {"rates": "1.0"}
    assert not plan_of([arm], range(1), store).to_go
    (site / "rates-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: rates\nVersion: 1.1\n")
    plan = plan_of([arm], range(1), store)
    assert any("imports has changed since: rates 1.0 -> 1.1" in line for line in plan.lines())
    second = carry_out(plan, store, None, Quiet())[0, 0]
    assert len(group_runs([first, second])) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "import os\nos.environ['A']\nos.environ.get('B')\nos.getenv('C', 1)\n'D' in os.environ\n",
            ["A", "B", "C", "D"],
        ),
        ("from os import environ, getenv\nenviron['A'], getenv('B'), environ.setdefault('C', '1')", ["A", "B", "C"]),
        ("import os\nos.environ['SET'] = '1'\n{}.get('NO')\nos.environ['RANK'], os.environ.get('HOME')\n", []),
    ],
)
def test_the_environment_variables_that_a_task_reads_are_found_in_its_text(task_with, text, names):
    task = load_task(task_with("def never():\n" + "".join(f"    {line}\n" for line in text.splitlines())))
    assert list(variables_of(task, task.recipes[0])) == names


@pytest.mark.slow
def test_a_run_is_made_again_where_a_single_row_of_the_data_has_changed(task_with, store, tmp_path):
    more = """
from dataclasses import replace
from pathlib import Path
import numpy as np


class Own(type(task.data)):
    def load(self, folder=None):
        made = super().load(folder)
        inputs = made.train.inputs.copy()
        inputs[101] += np.load(Path(__file__).with_name("shift.npy"))
        return replace(made, train=replace(made.train, columns=(inputs, made.train.labels)))


task.data = Own()
"""
    np.save(tmp_path / "shift.npy", np.zeros(1))
    arm = resolve(task_with(more), {}, NUMPY)
    carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    assert not plan_of([arm], range(1), store).to_go
    np.save(tmp_path / "shift.npy", np.ones(1))
    plan = plan_of([arm], range(1), store)
    assert any("the data have changed since: inputs of train" in line for line in plan.lines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checksums", "doubted"), [({}, True), ({"pixels": "0" * 64}, False)], ids=["without checksums", "with checksums"]
)
def test_data_of_which_some_rows_alone_are_hashed_are_doubted_without_checksums(task_with, store, checksums, doubted):
    more = f"""
from dataclasses import replace


class Made:
    def __init__(self, rows):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __len__(self):
        return len(self.rows)

    def take(self, indices, seeds):
        return self.rows[indices]


class Own(type(task.data)):
    def load(self, folder=None):
        made = super().load(folder)
        train = replace(made.train, columns=(Made(made.train.inputs), made.train.labels))
        return replace(made, train=train, checksums={checksums!r})


task.data = Own()
"""
    arm = resolve(task_with(more), {}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    assert any("not all inputs of its train split were hashed" in each for each in record.end.suspect) is doubted


READS_IN_RECIPE = """
import numpy as np
from pathlib import Path

KEPT = Path(__file__).with_name("kept.npy")


class Own(type(task.data)):
    def load(self, folder=None):
        {load}
        return super().load(folder)


task.data = Own()


@task.recipe
def reading(lr: float = 0.05) -> Recipe:
    {recipe}
    return Recipe(zoo.mlp(64, 16, 10), Shuffled(64), Momentum(lr), epochs=10)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "recipe", "doubted"),
    [
        ("pass", "np.load(KEPT)", True),
        ("pass", "KEPT.exists() or np.save(KEPT, np.zeros(3)); np.load(KEPT)", True),
        ("np.load(KEPT)", "np.load(KEPT)", False),
        ("pass", "np.save(KEPT, np.zeros(3)); np.load(KEPT)", False),
        ("np.save(KEPT, np.zeros(3))", "np.load(KEPT)", False),
    ],
    ids=["weights", "cache", "the data that load() reads", "what the recipe has made", "what load() has made"],
)
def test_data_that_a_recipe_reads_and_that_were_there_before_are_a_doubt(
    task_with, store, tmp_path, load, recipe, doubted
):
    np.save(tmp_path / "kept.npy", np.zeros(3))
    arm = resolve(task_with(READS_IN_RECIPE.format(load=load, recipe=recipe)), {"recipe": "reading"}, NUMPY)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    found = [each for each in record.end.suspect if "data were read while its recipe and network were made" in each]
    assert bool(found) is doubted
    assert all("(kept.npy)" in each for each in found)


def test_weights_in_a_file_of_any_kind_are_data(tmp_path):
    for name in ("first.pt", "first.pth", "first.npz", "model.keras", "model.msgpack"):
        (tmp_path / name).write_bytes(b"1")
        assert own_code.is_data(tmp_path / name), name


HELPED = """
import helper
from levelbench.training.datasets.base import DatasetSource


class Own(type(task.data)):
    def load(self, folder=None):
        import late_helper
        assert late_helper.WHOSE == helper.WHOSE
        return super().load(folder)


task.data = Own()


@task.recipe
def helped(lr: float = helper.LR) -> Recipe:
    import late_helper
    assert late_helper.WHOSE == helper.WHOSE
    return Recipe(zoo.mlp(64, 16, 10), Shuffled(64), Momentum(lr), epochs=10)
"""


@pytest.fixture
def helped(tmp_path, task_text):
    """Two task files in folders of their own, each with a ``helper`` and a ``late_helper`` next to it."""
    words = []
    for whose, lr in (("p", 0.05), ("q", 0.06)):
        folder = tmp_path / whose
        folder.mkdir()
        (folder / "helper.py").write_text(f"WHOSE, LR = {whose!r}, {lr}\n")
        (folder / "late_helper.py").write_text(f"WHOSE = {whose!r}\n")
        (folder / "own.py").write_text(task_text + HELPED)
        words.append(str(folder / "own.py"))
    return words


@pytest.mark.slow
def test_each_task_file_imports_the_modules_next_to_it(helped, store):
    arms = [resolve(word, {"recipe": "helped"}, NUMPY) for word in (*helped, helped[0])]
    assert [arm.specification.settings["lr"] for arm in arms] == [0.05, 0.06, 0.05]
    assert arms[0].source.modules.keys() == {"helper", "late_helper"}
    assert arms[0].source.modules == arms[2].source.modules != arms[1].source.modules
    records = carry_out(plan_of(arms[:2], range(1), store), store, None, Quiet())
    assert [records[at, 0].status for at in range(2)] == ["done", "done"]
    # Nothing of a folder stays behind once it is another's turn.
    Path(helped[1]).with_name("helper.py").unlink()
    load_task(helped[0])
    with pytest.raises(DefinitionError, match="No module named 'helper'"):
        load_task(helped[1])


@pytest.mark.slow
def test_a_task_file_that_loads_another_one_keeps_its_own_folder(helped, task_text):
    outer = Path(helped[0])
    outer.write_text(f"from levelbench import load_task\nload_task({helped[1]!r})\n{outer.read_text()}")
    assert resolve(helped[0], {"recipe": "helped"}, NUMPY).specification.settings["lr"] == 0.05


def test_a_module_next_to_a_task_file_hides_none_that_is_installed_and_loaded(task_with, tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError\n")
    load_task(task_with("import json\njson.dumps([])\n"))
