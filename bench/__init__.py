"""Benchmarks: each file is one measurement with its own command; figures and commands stand in RESULTS.md."""
