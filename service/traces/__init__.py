"""Request traces: one reader over several formats, block hashes made from a trace's ids, and a generator."""
