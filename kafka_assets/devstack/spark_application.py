"""The application that is the project's Spark Connect server: it holds a session, and the Connect plugin serves it.

Spark's own main class isolates what each client session adds, whatever the settings say. Then Spark's Python workers
are a session's own, too: a process of 50 MB and a thread of the server stay behind for each, for ever (4.2.0), and each
run starts them anew. Here all sessions share them. Run by spark-submit; it imports nothing of this package.
"""

import ctypes
import signal

from pyspark.sql import SparkSession

_DEATH_OF_PARENT = 1

if __name__ == "__main__":
    # spark-submit is the server. Where that is killed, what waits here must not stay.
    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
    SparkSession.builder.getOrCreate()
    signal.pause()
