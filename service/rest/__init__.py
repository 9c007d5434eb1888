"""The REST face: HTTP in, verbs of :mod:`service.shelf` called in worker threads, JSON or frames out."""
