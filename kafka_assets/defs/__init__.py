"""The example project: one stream a file."""
