"""Framework adapters: one folder a framework, found through the entry points ``levelbench.frameworks``."""
