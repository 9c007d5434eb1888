"""The local path: a UNIX socket over which an engine on the same machine gets descriptors of the segment files."""
