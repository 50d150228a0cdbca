"""Networks: x -> memory, and (memory, prefix) -> next word."""
