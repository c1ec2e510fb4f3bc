"""Hooks of a PyTorch module, its optimizer and loader report the phases of a tracked run."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import levelbench  # noqa: E402
from levelbench.errors import UsageError  # noqa: E402
from levelbench.experiments import marking, told  # noqa: E402
from levelbench.experiments.hooks import _Steps  # noqa: E402
from levelbench.measure.timeline import Phase  # noqa: E402
from levelbench.records import read_record  # noqa: E402

pytestmark = pytest.mark.sampled(3)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        time.sleep(0.02)
        return value * 1.0

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.03)
        return gradient


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return Slow.apply(self.layer(x))


def trained(tmp_path, *, evaluate_inside, with_optimizer=True):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        loader = levelbench.autophase(model, optimizer if with_optimizer else None, [torch.ones(3, 2)] * 2)
        assert len(loader) == 2
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if evaluate_inside:
            run.evaluate(lambda: float(model(torch.ones(3, 2)).isfinite().all()) * 0.5)
        else:
            with torch.no_grad():
                model(torch.ones(3, 2))
            run.evaluate(0.5)
    (path,) = tmp_path.glob("*/*/*.jsonl")
    return read_record(path), model, optimizer


class Wrapped(torch.optim.Optimizer):
    """Like accelerate's: an optimizer that wraps another one and was never initialised itself."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, closure=None):
        self.optimizer.step(closure)


def test_an_optimizer_that_wraps_another_tells_its_updates(tmp_path):
    model = Model()
    optimizer = Wrapped(torch.optim.SGD(model.parameters(), lr=0.1))
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        for batch in levelbench.autophase(model, optimizer, [torch.ones(3, 2)]):
            model(batch).sum().backward()
            optimizer.step()
        run.evaluate(0.5)
    assert read_record(next(tmp_path.glob("*/*/*.jsonl"))).end.phases_ns["update"] > 0


@pytest.mark.parametrize("evaluate_inside", [True, False])
def test_forward_backward_update_and_evaluation_are_distinguished(tmp_path, evaluate_inside):
    record, _, _ = trained(tmp_path, evaluate_inside=evaluate_inside)
    phases = record.end.phases_ns
    assert phases["forward"] >= 40e6
    assert phases["backward"] >= 60e6
    assert phases["evaluate"] >= 20e6
    assert phases["update"] > 0
    assert (record.evaluations[0].step, record.evaluations[0].samples) == (2, 6)


def test_without_the_optimizer_what_follows_a_forward_pass_is_backward(tmp_path):
    record, _, _ = trained(tmp_path, evaluate_inside=True, with_optimizer=False)
    assert "update" not in record.end.phases_ns
    assert record.end.phases_ns["backward"] >= 60e6


def test_hooks_are_gone_when_the_run_has_ended(tmp_path):
    _, model, optimizer = trained(tmp_path, evaluate_inside=True)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize(
    ("parts", "message"),
    [((object(),), "no torch.nn.Module"), ((torch.nn.Linear(1, 1), object()), "no torch.optim optimizer")],
)
def test_what_has_no_hooks_is_refused(tmp_path, parts, message):
    with pytest.raises(UsageError, match=message), levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path):
        levelbench.autophase(*parts)


def test_several_optimizers_of_one_model_are_given_in_a_list(tmp_path):
    model = Model()
    optimizers = [torch.optim.SGD([each], lr=0.1) for each in model.parameters()]
    for each in optimizers:
        each.register_step_post_hook(lambda *_: time.sleep(0.02))
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        for batch in levelbench.autophase(model, optimizers, [torch.ones(3, 2)]):
            model(batch).sum().backward()
            for each in optimizers:
                each.step()
        run.evaluate(0.5)
    assert read_record(next(tmp_path.glob("*/*/*.jsonl"))).end.phases_ns["update"] >= len(optimizers) * 20e6 - 1e6


def test_a_second_optimizer_of_a_module_needs_no_second_hook(tmp_path):
    model = Model()
    optimizers = [torch.optim.SGD([each], lr=0.1) for each in model.parameters()]
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        for _ in run.epochs(2):
            for optimizer in optimizers:
                levelbench.autophase(model, optimizer)
            for batch in run.data([torch.ones(3, 2)] * 2):
                model(batch).sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
            run.evaluate(0.5)
        assert len([each for each in run.hooked.values() if isinstance(each, _Steps)]) == len(optimizers)
    (path,) = tmp_path.glob("*/*/*.jsonl")
    phases = read_record(path).end.phases_ns
    assert phases["backward"] >= 4 * 30e6


def test_a_forward_pass_in_another_thread_changes_no_phase(tmp_path):
    model = Model()
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        levelbench.autophase(model)
        with run.phase("update"):
            thread = threading.Thread(target=model, args=(torch.ones(3, 2),))
            thread.start()
            thread.join()
        run.step()
        run.evaluate(0.5)
    (path,) = tmp_path.glob("*/*/*.jsonl")
    record = read_record(path)
    assert record.end.phases_ns["update"] >= 20e6
    assert "forward" not in record.end.phases_ns
    assert any("saw no forward pass" in each for each in record.end.suspect)


def test_an_optimizer_whose_step_has_forward_passes_in_it_is_refused(tmp_path):
    model = torch.nn.Linear(1, 1)
    message = "forward and backward passes in it"
    with (
        pytest.raises(UsageError, match=message),
        levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True),
    ):
        levelbench.autophase(model, torch.optim.LBFGS(model.parameters()))


def test_without_a_run_the_program_goes_on_as_before(monkeypatch, capsys):
    monkeypatch.setattr(marking, "_noted", [])
    monkeypatch.delenv("LEVELBENCH_PHASES", raising=False)
    model = torch.nn.Linear(2, 1)
    for _ in range(2):
        assert len(list(levelbench.autophase(model, None, [torch.ones(3, 2)] * 2))) == 2
    assert not model._forward_hooks
    assert capsys.readouterr().err.count("autophase measures nothing here") == 1


@pytest.mark.parametrize(
    ("mode", "has_loader", "phase"),
    [("train", True, "forward"), ("train", False, "forward"), ("eval", True, "evaluate"), ("eval", False, "evaluate")],
)
def test_a_pass_without_gradients_within_a_step_is_an_evaluation_in_evaluation_mode_alone(
    tmp_path, mode, has_loader, phase
):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.ones(3, 2)] * 2
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        loader = levelbench.autophase(model, optimizer, batches)
        for batch in loader if has_loader else batches:
            loss = model(batch).sum()
            with torch.no_grad():
                getattr(model, mode)()
                model(batch)
                model.train()
            loss.backward()
            optimizer.step()
        run.evaluate(0.5)
    phases = read_record(next(tmp_path.glob("*/*/*.jsonl"))).end.phases_ns
    assert phases[phase] >= (80e6 if phase == "forward" else 40e6)
    assert phases["backward"] >= 60e6


@pytest.mark.parametrize("has_optimizer", [True, False])
def test_a_pass_with_gradients_in_evaluation_mode_is_an_evaluation(tmp_path, has_optimizer):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        for batch in levelbench.autophase(model, optimizer if has_optimizer else None, [torch.ones(3, 2)] * 2):
            model.train()
            model(batch).sum().backward()
            optimizer.step()
            model.eval()
            model(batch)
        model(batch)
        run.evaluate(0.5)
    phases = read_record(next(tmp_path.glob("*/*/*.jsonl"))).end.phases_ns
    assert phases["evaluate"] >= 60e6
    assert phases["forward"] >= 40e6
    assert phases["backward"] >= 60e6


class Hidden(Model):
    """Its output is an object of its own."""

    def forward(self, x):
        return SimpleNamespace(loss=super().forward(x))


@pytest.mark.parametrize("kind", [Model, Hidden])
def test_a_program_that_trains_in_evaluation_mode_has_forward_passes_after_its_first_step(tmp_path, kind):
    model = kind().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        for batch in levelbench.autophase(model, optimizer, [torch.ones(3, 2)] * 4):
            found = model(batch)
            getattr(found, "loss", found).sum().backward()
            optimizer.step()
        run.evaluate(0.5)
    record = read_record(next(tmp_path.glob("*/*/*.jsonl")))
    phases = record.end.phases_ns
    assert phases["forward"] >= 60e6
    assert phases["backward"] >= (120e6 if kind is Model else 90e6)
    assert not any("autophase" in each for each in record.end.suspect)


@pytest.mark.parametrize("has_loader", [True, False])
def test_a_pass_without_gradients_after_the_steps_is_an_evaluation_in_any_mode(tmp_path, has_loader):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.ones(3, 2)] * 2
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        loader = levelbench.autophase(model, optimizer, batches)
        for batch in loader if has_loader else batches:
            model(batch).sum().backward()
            optimizer.step()
            if has_loader:
                break
        with torch.no_grad():
            model(batches[0])
        run.evaluate(0.5)
    assert read_record(next(tmp_path.glob("*/*/*.jsonl"))).end.phases_ns["evaluate"] >= 20e6


def test_pseudo_labels_before_a_step_under_levelbench_time_are_no_evaluation(tmp_path, monkeypatch):
    page = told.Page.create(tmp_path / "page")
    monkeypatch.setenv("LEVELBENCH_PHASES", str(tmp_path / "page"))
    monkeypatch.setattr(marking._TimedRun, "looked", False)
    monkeypatch.setattr(marking._TimedRun, "only", None)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in levelbench.autophase(model, optimizer, [torch.ones(3, 2)] * 2):
        with torch.no_grad():
            model(batch)
        model(batch).sum().backward()
        optimizer.step()
    with torch.no_grad():
        model(torch.ones(3, 2))
    marking._TimedRun.only._end()
    totals_ns = dict(zip([phase.label for phase in Phase], page.read().totals_ns, strict=True))
    assert totals_ns["forward"] >= 80e6
    assert totals_ns["evaluate"] >= 20e6
