"""Errors of the command line that every command raises."""


class UsageError(Exception):
    """Bad input to a command. Its text names what is wrong and how to mend it; the exit status is 2."""


class CommandError(Exception):
    """A command asked rightly could not be done. Its text says why; the exit status is 1."""
