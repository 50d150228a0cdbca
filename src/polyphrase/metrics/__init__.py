"""Metrics: strings in, a score with its signature out; never a model of this library."""
