"""Answers queries with a network, sample by index: what the scenarios drive."""

from levelbench.networks.inference.answering import Answerer
from levelbench.networks.inference.feeding import Feed, PreparedFeed, RawFeed

__all__ = ["Answerer", "Feed", "PreparedFeed", "RawFeed"]
