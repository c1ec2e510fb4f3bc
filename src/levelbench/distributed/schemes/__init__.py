"""The schemes, one file each; they are found by name through the entry points ``levelbench.schemes``."""
