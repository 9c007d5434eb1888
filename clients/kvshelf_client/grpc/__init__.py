"""gRPC: the messages of ``kvshelf.v1``, made from the ``.proto`` beside them, and their bulk parts by hand.

Needs the extra ``kvshelf-client[grpc]``; nothing else of the client imports this package before an address asks for it.
"""
