"""The routes of the REST face, one module a subject."""
