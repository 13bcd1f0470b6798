"""Which addresses a webhook may connect to. Pure.

The address behind a URL may be this machine, another one on its network, or the place where a
cloud keeps credentials. Hence the address that is connected to is checked, never its name, and
everything but an ordinary public address is refused unless a network that contains it is
allowed. An IPv4 address that is embedded in an IPv6 one is checked, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from headrace.errors import ConfigError

__all__ = ["Network", "is_permitted", "parse_networks"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Beyond what `is_global` says, whose answer changed between releases of Python.
_REFUSED: tuple[Network, ...] = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers, and the metadata of one cloud
        "127.0.0.0/8",
        "168.63.129.16/32",  # a public address by its number, and a host's own services in one cloud
        "169.254.0.0/16",  # link-local: where most clouds keep credentials
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "::1/128",
        "64:ff9b:1::/48",
        "100::/64",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks such as `10.0.0.0/8`, or single addresses; raises ConfigError naming the bad one."""
    return tuple(_network(each) for each in texts)


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"allow={text!r} is not a network ({error}); write one such as 10.0.0.0/8 or 127.0.0.1"
        ) from None


def is_permitted(address: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether a webhook may connect to this address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    addresses = [found, *_embedded(found)]
    return all(_is_in(each, allowed) or _is_public(each) for each in addresses)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address in _NAT64):
        return True  # only an embedding: the embedded address is checked
    return address.is_global and not address.is_multicast and not _is_in(address, _REFUSED)


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """IPv4 addresses that packets to an IPv6 one may be sent to."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64 or address in _COMPATIBLE:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == each.version and address in each for each in networks)
