"""Operators, networks, inference, conformance and the machine as tables: one module for what a command measures."""
