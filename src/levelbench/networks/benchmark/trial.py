"""The executor of a case with its native inputs: the measured call, and whether its first result was right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.benchmark.cases import Made, read_inputs
from levelbench.networks.benchmark.checking import Correctness, compare
from levelbench.networks.benchmark.reference import KeptTensor, Reference, cut, first_rows, tensor_of, to_be_checked
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.network import Network
from levelbench.records.networks import NetworkSpecification

Host = NDArray[Any]


class PreparedCase:
    """Makes the executor and its inputs; the host's copies of both are let go of, so that no peak holds them."""

    def __init__(self, backend: Backend, made: Made, specification: NetworkSpecification, mode: str) -> None:
        self.backend, self.made, self.specification, self.mode = backend, made, specification, mode
        self._trains = specification.direction == "backward"
        self.executor = self._executor(made.network, self._trains)
        self.inputs = self._native(self._hosted_inputs())
        self._found: Any = None
        self._kept: dict[str, KeptTensor] = {}

    def work(self) -> None:
        """The measured call: it ends when its results are there, and lets go of them."""
        self._finished()

    def first(self) -> None:
        """The first call; what it gave waits to be kept."""
        self._found = self._finished()

    def _finished(self) -> Any:
        if not self._trains:
            outputs = self.executor.infer(*self.inputs)
            self.backend.finish(outputs)
            return outputs
        loss, gradients = self.executor.infer_and_backprop(*self.inputs)
        self.backend.finish([loss, *gradients.values()])
        return loss, gradients

    def parameter_count(self) -> int:
        """Trainable scalars that the executor holds."""
        return sum(math.prod(each.shape) for each in self.executor.parameters.values())

    def keep(self, reference: Reference) -> None:
        """Keep of the first call's results what is compared, and let go of them: no peak shall hold them."""
        found, self._found = self._found, None
        wanted = reference.tensors
        if self._trains:
            named = [("loss", found[0]), *((f"gradient of {name}", each) for name, each in found[1].items())]
        else:
            named = [(f"output {at}", each) for at, each in enumerate(found)]
        for name, each in named:
            if name in wanted:
                self._kept[name] = tensor_of(_like(self._host(each), wanted[name].shape, reference.facts.rows))

    def check(self, reference: Reference) -> Correctness:
        """Compare what was kept of the first call with the reference."""
        facts, kept, case = reference.facts, self._kept, self.specification.case
        if facts.reason or self.made.transformed is None:
            return Correctness(checked=f"not checked: {facts.reason}")
        allowed = self.made.output_tolerance, self.made.gradient_tolerance
        if self._trains and (facts.rows != case.batch or facts.evaluation):
            kept = self._step_of(facts.rows)
        finding = compare(reference, kept, allowed)
        # Rows of the whole batch first: that is what is measured. In the zoo each row is known to stand for itself; a
        # foreign model whose rows change each other is run with those alone.
        if not finding.wrong or self._trains or facts.rows == case.batch or case.kind == "zoo":
            return finding
        alone = compare(reference, self._alone(facts.rows), allowed)
        said = f"{alone.checked}, run alone: within a batch of {case.batch} the rows change each other"
        return finding if alone.wrong else Correctness("", said, alone.errors)

    def _host(self, array: Any) -> Host:
        return np.asarray(self.backend.host(array))

    def _alone(self, rows: int) -> dict[str, KeptTensor]:
        network = self.made.network
        assert network is not None
        outputs = self.executor.infer(*self._native(first_rows(network, self._hosted_inputs(), rows)))
        return {f"output {at}": tensor_of(self._host(each)) for at, each in enumerate(outputs)}

    def _step_of(self, rows: int) -> dict[str, KeptTensor]:
        """A training step of the first rows, as the reference made it."""
        base = self.made.transformed
        assert base is not None
        network, _ = to_be_checked(base, self.specification)
        case = self.specification.case
        inputs = first_rows(network, network.make_inputs(case.batch, 0, case.sizes), rows)
        executor = self._executor(network, trains=True)
        loss, gradients = executor.infer_and_backprop(*self._native(inputs))
        found = {f"gradient of {name}": tensor_of(self._host(each)) for name, each in gradients.items()}
        return {"loss": tensor_of(self._host(loss)), **found}

    def _executor(self, network: Network | None, trains: bool) -> Executor:
        if network is None:
            return self.backend.native(self.made.native, self.mode)
        values = network.initialise(0) if self.made.parameters is None else self.made.parameters
        return self.backend.executor(network, values, mode=self.mode, trains=trains)

    def _hosted_inputs(self) -> dict[str, Host]:
        """The inputs that the measured call takes, in its order."""
        case, network, native = self.specification.case, self.made.network, self.made.native
        if network is not None:
            made = network.make_inputs(case.batch, 0, case.sizes)
            return made if self._trains else {name: made[name] for name in read_inputs(network)}
        assert native is not None
        found = native.make_inputs(case.batch, 0, case.sizes)
        if self._trains:
            outputs = self.executor.infer(*self._native(found))
            found["labels"] = native.make_labels(np.shape(self._host(outputs[0])))
        return found

    def _native(self, inputs: Mapping[str, Host]) -> list[Any]:
        return [self.backend.array(each) for each in inputs.values()]


def _like(array: Host, shape: tuple[int, ...], rows: int) -> Host:
    """The first rows along the one axis on which ``array`` is longer than ``shape``; itself where there is none."""
    if array.ndim != len(shape):
        return array
    longer = [axis for axis, (a, b) in enumerate(zip(array.shape, shape, strict=True)) if a != b]
    return cut(array, longer[0], rows) if len(longer) == 1 else array
