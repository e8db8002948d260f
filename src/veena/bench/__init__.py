"""Benchmarks and experiments, reached by the command line."""
