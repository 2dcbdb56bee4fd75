"""How the Java of a test is started."""

from __future__ import annotations

QUICKLY_COMPILED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test run is over before what the better compiler makes has paid for its making: four tenths of Spark's time."""
QUICK_SPARK = f"spark.driver.extraJavaOptions {QUICKLY_COMPILED}\n"
"""The same for a Spark server of the tests: what is said last in its configuration counts."""
