import gc
import importlib
import importlib.util
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.warm import TORCH, WARM

# Each worker and each process that a test starts would else compile all that it imports anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SHARED = "LEVELBENCH_TESTS_SHARED"
"""The variable that names the folder which the processes of a session share."""

GOLDEN = Path(__file__).parent / "golden"

# Workers side by side have a core each: a second thread of one would wait for the other's.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Compiling is most of what the tests of JAX do. Without LLVM's optimisations it takes less than half, and what is
# computed is the same program; HLO is optimised all the same. (Without the fusion emitters it would take half of that,
# and some conversions to 8-bit floats round differently.)
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# The same examples each time, so that a change fails for what it changed and not by chance;
# HYPOTHESIS_PROFILE=explore draws others, and more of them.
# An example has no deadline, and data that are slow to draw are no fault: both ask how busy the machine is.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", derandomize=True, **UNTIMED)
settings.register_profile("explore", max_examples=1000, **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


LONGEST_FIRST = """
test_docs experiments/test_teams experiments/test_teams_nodes operators/probes/test_right_operators
networks/zoo/test_vision_frameworks experiments/test_campaign experiments/test_programs
frameworks/jax/test_jax_gradients cli/test_run_verb operators/custom/test_tutorial networks/zoo/test_others_frameworks
frameworks/test_conformance tasks/test_vision_recipes report/test_html_runs
frameworks/jax/test_jax_executor experiments/test_campaign_kills networks/zoo/test_vision
networks/fuzz/test_agreement tasks/test_text_tasks operators/test_conformance
distributed/communicators/test_mpi distributed/probes/test_own_schemes distributed/launching/test_ranks
competition/site/test_board_in_a_browser frameworks/jax/test_jax_versions frameworks/jax/test_jax_conformance
networks/transforms/test_measured_memory simulation/test_coverage frameworks/test_optimizers experiments/test_networks
simulation/test_false_positives cli/test_check_verb cli/test_scale_verb networks/benchmark/test_measuring
networks/test_third_party operators/custom/test_compile frameworks/torch/test_distributed cli/test_operator_verb
training/probes/test_optimizers frameworks/test_torch_modes training/test_checkpoints
networks/transforms/test_microbatch cli/test_check_optimizers cli/test_check_schemes tasks/test_same_trajectory
experiments/inference/test_processes cli/test_network cli/test_infer cli/test_run_interrupted report/test_html
"""


def pytest_configure(config):
    # Workers that share files out take them as collected: see below. By its own order, of the number of tests, the
    # last files would be those with few and long ones, and one worker would wait for the other a minute.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if SHARED not in os.environ:
        shared = tempfile.TemporaryDirectory(prefix="levelbench-tests-")
        os.environ[SHARED] = shared.name
        config.add_cleanup(shared.cleanup)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = Counter()
    for item in items:
        for node, mark in item.iter_markers_with_node("sampled"):
            among = item.nodeid.partition("[")[0] if node is item else node.nodeid
            if seen[among] % mark.args[0]:
                item.add_marker("slow")
            seen[among] += 1
    place = {f"{GOLDEN.parent / name}.py": at for at, name in enumerate(LONGEST_FIRST.split())}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))


def pytest_collection_finish(session):
    # Ten thousand collected tests and the modules they import stay until the end: the collector need not look at them.
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """What was skipped, a line a reason: of its own accord pytest prints a line a test."""
    counts, reasons = Counter(), {}
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if found := re.match(r"could not import '(\w+)", reason):
            reason = f"{found[1]} is not installed"
        # "onnxruntime is not installed" and "ONNX Runtime is not installed: pip install ..." are one reason.
        what = re.sub(r" is not installed.*", "", reason).replace(" ", "").lower()
        counts[what] += 1
        reasons[what] = max(reasons.get(what, ""), reason, key=len)
    for what, count in counts.most_common():
        terminalreporter.write_line(f"skipped {count:3}: {reasons[what]}")


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the golden files anew")


@pytest.fixture(scope="session", autouse=True)
def warm():
    """Processes that the program starts are forked from one that has the imports behind it."""
    with WARM.processes():
        yield
    WARM.close()


@pytest.fixture(autouse=True)
def own_path():
    """A task file's folder, which loading it puts on ``sys.path``, hides no module from the tests after it."""
    before = set(sys.path)
    yield
    sys.path[:] = [each for each in sys.path if each in before]


@pytest.fixture(autouse=True)
def own_recipes():
    """Recipes that a file adds to digits, which lasts as long as the process, are gone for the tests after it."""
    yield
    if digits := sys.modules.get("levelbench.tasks.digits"):
        for recipes in (digits.task._recipes, digits.task._factors):
            for name in set(recipes) - {"mlp", "onecycle"}:
                del recipes[name]


@pytest.fixture(scope="module")
def warm_node_cases(warm):
    """ONNX's node tests have been collected, here and in the processes that the program starts."""
    importlib.import_module("tests.node_cases")
    with WARM.processes("tests.node_cases"):
        yield


@pytest.fixture(scope="module")
def warm_torch(warm):
    """As ``warm``, and PyTorch is imported as well."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    with WARM.processes(*TORCH):
        yield


@pytest.fixture(scope="module")
def undrawn():
    """Reports are written without figures, as without matplotlib: for tests to which what is drawn is not the point.

    To draw them takes most of a second, which is more than small runs do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("levelbench.report.run_figures.can_draw", lambda: False)
        yield


@pytest.fixture
def cold():
    """Processes that the program starts are not forked: each imports what it needs, and is named by its command."""
    with WARM.cold():
        yield


@pytest.fixture
def golden(request):
    """Compare with a file under tests/golden, without colours; ``pytest --golden`` writes it anew."""

    def check(name, text, *, replace=()):
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        for pattern, by in replace:
            text = re.sub(pattern, by, text)
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--golden"):
            path.write_text(text)
        assert path.read_text() == text, f"{path.name} differs; look at it, then pytest --golden"

    return check
