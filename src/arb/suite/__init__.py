"""Datasets that are made on your own machine: the suite, recorded by policies that come with the package."""
