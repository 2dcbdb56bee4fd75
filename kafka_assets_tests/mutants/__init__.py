"""The code broken on purpose, one line at a time: each break makes a test fail that is named for it."""
