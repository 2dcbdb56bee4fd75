"""Kept for tools that still ask for it; everything is in pyproject.toml."""

from setuptools import setup

setup()
