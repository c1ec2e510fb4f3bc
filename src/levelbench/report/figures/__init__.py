"""Figures: what they show as data, and their drawings as SVG or PNG in the colours of a page."""
