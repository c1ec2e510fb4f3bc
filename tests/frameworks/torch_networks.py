"""A network for tests of PyTorch's executor, and helpers."""

from levelbench.networks import Draw, GraphBuilder


def branching():
    """Shape arithmetic, a value read twice, normalisation with statistics, and an unused parameter."""
    graph = GraphBuilder("branching")
    x = graph.input("x", ("batch", 4, 3))
    scale = graph.parameter("scale", (4,), Draw("normal", 1.0))
    bias = graph.parameter("bias", (4,), Draw("normal", 1.0))
    mean = graph.parameter("mean", (4,), Draw("constant", 0.5), trainable=False)
    variance = graph.parameter("variance", (4,), Draw("constant", 2.0), trainable=False)
    weight = graph.parameter("weight", (5, 12), Draw("normal", 0.3))
    graph.parameter("idle", (2,), Draw("normal", 1.0))
    y = graph.node("BatchNormalization", x, scale, bias, mean, variance)
    y = graph.node("Add", graph.node("Relu", y), y)
    rows = graph.node("Gather", graph.node("Shape", y), graph.constant([0]))
    y = graph.node("Reshape", y, graph.node("Concat", rows, graph.constant([-1]), axis=0))
    graph.output(graph.node("Gemm", y, weight, transB=1), "logits")
    return graph.build()


def native(backend, inputs):
    return [backend.array(each) for each in inputs.values()]


def losses_and_gradients(backend, network, inputs, **options):
    executor = backend.executor(network, network.initialise(1), **options)
    loss, gradients = executor.infer_and_backprop(*native(backend, inputs))
    return backend.host(loss), {name: backend.host(each) for name, each in gradients.items()}
