"""Benchmarks from topic to table: each road beside what else could be taken, in turns, in one run."""
