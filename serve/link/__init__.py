"""The data plane: one TCP connection for each pair of gateway and replica, carrying whole steps at a time.

client.py is the gateway's end, server.py the replica's, peer.py what both share, wire.py the messages.
None of it knows HTTP, Ray or what a replica does with a request.
"""

from serve.link.client import ReplicaLink, TokenStream
from serve.link.server import Handler, LinkServer

__all__ = ["Handler", "LinkServer", "ReplicaLink", "TokenStream"]
