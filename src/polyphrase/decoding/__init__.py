"""From a memory to words: one z per sample, then any search; one loop for every system."""
