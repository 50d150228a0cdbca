"""Corpora: reading, fetching, auditing and splitting pairs of source and references."""
