"""The zoo's networks, built once, because tests do not change them."""

from functools import cache

from levelbench.networks import zoo


@cache
def built(name):
    """The network of the zoo, built once, because tests do not change it."""
    return zoo.build(name)
