"""Gradient compression: what travels in place of a gradient, and how ranks add up what does."""
