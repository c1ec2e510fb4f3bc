"""What hooks of PyTorch tell of a model's passes, and that a program with them works as it does without."""

from __future__ import annotations

import copy
import textwrap
import time
import warnings

import pytest

import levelbench
from levelbench.records import read_record

pytestmark = pytest.mark.sampled(3)

torch = pytest.importorskip("torch", reason="needs PyTorch")

MS = 1_000_000
TORCH = """
    torch = __import__("torch")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = levelbench.autophase(model, optimizer, [torch.ones(4, 2)] * 4)
"""


@pytest.mark.slow
def test_a_forward_pass_that_fails_ends_its_phase(time_program):
    text = """
        try:
            with torch.no_grad():
                model(torch.ones(4, 3))
        except RuntimeError:
            pass
        time.sleep(0.3)
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert record.end.phases_ns["evaluate"] < 300 * MS


@pytest.mark.slow
def test_an_update_with_a_closure_begins_after_it(time_program):
    text = """
        class Slow(torch.optim.SGD):
            def _init_group(self, *given):
                time.sleep(0.1)
                return super()._init_group(*given)
        optimizer = Slow(model.parameters(), lr=0.1)
        levelbench.autophase(model, optimizer)
        def closure():
            loss = model(torch.ones(4, 2)).sum()
            loss.backward()
            return loss
        optimizer.step(closure)
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert record.end.phases_ns["update"] >= 100 * MS


@pytest.mark.slow
def test_other_threads_change_no_phase(time_program):
    text = """
        import threading
        def other():
            mine = torch.nn.Linear(2, 1)
            steps = torch.optim.SGD(mine.parameters(), lr=0.1)
            levelbench.autophase(mine, steps)
            for _ in range(100):
                steps.step()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert "update" not in record.end.phases_ns


@pytest.mark.slow
def test_models_and_loaders_with_hooks_can_be_copied_and_saved(time_program):
    text = """
        import copy, io, pickle
        twin = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
        pickle.loads(pickle.dumps(optimizer))
        assert len(copy.copy(loader)) == len(pickle.loads(pickle.dumps(loader))) == 4
        for batch in loader:
            twin(batch)
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert record.status == "done"
    assert "forward" not in record.end.phases_ns


@pytest.mark.slow
def test_a_model_at_the_place_of_one_that_is_gone_is_another(time_program):
    text = """
        for fold in range(20):
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            levelbench.autophase(model, optimizer)
            assert model._compiled_call_impl and optimizer._optimizer_step_post_hooks
            del model, optimizer
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert record.status == "done"


class Slow(torch.autograd.Function):
    """Takes a while in both directions."""

    @staticmethod
    def forward(context, x):
        time.sleep(0.01)
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(0.02)
        return gradient


class Net(torch.nn.Module):
    """A module without annotations of its own, whose output is of the given kind."""

    def __init__(self, kind=lambda y: y):
        super().__init__()
        self.layer, self.kind = torch.nn.Linear(2, 1), kind

    def forward(self, x):
        return self.kind(Slow.apply(self.layer(x)))


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture
def tracked(tmp_path):
    """Trains in place with what ``make`` makes of a model and its hooks; the model and the record."""

    def call(model, make=lambda model: model, steps=3, before=lambda model: model, loss=torch.sum):
        with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
            before(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = levelbench.autophase(model, optimizer, [torch.ones(4, 2)] * steps)
            called = make(model)
            for batch in loader:
                loss(called(batch)).backward()
                optimizer.step()
            run.evaluate(0.5)
        (path,) = tmp_path.glob("*/*/*.jsonl")
        return called, read_record(path)

    return call


def compiled_in_place(**options):
    def make(model):
        model.compile(backend="eager", **options)
        return model

    return make


def scripted(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(model)


def traced(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(model, torch.ones(4, 2))


MAKERS = {
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "compiled whole": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "compiled in place": compiled_in_place(),
    "compiled whole in place": compiled_in_place(fullgraph=True),
    "scripted": scripted,
}


@pytest.mark.parametrize("made", MAKERS)
def test_models_can_be_compiled_and_scripted_after_they_have_got_hooks(tracked, made):
    _, record = tracked(Plain(), MAKERS[made])
    assert {"forward", "backward", "update"} <= set(record.end.phases_ns)
    assert not any("no forward pass" in each for each in record.end.suspect)


def slow_to_compile(model):
    def backend(graph, _):
        time.sleep(0.2)
        return graph.forward

    return torch.compile(model, backend=backend)


def test_what_is_compiled_within_a_pass_is_the_phase_compile(tracked):
    _, record = tracked(Plain(), slow_to_compile)
    assert record.end.phases_ns["compile"] >= 200 * MS
    assert record.end.phases_ns["forward"] < 200 * MS
    assert sum(record.end.phases_ns.values()) == record.end.t_ns


def test_what_is_compiled_after_the_run_is_not_told(tracked):
    handler = __import__("torch._dynamo.callback", fromlist=["callback_handler"]).callback_handler
    before = list(handler.start_callbacks), list(handler.end_callbacks)
    tracked(Plain(), slow_to_compile)
    assert (handler.start_callbacks, handler.end_callbacks) == before


def test_a_compiler_that_was_reset_within_the_run_does_not_disturb_its_end(tracked):
    def made(model):
        torch._dynamo.reset()
        return torch.compile(model, backend="eager")

    _, record = tracked(Plain(), made)
    assert record.status == "done"


@pytest.mark.parametrize("made", ["compiled in place", "compiled whole in place"])
def test_models_can_be_compiled_in_place_before_they_get_hooks(tracked, made):
    model = Plain()
    _, record = tracked(model, before=MAKERS[made])
    assert {"forward", "backward"} <= set(record.end.phases_ns)
    assert model._compiled_call_impl is not None


def test_a_scripted_model_runs_its_script(tracked):
    called, _ = tracked(Plain(), scripted)
    with torch.no_grad():
        called.layer.weight.zero_()
        called.layer.bias.zero_()
    assert called(torch.ones(1, 2)).item() == 0.0
    assert isinstance(called, torch.jit.ScriptModule)


def test_a_model_is_called_as_before_when_the_run_has_ended(tracked):
    model, _ = tracked(Plain())
    assert model._compiled_call_impl is None
    assert model.__jit_ignored_attributes__ == []


def test_replicas_and_shallow_copies_use_their_own_parameters(tmp_path):
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        model = Plain()
        levelbench.autophase(model)
        for twin in (model._replicate_for_data_parallel(), copy.copy(model)):
            twin.__dict__["_modules"] = {"layer": torch.nn.Identity()}
            assert twin(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]
        run.evaluate(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("kind", [lambda y: y, lambda y: {"logits": y}, lambda y: (y, None)])
def test_a_pass_that_only_looks_at_shapes_begins_no_backward_pass(tmp_path, gradients, kind):
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        model = Net(kind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = levelbench.autophase(model, optimizer, [torch.ones(4, 2)] * 3)
        with torch.set_grad_enabled(gradients):
            model(torch.ones(1, 2))
        time.sleep(0.3)
        for batch in loader:
            found = model(batch)
            (
                found["logits"] if isinstance(found, dict) else found[0] if isinstance(found, tuple) else found
            ).sum().backward()
            optimizer.step()
        run.evaluate(0.5)
    (path,) = tmp_path.glob("*/*/*.jsonl")
    phases = read_record(path).end.phases_ns
    assert phases["other"] >= 300 * MS
    assert phases["backward"] >= 60 * MS


def test_a_loop_that_calls_what_was_traced_of_a_model_is_a_doubt(tracked):
    # Tracing calls the model once, so that a pass was seen.
    _, record = tracked(Plain(), traced)
    assert any("no forward pass" in each for each in record.end.suspect)


@pytest.mark.slow
def test_a_program_whose_model_is_never_called_is_doubted_under_time_too(time_program):
    text = """
        twin = __import__("copy").deepcopy(model)
        for batch in loader:
            twin(batch).sum().backward()
            optimizer.step()
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert any("no forward pass" in each for each in record.end.suspect)


@pytest.mark.slow
def test_a_program_whose_model_is_called_is_not_doubted_under_time(time_program):
    text = """
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
        print("accuracy: 0.5")
    """
    _, record = time_program(textwrap.dedent(TORCH) + textwrap.dedent(text))
    assert not any("no forward pass" in each for each in record.end.suspect)
