"""Compares a sample of the answers with the reference of ``levelbench network``, where no quality is measured.

Without it, an engine that answers new inputs with old results would be called valid, and faster than any other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host
from levelbench.errors import LevelbenchError
from levelbench.experiments.inference.subject import Subject
from levelbench.networks.benchmark.cases import OUTPUT_TOLERANCE
from levelbench.networks.benchmark.reference import LIMIT_FLOPS, compare, expected, named, tensor_of
from levelbench.networks.cost import network_cost
from levelbench.networks.inference import Answerer
from levelbench.networks.inspect import random_values
from levelbench.networks.network import read_inputs
from levelbench.records.inference import WRONG_ANSWERS

_MOST_CALLS = 4


def check_answers(subject: Subject, answerer: Answerer, samples: int, *, alone: bool) -> tuple[str, str]:
    """What is wrong with the answers (empty if nothing is), and what they were compared with, or why they were not.

    The samples are the last ones, since the first are what an engine that remembers has seen first. ``alone``: the rows
    of a batch do not affect each other, so the reference may compute a part of one.
    """
    network, batch = subject.network, answerer.batch
    if random_values(network.model.graph):
        return "", "the answers were not checked: the network draws random numbers"
    wanted = set(read_inputs(network))
    values = [each for each in network.inputs if each.name in wanted]

    def hosted(indices: NDArray[np.int64]) -> dict[str, Host]:
        rows = answerer.feed.inputs(indices)
        return {each.name: np.asarray(answerer.backend.host(row)) for each, row in zip(values, rows, strict=True)}

    try:
        given = hosted(np.zeros(batch, np.int64))
        sizes = {
            name: size
            for each in values
            for name, size in zip(each.shape or (), given[each.name].shape, strict=False)
            if isinstance(name, str)
        }
        flops = network_cost(network, batch, sizes).flops
        affordable = LIMIT_FLOPS / flops if flops else _MOST_CALLS
        rows = batch if affordable >= 1 else max(1, int(batch * affordable))
        if rows < batch and not alone:
            return "", f"the answers were not checked: a batch of {batch} takes the reference too long"
        calls = min(_MOST_CALLS, max(1, samples // batch), max(1, int(affordable)))
        by = ""
        for indices in np.resize(np.arange(samples)[::-1], (calls, batch)):
            inputs = {name: each[:rows] for name, each in hosted(indices).items()}
            reference = expected(network, inputs, rows)
            if reference.facts.reason:
                return "", f"the answers were not checked: {reference.facts.reason}"
            answers = [each[:rows] for each in answerer.outputs(indices)]
            found = {name: tensor_of(each) for name, each in named(answers, trains=False).items()}
            finding = compare(reference, found, (OUTPUT_TOLERANCE, None))
            if finding.wrong:
                return f"{WRONG_ANSWERS}: {finding.wrong} ({finding.checked})", "the answers are wrong"
            by = reference.facts.by
    except LevelbenchError as error:
        return "", f"the answers were not checked: {error.found}"
    return "", f"{min(calls * rows, samples)} of the answers agree with those of {by}"
