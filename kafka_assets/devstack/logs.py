"""The logging of the Java services: into the one file that `ps` and every error message name."""

from __future__ import annotations

from pathlib import Path

# The console is the same file, too (what Java says before log4j is up); a rolled file keeps the disk from filling.
LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %-5p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def log4j_properties(log: Path, *, level: str) -> str:
    """A configuration of log4j 2 that writes to this file."""
    return LOG4J.format(log=log, level=level)
