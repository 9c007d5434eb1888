"""The protobuf package ``kvshelf``."""
