"""Fuzzing: generated networks on which all frameworks have to agree; ``python -m levelbench.networks.fuzz``."""
