"""Captured environments with some of their facts changed."""

import copy


def with_(tree, **changes):
    """A copy of ``tree`` in which ``load__one_minute=2.0`` changed ``tree["load"]["one_minute"]``."""
    tree = copy.deepcopy(tree)
    for path, value in changes.items():
        *folders, last = path.split("__")
        here = tree
        for folder in folders:
            here = here[folder]
        here[last] = value
    return tree
