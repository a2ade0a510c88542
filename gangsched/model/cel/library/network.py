"""Addresses and networks: what parses, and how it is written, as in Go's net/netip.

Source: k8s.io/apiserver v0.37.1 `pkg/cel/library/ip.go` and `cidr.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from gangsched.model.cel.library.functions import overloads, reads_as
from gangsched.model.cel.values import Fault, define, same_type_only

_MAX_CHARS = 256


class IP(NamedTuple):
    """An address of version 4 or 6."""

    address: IPv4Address | IPv6Address


class CIDR(NamedTuple):
    """A network, with the address that it was written with."""

    address: IPv4Address | IPv6Address
    bits: int

    def holds(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether the address lies within."""
        low = address.max_prefixlen - self.bits
        return address.version == self.address.version and int(address) >> low == int(self.address) >> low

    @property
    def masked(self) -> CIDR:
        """The network, with its first address."""
        low = self.address.max_prefixlen - self.bits
        return CIDR(type(self.address)(int(self.address) >> low << low), self.bits)


def _read_ip(text: str) -> IP:
    try:
        # Python takes numbers, bytes and zones as well.
        address = ip_address(text if len(text) <= _MAX_CHARS and "%" not in text else "")
    except ValueError:
        raise Fault(f"{text[:60]!r} is not an IP address") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise Fault(f"{text[:60]!r} is an IPv4 address mapped to IPv6, which is not allowed")
    return IP(address)


def _read_cidr(text: str) -> CIDR:
    address_text, _, bits = text.rpartition("/")
    address = _read_ip(address_text).address
    if not _BITS.fullmatch(bits) or int(bits) > address.max_prefixlen:
        raise Fault(f"{text[:60]!r} is not a network; example: 10.0.0.0/8")
    return CIDR(address, int(bits))


_BITS = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def _is_in(*networks: str) -> Callable[[IP], bool]:
    within = [_read_cidr(network) for network in networks]
    return lambda ip: any(network.holds(ip.address) for network in within)


def _text_of_cidr(network: CIDR) -> str:
    return f"{network.address}/{network.bits}"


_is_loopback = _is_in("127.0.0.0/8", "::1/128")
_is_link_local = _is_in("169.254.0.0/16", "fe80::/10")
_is_no_unicast = _is_in("0.0.0.0/32", "::/128", "255.255.255.255/32", "224.0.0.0/4", "ff00::/8")
define(IP, "net.IP", same_type_only(lambda one, other: one == other))
define(CIDR, "net.CIDR", same_type_only(lambda one, other: one == other))
overloads("ip", {(str,): _read_ip, (CIDR,): lambda network: IP(network.address)})
overloads("isIP", {(str,): reads_as(_read_ip)})
overloads("ip.isCanonical", {(str,): lambda text: str(_read_ip(text).address) == text})
overloads("family", {(IP,): lambda ip: ip.address.version})
overloads("isUnspecified", {(IP,): _is_in("0.0.0.0/32", "::/128")})
overloads("isLoopback", {(IP,): _is_loopback})
# Of ff02::/16 the scope counts, and no flag.
overloads(
    "isLinkLocalMulticast",
    {
        (IP,): lambda ip: (
            int(ip.address) >> 8 == 0xE00000
            if ip.address.version == 4
            else int(ip.address) >> 112 & 0xFF0F == 0xFF02
        )
    },
)
overloads("isLinkLocalUnicast", {(IP,): _is_link_local})
overloads(
    "isGlobalUnicast",
    {(IP,): lambda ip: not (_is_no_unicast(ip) or _is_loopback(ip) or _is_link_local(ip))},
)
overloads("string", {(IP,): lambda ip: str(ip.address), (CIDR,): _text_of_cidr})
overloads("cidr", {(str,): _read_cidr})
overloads("isCIDR", {(str,): reads_as(_read_cidr)})
overloads(
    "containsIP",
    {
        (CIDR, IP): lambda network, ip: network.holds(ip.address),
        (CIDR, str): lambda network, text: network.holds(_read_ip(text).address),
    },
)
overloads(
    "containsCIDR",
    {
        (CIDR, CIDR): lambda one, other: one.bits <= other.bits and one.holds(other.address),
        (CIDR, str): lambda one, text: (
            one.bits <= (other := _read_cidr(text)).bits and one.holds(other.address)
        ),
    },
)
overloads("prefixLength", {(CIDR,): lambda network: network.bits})
overloads("masked", {(CIDR,): lambda network: network.masked})
