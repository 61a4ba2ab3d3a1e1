"""Replay: who is in a row (ledger), what is in it (storage), which rows next (samplers). NumPy only."""
