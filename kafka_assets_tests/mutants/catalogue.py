"""Every break that a test must notice, by the promise of DESIGN.md that it would cost."""

from __future__ import annotations

from kafka_assets_tests.mutants.landing import OF_MERGES, OF_RESULTS, OF_ROADS
from kafka_assets_tests.mutants.live import OF_LIVE
from kafka_assets_tests.mutants.protocol import OF_FENCES, OF_LOCKS, OF_PLANNING

MUTANTS = (*OF_FENCES, *OF_LOCKS, *OF_PLANNING, *OF_RESULTS, *OF_ROADS, *OF_MERGES, *OF_LIVE)
