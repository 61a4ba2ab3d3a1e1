"""Replay: whose row it is (index), what is in it (storage), which rows next (samplers). NumPy only."""
