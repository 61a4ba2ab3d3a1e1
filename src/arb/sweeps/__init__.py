"""Grids of runs: laid out in `grid`, kept in a folder with a plan, worked off by local processes or by Ray."""
