"""Level 0, operators: an ONNX node on any framework, checked against references and measured against ceilings."""
