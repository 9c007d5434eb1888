"""The local path: an engine on the service's machine reads what it leased straight from the segment files."""
