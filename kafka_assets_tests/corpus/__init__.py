"""Values that break decoders and databases, each with what must become of it."""
