"""How parameters are fitted: the bound, on transformers' own trainer."""
