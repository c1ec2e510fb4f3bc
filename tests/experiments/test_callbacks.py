"""Callbacks of other trainers tell a tracked run its phases, steps and qualities, and end the training when it is over.

Each is driven through a stub of its trainer, which raises the events in that trainer's order. With the trainers
installed (``pip install lightning transformers accelerate keras lightgbm xgboost-cpu``) the last tests train with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from types import ModuleType, SimpleNamespace

import pytest

import levelbench
from levelbench.errors import MissingError, UnknownNameError, UsageError
from levelbench.records import read_record, summarise

pytestmark = pytest.mark.sampled(3)

MS = 0.004


class Base:
    """Stands for a trainer's class of callbacks: every event that is not overridden does nothing."""

    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)


class EarlyStopError(Exception):
    """Stands for LightGBM's."""


@pytest.fixture
def track(tmp_path):
    def start(target=0.9, **given):
        return levelbench.track("mine", target={"accuracy": target}, store=tmp_path, quiet=True, **given)

    return start


@pytest.fixture
def record(tmp_path):
    def read():
        (path,) = tmp_path.glob("*/*/*.jsonl")
        return read_record(path)

    return read


@pytest.fixture
def trainers(monkeypatch):
    """Modules with the classes that callbacks derive from."""
    for name, word in {
        "lightning.pytorch": "Callback",
        "transformers": "TrainerCallback",
        "keras.callbacks": "Callback",
        "xgboost.callback": "TrainingCallback",
        "lightgbm.callback": "EarlyStopException",
    }.items():
        module = ModuleType(name)
        setattr(module, word, EarlyStopError if name.startswith("lightgbm") else type(word, (Base,), {}))
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(sys.modules, name.partition(".")[0], module)


def wait():
    time.sleep(MS)


def lightning(callback, qualities, metric="accuracy"):
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_idx=0))
    state = SimpleNamespace(sanity_checking=True, should_stop=False, num_training_batches=2, callback_metrics={})
    trainer = SimpleNamespace(**vars(state), current_epoch=0, fit_loop=loop)
    for at in (callback.on_validation_start, callback.on_validation_end):
        at(trainer, None)
    trainer.sanity_checking = False
    callback.on_train_start(trainer, None)
    for trainer.current_epoch, quality in enumerate(qualities):
        for loop.epoch_loop.batch_idx in range(2):
            wait()
            batch = [[0] * 3, [0] * 3]
            callback.on_train_batch_start(trainer, None, batch, loop.epoch_loop.batch_idx)
            wait()
            callback.on_before_backward(trainer, None, None)
            wait()
            callback.on_after_backward(trainer, None)
            callback.on_before_optimizer_step(trainer, None, None)
            wait()
            callback.on_train_batch_end(trainer, None, None, batch, loop.epoch_loop.batch_idx)
        callback.on_validation_start(trainer, None)
        wait()
        trainer.callback_metrics = {metric: quality, "train_loss": 1.0}
        callback.on_validation_end(trainer, None)
        if trainer.should_stop:
            break
    callback.on_train_end(trainer, None)


def transformers(callback, qualities):
    args = SimpleNamespace(train_batch_size=3, gradient_accumulation_steps=1)
    control = SimpleNamespace(should_evaluate=False, should_training_stop=False)
    callback.on_train_begin(args, None, control)
    for epoch, quality in enumerate(qualities):
        for _ in range(2):
            wait()
            callback.on_step_begin(args, None, control)
            wait()
            callback.on_pre_optimizer_step(args, None, control)
            wait()
            callback.on_optimizer_step(args, None, control)
            callback.on_step_end(args, None, control)
        control.should_evaluate = True
        callback.on_epoch_end(args, None, control)
        wait()
        metrics = {"eval_accuracy": quality, "eval_loss": 1.0}
        callback.on_evaluate(args, SimpleNamespace(epoch=epoch + 1.0), control, metrics=metrics)
        control.should_evaluate = False
        if control.should_training_stop:
            break
    callback.on_train_end(args, None, control)


def keras(callback, qualities):
    callback.model = SimpleNamespace(stop_training=False)
    callback.on_train_begin()
    for epoch, quality in enumerate(qualities):
        for batch in range(2):
            wait()
            callback.on_train_batch_begin(batch)
            wait()
            callback.on_train_batch_end(batch)
        callback.on_test_begin()
        wait()
        callback.on_epoch_end(epoch, {"accuracy_of_training": 1.0, "val_accuracy": quality})
        if callback.model.stop_training:
            break
    callback.on_train_end()
    callback.on_test_begin()


def xgboost(callback, qualities):
    log = {"train": {"accuracy": []}, "val": {"accuracy": []}}
    for at, quality in enumerate(qualities):
        if callback.before_iteration(None, at, log):
            break
        wait()
        log["train"]["accuracy"].append(1.0)
        log["val"]["accuracy"].append(quality)
        if callback.after_iteration(None, at, log):
            break


def lightgbm(callbacks, qualities):
    before, after = callbacks
    assert (before.before_iteration, after.before_iteration) == (True, False)
    for at, quality in enumerate(qualities):
        before(SimpleNamespace(iteration=at))
        wait()
        found = [("train", "accuracy", 1.0, True), ("val", "accuracy", quality, True)]
        try:
            after(SimpleNamespace(iteration=at, evaluation_result_list=found))
        except EarlyStopError:
            break


DRIVEN = {
    "lightning": (lightning, ["data", "forward", "backward", "update", "evaluate"], 2, 3),
    "transformers": (transformers, ["data", "train", "update", "evaluate"], 2, 3),
    "keras": (keras, ["data", "train", "evaluate"], 2, 8),
    "xgboost": (xgboost, ["train"], 1, 8),
    "lightgbm": (lightgbm, ["train"], 1, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("trainer", DRIVEN)
def test_phases_steps_epochs_and_examples_are_those_of_the_trainer(trainer, trainers, track, record):
    drive, phases, steps, examples = DRIVEN[trainer]
    with track() as run:
        drive(run.callback(trainer, examples=8 if examples == 8 else None), [0.1, 0.2, 0.3])
    found = record()
    for phase in phases:
        assert found.end.phases_ns[phase] >= 3 * MS * 1e9, phase
    assert sum(found.end.phases_ns.values()) == found.end.t_ns
    last = found.evaluations[-1]
    assert (last.step, last.epoch, last.samples) == (3 * steps, 3.0, 3 * steps * examples)
    assert [each.quality["validation"] for each in found.evaluations] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("trainer", DRIVEN)
def test_the_training_ends_when_the_target_is_reached(trainer, trainers, track, record):
    with track() as run:
        DRIVEN[trainer][0](run.callback(trainer), [0.1, 0.95, 0.95, 0.95, 0.95])
    assert len(record().evaluations) == 3
    assert run.reached


@pytest.mark.parametrize("trainer", DRIVEN)
def test_the_training_ends_when_the_budget_is_spent(trainer, trainers, track, record):
    with track(budget_s=1e-6) as run:
        run.evaluate(0.0)
        DRIVEN[trainer][0](run.callback(trainer), [0.1] * 5)
    assert len(record().evaluations) <= 3
    assert run.over


def test_a_metric_may_have_another_name(trainers, track, record):
    with track() as run:
        lightning(run.callback("lightning", metric="val_acc"), [0.5], metric="val_acc")
    assert record().evaluations[0].quality["validation"] == 0.5


def test_a_metric_that_is_not_logged_is_named_with_those_that_are(trainers, track):
    with pytest.raises(UsageError, match="logs train_loss, val_top1"), track() as run:
        lightning(run.callback("lightning"), [0.5], metric="val_top1")


def test_what_lightning_logs_in_training_is_no_quality(trainers, track, record):
    with track() as run:
        callback = run.callback("lightning")
        loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_idx=1))
        trainer = SimpleNamespace(sanity_checking=False, should_stop=False, num_training_batches=2, fit_loop=loop)
        trainer.current_epoch, trainer.callback_metrics = 0, {"accuracy": 0.99}
        callback.on_train_start(trainer, None)
        for quality in (0.5, 0.5):
            callback.on_train_batch_end(trainer, None, None, [[0]], 1)
            callback.on_validation_start(trainer, None)
            trainer.callback_metrics = {"accuracy": 0.99, "val_accuracy": quality}
            callback.on_validation_end(trainer, None)
            trainer.current_epoch += 1
    assert [each.quality["validation"] for each in record().evaluations] == [0.5, 0.5]


def test_the_quality_on_training_data_is_not_taken_for_that_on_held_out_data(trainers, track, record):
    with track() as run:
        callback = run.callback("keras")
        callback.model = None
        callback.on_train_begin()
        callback.on_epoch_end(0, {"accuracy": 1.0, "val_accuracy": 0.5})
        callback.on_epoch_end(1, {"accuracy": 1.0})
    assert [each.quality["validation"] for each in record().evaluations] == [0.5]


def test_xgboosts_training_set_is_not_taken_for_held_out_data_where_it_comes_last(trainers, track, record):
    with track() as run:
        callback = run.callback("xgboost", examples=4)
        callback.before_iteration(None, 0, {})
        callback.after_iteration(None, 0, {"eval": {"accuracy": [0.5]}, "train": {"accuracy": [1.0]}})
    assert [each.quality["validation"] for each in record().evaluations] == [0.5]


def test_the_mean_of_xgboosts_cross_validation_is_its_quality(trainers, track, record):
    with track() as run:
        callback = run.callback("xgboost", examples=4)
        callback.before_iteration(None, 0, {})
        callback.after_iteration(None, 0, {"train": {"accuracy": [(1.0, 0.0)]}, "test": {"accuracy": [(0.5, 0.1)]}})
    assert [each.quality["validation"] for each in record().evaluations] == [0.5]


def test_a_cross_validation_of_xgboosts_ends_before_an_iteration_and_not_after_one(trainers, track, record):
    with track() as run:
        callback, model = run.callback("xgboost", examples=4), SimpleNamespace(cvfolds=[])
        for at in range(2):
            assert not callback.before_iteration(model, at, {})
            assert not callback.after_iteration(model, at, {"test": {"accuracy": [(1.0, 0.0)]}})
        assert callback.before_iteration(model, 2, {})


def test_lightgbms_training_set_is_not_taken_for_held_out_data_where_it_comes_last(trainers, track, record):
    with track() as run:
        before, after = run.callback("lightgbm", examples=4)
        found = [("valid_0", "accuracy", 0.5, True), ("training", "accuracy", 1.0, True)]
        state = SimpleNamespace(iteration=0, evaluation_result_list=found)
        before(state)
        after(state)
    assert [each.quality["validation"] for each in record().evaluations] == [0.5]


def test_several_batches_of_keras_in_one_event_are_so_many_examples(trainers, track, record):
    with track() as run:
        callback = run.callback("keras", examples=8)
        callback.model = None
        callback.on_train_begin()
        for epoch in range(2):
            callback.on_epoch_begin(epoch)
            for last in (4, 9):
                callback.on_train_batch_begin(last - 4)
                callback.on_train_batch_end(last)
            callback.on_epoch_end(epoch, {"val_accuracy": 0.5})
    assert [each.samples for each in record().evaluations] == [80, 160]


def test_an_evaluation_before_training_is_at_step_0(trainers, track, record):
    with track() as run:
        callback = run.callback("lightning")
        run.evaluate(0.1)
        lightning(callback, [0.5])
    assert [each.step for each in record().evaluations] == [0, 2]
    assert summarise(record()).contradictions == []


def test_a_trainer_that_is_unknown_is_named_with_those_there_are(track):
    with track() as run:
        run.evaluate(0.0)
        with pytest.raises(UnknownNameError, match="lightning"):
            run.callback("caffe")


def test_a_trainer_that_is_not_installed_is_missing(track, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras.callbacks", None)
    with track() as run:
        run.evaluate(0.0)
        with pytest.raises(MissingError, match="keras is not installed"):
            run.callback("keras")


def test_what_is_tested_after_training_is_no_evaluation(trainers, track, record):
    with track() as run:
        keras(run.callback("keras"), [0.1])
        before = record_phase(run)
        wait()
    assert record().end.phases_ns["evaluate"] < before + MS * 1e9


def record_phase(run):
    return run._timeline.totals_ns()["evaluate"]


DIGITS = """
    import numpy as np, levelbench
    from levelbench.training import datasets
    digits = datasets.digits.load()
    X, y = digits.train.inputs.reshape(-1, 64), digits.train.labels
    V, w = digits.validation.inputs.reshape(-1, 64), digits.validation.labels
"""
PROGRAMS = {
    "lightning": """
    import torch, lightning
    from torch.nn.functional import cross_entropy
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(64, 10)
        def training_step(self, batch, index):
            return cross_entropy(self.net(batch[0]), batch[1])
        def validation_step(self, batch, index):
            self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
    def loader(a, b):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(a), torch.from_numpy(b)), 64)
    with levelbench.track("digits-of-others", target={"accuracy": 0.9}) as run:
        callbacks = [run.callback("lightning")]
        trainer = lightning.Trainer(max_epochs=30, logger=False, enable_checkpointing=False, callbacks=callbacks)
        trainer.fit(Model(), loader(X, y), loader(V, w))
    """,
    "transformers": """
    import torch, transformers
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(64, 10)
        def forward(self, x, labels=None):
            out = self.net(x)
            return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}
    def data(a, b):
        return [{"x": x, "labels": int(label)} for x, label in zip(a, b)]
    def score(found):
        return {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())}
    with levelbench.track("digits-of-others", target={"accuracy": 0.9}) as run:
        args = transformers.TrainingArguments(
            output_dir="out", num_train_epochs=30, per_device_train_batch_size=64, learning_rate=0.02, report_to=[],
            eval_strategy="epoch", save_strategy="no", use_cpu=True, remove_unused_columns=False,
            label_names=["labels"],
        )
        callbacks = [run.callback("transformers")]
        transformers.Trainer(
            Model(), args, train_dataset=data(X, y), eval_dataset=data(V, w), compute_metrics=score, callbacks=callbacks
        ).train()
    """,
    "keras": """
    import keras
    with levelbench.track("digits-of-others", target={"accuracy": 0.9}) as run:
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
        model.fit(X, y, 64, 30, verbose=0, validation_data=(V, w), callbacks=[run.callback("keras", examples=64)])
    """,
    "xgboost": """
    import xgboost
    with levelbench.track("digits-of-others", target={"merror": 0.1}) as run:
        wanted = {"objective": "multi:softprob", "num_class": 10, "eval_metric": "merror"}
        evals = [(xgboost.DMatrix(V, w), "val")]
        xgboost.train(wanted, xgboost.DMatrix(X, y), 100, evals=evals, callbacks=[run.callback("xgboost")])
    """,
    "lightgbm": """
    import lightgbm
    with levelbench.track("digits-of-others", target={"multi_error": 0.1}) as run:
        wanted = {"objective": "multiclass", "num_class": 10, "metric": "multi_error", "verbose": -1}
        valid = [lightgbm.Dataset(V, w)]
        lightgbm.train(wanted, lightgbm.Dataset(X, y), 100, valid_sets=valid, callbacks=run.callback("lightgbm"))
    """,
}


@pytest.mark.parametrize("trainer", PROGRAMS)
def test_a_program_of_the_trainer_itself_reaches_its_target_and_stops(trainer, tmp_path, record):
    text = "\n".join([textwrap.dedent(DIGITS), textwrap.dedent(PROGRAMS[trainer])])
    wanted = [trainer, "accelerate"] if trainer == "transformers" else [trainer]
    code = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {wanted})))"
    if subprocess.run([sys.executable, "-c", code], check=False).returncode != 0:
        pytest.skip("the trainer is not installed")
    environment = {"KERAS_BACKEND": "jax", **os.environ, "LEVELBENCH_STORE": str(tmp_path)}
    (tmp_path / "program.py").write_text(text)
    words = [sys.executable, "program.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = record()
    assert found.end.stopped_by == "target reached"
    assert sum(found.end.phases_ns.values()) == found.end.t_ns
    assert {"train", "forward"} & {name for name, ns in found.end.phases_ns.items() if ns}
