"""Makes the network that a specification names, and computes its sizes and costs before it is measured.

It comes from the zoo or a file or is native, may be transformed, and gets a loss for training. In all cases it is known
before it runs which network is measured, with which inputs, and with which untransformed network it must agree.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, LevelbenchError, UsageError
from levelbench.networks.cost import network_cost, signature_of
from levelbench.networks.native import NativeModel, load_native
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import batch_axis, dtype_of
from levelbench.operators.cost import Cost
from levelbench.records.networks import NetworkCase, NetworkFacts, NetworkSpecification

if TYPE_CHECKING:
    from levelbench.networks.transforms import Transform
    from levelbench.networks.transforms.microbatch import SplitPlan

OUTPUT_TOLERANCE = 1e-4
"""For outputs in float32, relative to the tensor's largest magnitude."""
GRADIENT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Made:
    """What a specification names: ``network`` is measured (``None`` for a native model).

    ``transformed`` is the network after the arm's transforms, without the loss that a training step adds.
    ``parameters`` are values by name (``None``: drawn from the seed). The tolerances are for the comparison with the
    original network, relative to each tensor's largest magnitude. Without one for gradients, the transforms changed the
    parameters. ``changes`` says what each transform changed, ``memory`` is the plan to stay within a memory limit.
    """

    network: Network | None = None
    transformed: Network | None = None
    native: NativeModel | None = None
    parameters: dict[str, NDArray[Any]] | None = None
    output_tolerance: float = OUTPUT_TOLERANCE
    gradient_tolerance: float | None = GRADIENT_TOLERANCE
    changes: tuple[str, ...] = ()
    memory: SplitPlan | None = None


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_case(specification: NetworkSpecification, spare: int = 0) -> Made:
    """The network of a specification, with so many bytes of a memory limit left for what plans do not see.

    ``DefinitionError`` if its file has changed since the plan.
    """
    case, arm = specification.case, specification.arm
    if case.kind == "native":
        _same_file(case, Path(case.path.rpartition(":")[0]))
        if arm.transforms:
            asked = f"{arm.transforms[0]} on {case.name}"
            raise UsageError(asked, "a native module has no graph to transform", "export it to ONNX, or leave it out")
        return Made(native=load_native(case.path, case.options))
    base = build_base(case)
    refuse_fixed_batch(base, case)
    made = _transformed(base, specification, spare)
    network = made.transformed
    if network is not None and specification.direction == "backward":
        network = trained(network, specification.loss)
    return replace(made, network=network)


def trained(network: Network, loss: str = "", *, training: bool = True) -> Network:
    """The network with a loss (its own, or ``loss``, or cross-entropy), in training mode."""
    lossy = network if network.loss else network.with_loss(loss or "cross-entropy")
    return lossy.training() if training else lossy


def build_base(case: NetworkCase) -> Network:
    """The unchanged network of the zoo or the file."""
    if case.kind == "zoo":
        from levelbench.networks import zoo

        return zoo.build(case.name, **case.options)
    from levelbench.networks.files import load

    _same_file(case, Path(case.path))
    return load(Path(case.path))


def refuse_fixed_batch(network: Network, case: NetworkCase) -> None:
    """Raise ``UsageError`` if the case asks for a batch other than the one the model's inputs are fixed to."""
    if case.batch == 1 or any(batch_axis(each, network.sizes) is not None for each in network.inputs):
        return
    firsts = sorted({each.shape[0] for each in network.inputs if each.shape and isinstance(each.shape[0], int)})
    if case.batch not in firsts:
        fixed = f"its inputs have fixed shapes ({', '.join(str(each.shape) for each in network.inputs)})"
        raise UsageError(f"a batch of {case.batch} for {case.name}", fixed, "measure it unchanged: --batch 1")


def _same_file(case: NetworkCase, path: Path) -> None:
    if case.digest and path.is_file() and digest_of(path) != case.digest:
        found = "it changed since the benchmark was planned"
        raise DefinitionError(f"the file {path}", found, "run the command again")


def _transformed(base: Network, specification: NetworkSpecification, spare: int) -> Made:
    """The network after the arm's transforms, with its parameters' values and how far it may differ from ``base``."""
    words = specification.arm.transforms
    if not words:
        return Made(transformed=base)
    from levelbench.networks.transforms import apply_all

    done = apply_all([_transform(word, specification.case, spare) for word in words], base, base.initialise(0))
    last = done[-1]
    gradients = [each.tolerance.gradients for each in done]
    return Made(
        transformed=last.network,
        parameters=last.parameters,
        # Each may add its own error to those of the previous ones.
        output_tolerance=sum(each.tolerance.outputs for each in done),
        gradient_tolerance=None if None in gradients else sum(each for each in gradients if each is not None),
        changes=tuple(f"{each.name}: {line}" for each in done for line in each.changed or ("it changed nothing",)),
        memory=next((each.details for each in done if each.name == "microbatch"), None),
    )


def _transform(word: str, case: NetworkCase, spare: int) -> Transform:
    """The transform of ``name``, ``name:setting`` or ``name:setting;other=value``, with the case's batch and sizes."""
    from levelbench.networks.transforms import parse, settings

    known = settings(word.partition(";")[0].partition(":")[0])
    common = {"batch": case.batch, "sizes": case.sizes, "spare": spare}
    return parse(word, **{name: value for name, value in common.items() if name in known})[0]


def times_of(direction: str) -> int:
    """A training step counts as three forwards, the usual convention: a product has two gradients, each a product."""
    return 3 if direction == "backward" else 1


@dataclass(frozen=True)
class Known:
    """The facts for the record, the cost of each node by its index in the network, and each value's bytes by name."""

    facts: NetworkFacts
    nodes: Mapping[int, Cost]
    value_bytes: Mapping[str, int]


def known_of(made: Made, specification: NetworkSpecification, framework: dict[str, Any], mode: str) -> Known:
    """The facts about the measured network; unknown ones (of a native model, of open shapes) are ``None``."""
    network, facts = made.transformed, NetworkFacts(framework=framework, mode=mode, transforms=made.changes)
    if network is None:
        return Known(facts, {}, {})
    dtype = dtype_of_network(network)
    sizes = [math.prod(each.shape) * dtype_of(each.dtype).itemsize for each in network.parameters]
    common = {"parameters": network.parameter_count(), "parameter_bytes": sum(sizes), "nodes": len(network.nodes)}
    try:
        cost = network_cost(network, specification.case.batch, specification.case.sizes)
    except LevelbenchError:
        return Known(structs.replace(facts, dtype=dtype, **common), {}, {})
    backward = specification.direction == "backward"
    times = times_of(specification.direction)
    facts = structs.replace(
        facts,
        dtype=dtype,
        flops=cost.flops * times,
        multiply_adds=cost.multiply_adds * times,
        # The bytes that a training step must move depend on what is kept and what is recomputed.
        bytes=None if backward else cost.bytes,
        activation_bytes=cost.training_activation_bytes if backward else cost.activation_bytes,
        unknown=dict(cost.unknown),
        **common,
    )
    sized = infer_shapes(network, {**specification.case.sizes, "batch": specification.case.batch})
    value_bytes = {name: found.bytes for name, each in sized.items() if (found := signature_of(each)) is not None}
    return Known(facts, {each.index: each.cost for each in cost.nodes}, value_bytes)


def dtype_of_network(network: Network) -> str:
    """The dtype of most of its parameters (``int8`` includes ``uint8``), else of its first floating-point input."""
    counts: Counter[str] = Counter()
    for each in network.parameters:
        counts[each.dtype] += each.size
    held = {each.name for each in network.parameters}
    for each in network.model.graph.initializer:
        if each.name not in held and each.data_type in (2, 3):
            counts["int8"] += math.prod(each.dims)
    if counts:
        return counts.most_common(1)[0][0]
    return next((each.dtype for each in network.inputs if each.dtype.startswith(("float", "bfloat"))), "float32")
