"""Evaluation of outputs under the paper's protocol, whatever produced them."""
