import gc
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Each worker and each process that a test starts would else compile all that it imports anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

GOLDEN = Path(__file__).parent / "golden"

# Workers side by side have a core each: a second thread of one would wait for the other's.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Compiling is most of what the tests of JAX do. Without LLVM's optimisations it takes less than half, and what is
# computed is the same program; HLO is optimised all the same.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# The same examples each time, so that a change fails for what it changed and not by chance;
# HYPOTHESIS_PROFILE=explore draws others, and more of them.
settings.register_profile("suite", derandomize=True)
settings.register_profile("explore", max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


LONGEST_FIRST = """
runner/test_campaign runner/test_teams cli/test_run_verb networks/zoo/test_vision
operators/validation/test_right_operators frameworks/test_conformance frameworks/jax/test_jax_gradients
cli/test_check_verb runner/test_networks networks/zoo/test_others networks/fuzz/test_agreement
frameworks/jax/test_jax_conformance frameworks/test_jax_executor cli/test_operator_verb
distributed/communicators/test_mpi distributed/validation/test_own_schemes distributed/hosts/test_ranks
report/site/test_board_in_a_browser operators/conformance/test_conformance frameworks/jax/test_jax_versions
frameworks/test_optimizers tasks/test_vision_recipes tasks/test_text_tasks report/test_html
networks/transforms/test_measured_memory cli/test_network cli/test_scale_verb cli/test_check_schemes
frameworks/test_torch_executor frameworks/torch/test_distributed training/test_checkpoints
simulation/test_false_positives simulation/test_coverage tasks/test_same_trajectory cli/test_infer
runner/test_inference
"""


def pytest_configure(config):
    # Workers that share files out take them as collected: see below. By its own order, of the number of tests, the
    # last files would be those with few and long ones, and one worker would wait for the other a minute.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    place = {f"{GOLDEN.parent / name}.py": at for at, name in enumerate(LONGEST_FIRST.split())}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))


def pytest_collection_finish(session):
    # Ten thousand collected tests and the modules they import stay until the end: the collector need not look at them.
    gc.collect()
    gc.freeze()


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request):
    """Compare with a file under tests/golden; ``pytest --golden`` writes it anew."""

    def check(name, text, *, replace=()):
        for pattern, by in replace:
            text = re.sub(pattern, by, text)
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--golden"):
            path.write_text(text)
        assert path.read_text() == text, f"{path.name} differs; look at it, then pytest --golden"

    return check
