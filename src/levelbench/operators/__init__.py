"""Level 0, operators: ONNX nodes on any framework, checked against references and measured against ceilings."""
