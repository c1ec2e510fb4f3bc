"""Measures the inference of trained networks: which network, on which data, how driven, in which processes."""
