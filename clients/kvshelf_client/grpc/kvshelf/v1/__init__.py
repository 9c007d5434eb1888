"""Version 1 of the gRPC face. ``kvshelf_pb2`` is generated: ``make proto``."""
