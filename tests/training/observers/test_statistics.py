"""Norms of weights, updates and gradients."""

import csv

import numpy as np
import pytest

from levelbench.errors import UsageError
from levelbench.training.observers.base import Observer
from levelbench.training.observers.files import Statistics


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_row_for_each_parameter_at_each_evaluation_and_one_for_all(trained, tmp_path):
    trainer = trained(Statistics(tmp_path, "run"))
    found = rows(tmp_path / "run-statistics.csv")
    names = [*trainer.executor.parameters, "*"]
    assert [row["parameter"] for row in found] == names * 3
    last = {row["parameter"]: row for row in found[-len(names) :]}
    for name, value in trainer.executor.parameters.items():
        assert float(last[name]["weight_norm"]) == pytest.approx(float(np.linalg.norm(value)))
        assert float(last[name]["weight_std"]) == pytest.approx(float(value.std()), rel=1e-5)
    norms = [float(last[name]["weight_norm"]) ** 2 for name in trainer.executor.parameters]
    assert float(last["*"]["weight_norm"]) == pytest.approx(sum(norms) ** 0.5)


def test_gradient_norms_are_those_of_the_gradients_before_the_optimizer_takes_them(trained, tmp_path):
    class Witness(Observer):
        squares: list[dict[str, float]] = []  # noqa: RUF012

        def on_prepared(self, context):
            backward = context.executor.backward

            def watched():
                gradients = backward()
                self.squares.append({name: float((each * each).sum()) for name, each in gradients.items()})
                return gradients

            context.executor.backward = watched

    witness = Witness()
    trained(witness, Statistics(tmp_path, "run", every=1))
    found = [row for row in rows(tmp_path / "run-statistics.csv") if row["parameter"] != "*"][-4:]
    for row in found:
        expected = np.sqrt(np.mean([each[row["parameter"]] for each in witness.squares[-3:]]))
        assert float(row["gradient_norm"]) == pytest.approx(expected, rel=1e-5)


def test_looking_changes_nothing_of_the_training(trained, tmp_path):
    watched, alone = trained(Statistics(tmp_path, "run")), trained()
    for name, value in alone.executor.parameters.items():
        assert np.array_equal(value, watched.executor.parameters[name])


def test_afterwards_the_executor_is_as_it_was(trained, tmp_path):
    assert "backward" not in vars(trained(Statistics(tmp_path, "run")).executor)


def test_an_interval_of_no_steps_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no interval"):
        Statistics(tmp_path, "run", every=0)
