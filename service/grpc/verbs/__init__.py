"""The verbs of ``kvshelf.v1``, by what they are about, and the table of them all."""
