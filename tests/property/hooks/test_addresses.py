"""No way of writing an inner address is permitted, and public ones are."""

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.hooks.addresses import is_permitted, parse_networks

INNER = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.168.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
]  # fmt: skip
INNER_6 = ["::1/128", "::/128", "fe80::/10", "fc00::/7", "ff00::/8", "fec0::/10", "2001:db8::/32"]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"]


def within(networks):
    return st.sampled_from([ip_network(each) for each in networks]).flatmap(
        lambda network: st.integers(0, network.num_addresses - 1).map(lambda index: network[index])
    )


def wrappings(address):
    """IPv6 addresses by which a packet may reach an IPv4 one."""
    number = int(address)
    return [
        f"::ffff:{address}",
        str(IPv6Address((0xFFFF << 32) | number)),
        str(IPv6Address((0x64FF9B << 96) | number)),
        str(IPv6Address((0x2002 << 112) | (number << 80) | 1)),
        str(IPv6Address(number)),
        str(IPv6Address((0x20010000 << 96) | (0x01010101 << 64) | (number ^ 0xFFFFFFFF))),
    ]


@given(within(INNER))
def test_an_inner_address_is_refused_however_it_is_wrapped(address):
    assert not is_permitted(str(address))
    for wrapped in wrappings(address):
        assert not is_permitted(wrapped), wrapped


@given(within(INNER_6), st.sampled_from(["", "%eth0", "%1"]))
def test_an_inner_address_of_ipv6_is_refused(address, zone):
    assert not is_permitted(f"{address}{zone}")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_permitted(address):
    assert is_permitted(address)


@given(st.integers(0, 2**32 - 1))
def test_what_is_permitted_is_a_public_address_in_the_standard_library_too(number):
    address = IPv4Address(number)
    if is_permitted(str(address)):
        assert address.is_global and not address.is_multicast and not address.is_private


@given(within(INNER), within(["192.168.0.0/16"]))
def test_allowing_a_network_permits_it_and_no_other(address, other):
    allowed = parse_networks(["10.0.0.0/8", "127.0.0.1"])
    is_allowed = str(address) == "127.0.0.1" or str(address).startswith("10.")
    assert is_permitted(str(address), allowed) == is_allowed
    assert is_permitted(f"::ffff:{address}", allowed) == is_allowed
    assert not is_permitted(str(other), allowed)


@given(st.text(max_size=40))
def test_what_is_no_address_is_refused(text):
    try:
        IPv4Address(text)
    except ValueError:
        if ":" not in text:
            assert not is_permitted(text)
