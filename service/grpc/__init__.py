"""The gRPC face ``kvshelf.v1``: messages in, the same verbs as REST called in worker threads, messages out."""
