"""Where something listens: "HOST:PORT", whether other machines can reach it, and whether it is taken."""

import ipaddress
import socket

from headrace.errors import ConfigError

__all__ = ["host_and_port", "is_loopback", "is_taken"]


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only; any name but localhost may not be."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def host_and_port(name: str, text: str) -> tuple[str, int]:
    """The two parts of "HOST:PORT"; an IPv6 address stands in brackets. Raises ConfigError naming `name`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{name}={text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def is_taken(address: str) -> bool:
    """Whether another process listens at "HOST:PORT", or this one may not."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return True
    return False
