"""Decides which servers may be contacted: public ones, and those that the operator allows.

A user who adds an address may try to make this machine read from its own network (server-side request forgery). The
tables are written out here because those of `ipaddress` differ between Python versions.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Self

from holdfast.errors import BadSettings, Permanent
from holdfast.sources.urls import normalize_host

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

FETCH_ALLOW, WEBHOOK_ALLOW = "HOLDFAST_FETCH_ALLOW", "HOLDFAST_WEBHOOK_ALLOW"
WEB_PORTS = frozenset({80, 443, 8080, 8443})
# Private networks, which can be allowed by host name, with the code of their text `why.*` in the catalogue.
PRIVATE = {
    "10.0.0.0/8": "address_private",
    "172.16.0.0/12": "address_private",
    "192.168.0.0/16": "address_private",
    "100.64.0.0/10": "address_provider",
    "127.0.0.0/8": "address_local",
    "::1/128": "address_local",
    "fc00::/7": "address_private",
}
# Networks without web pages, which can be allowed only by naming the network, with the code of their text.
SPECIAL = {
    "0.0.0.0/8": "address_local",
    "168.63.129.16/32": "address_cloud",
    "169.254.0.0/16": "address_link_or_cloud",
    "192.0.0.0/24": "address_reserved",
    "192.0.2.0/24": "address_example",
    "192.88.99.0/24": "address_relay",
    "198.18.0.0/15": "address_test",
    "198.51.100.0/24": "address_example",
    "203.0.113.0/24": "address_example",
    "224.0.0.0/4": "address_multicast",
    "240.0.0.0/4": "address_reserved",
    "::/128": "address_local",
    "64:ff9b::/96": "address_ipv4",
    "64:ff9b:1::/48": "address_ipv4",
    "2001::/23": "address_reserved_or_ipv4",
    "2001:db8::/32": "address_example",
    "2002::/16": "address_ipv4",
    "3fff::/20": "address_example",
    "fe80::/10": "address_link",
    "fec0::/10": "address_private",
    "ff00::/8": "address_multicast",
}
PUBLIC_IPV6 = IPv6Network("2000::/3")  # the only range that is assigned to public hosts


def _networks(table: dict[str, str]) -> tuple[tuple[Network, str], ...]:
    return tuple((ipaddress.ip_network(text), why) for text, why in table.items())


PRIVATE_NETWORKS, SPECIAL_NETWORKS = _networks(PRIVATE), _networks(SPECIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The allowed addresses: public ones on web ports, and those of `hosts` and `networks`.

    An allowed host may be in a private network and on any port. In an allowed network every address and port is
    allowed.

        Reach.parse("wiki.intern, 10.1.0.0/16").require_allowed("wiki.intern", 80, ip_address("10.9.0.1"))
    """

    hosts: frozenset[str] = frozenset()  # names; `.example.org` means all hosts below example.org
    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = WEB_PORTS
    setting: str = FETCH_ALLOW  # named in error messages

    @classmethod
    def parse(cls, text: str, setting: str = FETCH_ALLOW) -> Self:
        """Parse the value of a setting: `wiki.intern, .corp.example, 10.1.0.0/16, 127.0.0.1`."""
        hosts, networks = set(), []
        for word in text.replace(",", " ").split():
            try:
                networks.append(ipaddress.ip_network(word.strip("[]")))
                continue
            except ValueError as error:
                if "/" in word:
                    raise BadSettings("network_invalid", value=word, setting=setting, detail=error) from None
            try:
                dot = "." if word.startswith(".") else ""
                hosts.add(dot + normalize_host(word.removeprefix(".")))
            except Permanent:
                raise BadSettings("host_invalid", value=word, setting=setting) from None
        return cls(hosts=frozenset(hosts), networks=tuple(networks), setting=setting)

    def require_allowed(self, host: str, port: int, address: Address) -> None:
        """Raise `Permanent` with the reason if the connection is not allowed."""
        address = _unmap_ipv4(address)
        if any(address in network for network in self.networks):
            return
        trusted = self._trusts(host)
        why = self._refusal_reason(address, trusted=trusted)
        if why:
            raise Permanent(
                "refused_address",
                params={"host": host, "address": str(address), "why": why, "setting": self.setting},
            )
        if port not in self.ports and not trusted:
            raise Permanent("refused_port", params={"host": host, "port": str(port), "setting": self.setting})

    def _refusal_reason(self, address: Address, *, trusted: bool) -> str | None:
        for network, why in SPECIAL_NETWORKS:
            if address in network:
                return why
        for network, why in PRIVATE_NETWORKS:
            if address in network:
                return None if trusted else why
        assigned = isinstance(address, IPv4Address) or address in PUBLIC_IPV6
        return None if assigned and address.is_global and not address.is_multicast else "address_not_public"

    def _trusts(self, host: str) -> bool:
        return any(host == allowed or (allowed.startswith(".") and host.endswith(allowed)) for allowed in self.hosts)


PUBLIC_ONLY = Reach()


def _unmap_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv4-mapped IPv6 address connects to."""
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
