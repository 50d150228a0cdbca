"""Many different and good versions of a sentence."""

__version__ = "0.1.0"
