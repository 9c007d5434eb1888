"""The benchmark: every path of bytes, each against what the machine itself can do, measured in turns in one run."""
