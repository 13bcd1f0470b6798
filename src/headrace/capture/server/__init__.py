"""What the readers of database servers share: an address from a URL without a password, and a socket.

`ServerAddress` and `read_url` are the ground of each database's address; `ServerSocket` connects,
encrypts, waits and reads ahead (`ReadAhead`), and says of the network's errors which are worth another try.
What is said over the socket belongs to the databases.
"""

from headrace.capture.server.address import ServerAddress, ServerUrl, SslMode, read_url
from headrace.capture.server.read_ahead import ReadAhead
from headrace.capture.server.socket import ServerSocket

__all__ = ["ReadAhead", "ServerAddress", "ServerSocket", "ServerUrl", "SslMode", "read_url"]
