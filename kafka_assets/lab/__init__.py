"""Experiments with real kills: what can be lost, what can be doubled, and when. Nothing here is simulated."""
