"""The zoo's networks, made once, for they are only looked at."""

from functools import cache

from levelbench.networks import zoo


@cache
def built(name):
    """The network as the zoo has it; made once, for it is only looked at."""
    return zoo.build(name)
