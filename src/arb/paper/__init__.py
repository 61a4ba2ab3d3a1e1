"""The paper's experiments, its published numbers, and tables with ours beside them."""
