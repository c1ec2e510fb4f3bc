"""Fuzzing: generated networks on which all frameworks must agree; ``python -m levelbench.networks.fuzz``."""
