"""Requests reach public addresses only, and a setting allows further hosts and networks."""

from __future__ import annotations

import ipaddress
from dataclasses import fields

import pytest

from holdfast.errors import BadSettings, Permanent
from holdfast.settings import ENV_PREFIX, Settings
from holdfast.sources.address_policy import FETCH_ALLOW, PUBLIC_ONLY, WEBHOOK_ALLOW, Reach

NOT_PUBLIC = [
    "0.0.0.0",  # noqa: S104 - refused here
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::5db8:d822",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
ALL_PUBLIC = ["1.1.1.1", "93.184.216.34", "100.63.255.255", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450::1"]


def allowed(reach: Reach, address: str, *, host: str = "pages.test", port: int = 443) -> bool:
    try:
        reach.require_allowed(host, port, ipaddress.ip_address(address))
    except Permanent as refused:
        assert refused.code in {"refused_address", "refused_port"}  # noqa: PT017 - either outcome is right
        assert "…" not in str(refused)  # noqa: PT017 - see above
        assert "address_" not in str(refused)  # noqa: PT017 - the reason has a text
        return False
    return True


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not allowed(PUBLIC_ONLY, address)


@pytest.mark.parametrize("address", [*ALL_PUBLIC, "::ffff:1.1.1.1"])
def test_a_public_address_is_allowed(address: str) -> None:
    assert allowed(PUBLIC_ONLY, address)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "192.168.1.1", "100.64.0.1", "::1", "fd12::1"])
def test_an_allowed_host_may_be_in_a_private_network_and_on_any_port(address: str) -> None:
    reach = Reach.parse("wiki.intern")
    assert allowed(reach, address, host="wiki.intern", port=3000)
    assert not allowed(reach, address, host="other.intern")
    assert not allowed(reach, address, host="xwiki.intern")
    assert not allowed(reach, address, host="wiki.intern.evil.example")


@pytest.mark.parametrize("address", ["169.254.169.254", "0.0.0.1", "224.0.0.1", "168.63.129.16", "64:ff9b::7f00:1"])
def test_an_allowed_host_still_cannot_reach_cloud_metadata_or_other_special_addresses(address: str) -> None:
    assert not allowed(Reach.parse("wiki.intern"), address, host="wiki.intern")


def test_a_name_with_a_leading_dot_allows_all_its_subdomains() -> None:
    reach = Reach.parse(".corp.example")
    assert allowed(reach, "10.0.0.1", host="wiki.corp.example")
    assert not allowed(reach, "10.0.0.1", host="corp.example")
    assert not allowed(reach, "10.0.0.1", host="evilcorp.example")


def test_an_allowed_network_allows_all_its_addresses_and_no_others() -> None:
    reach = Reach.parse("10.1.0.0/16, 169.254.169.254 [fd00::]/8".replace("[fd00::]", "fd00::"))
    assert allowed(reach, "10.1.2.3", port=9000)
    assert allowed(reach, "::ffff:10.1.2.3")
    assert allowed(reach, "169.254.169.254")
    assert allowed(reach, "fd00::1")
    assert not allowed(reach, "10.2.0.1")


@pytest.mark.parametrize("address", ["64:ff9b::1.1.1.1", "64:ff9b:1::1", "2001:0:7f00:1::", "2002:101:101::"])
def test_a_refusal_says_that_the_address_embeds_an_ipv4_address(address: str) -> None:
    with pytest.raises(Permanent, match="embeds an IPv4 address"):
        PUBLIC_ONLY.require_allowed("pages.test", 443, ipaddress.ip_address(address))


@pytest.mark.parametrize("port", [21, 22, 25, 6379, 9200, 11211])
def test_ports_that_the_web_does_not_use_are_refused(port: int) -> None:
    with pytest.raises(Permanent) as refused:
        PUBLIC_ONLY.require_allowed("pages.test", port, ipaddress.ip_address("1.1.1.1"))
    assert refused.value.code == "refused_port"
    assert str(refused.value).startswith(f"Holdfast did not connect to port {port} of 'pages.test': ")


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.1.2.3/8", "http://wiki.intern", "0x7f.1", "a b@c"])
def test_an_invalid_allow_list_is_refused(text: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Reach.parse(text)
    assert refused.value.subcode in {"network_invalid", "host_invalid"}
    assert refused.value.params["value"] in text
    assert FETCH_ALLOW in str(refused.value)


@pytest.mark.parametrize("setting", [FETCH_ALLOW, WEBHOOK_ALLOW])
@pytest.mark.parametrize(("address", "port"), [("10.0.0.1", 443), ("169.254.169.254", 443), ("93.184.216.34", 22)])
def test_a_refusal_names_the_setting_that_allows_more(setting: str, address: str, port: int) -> None:
    with pytest.raises(Permanent, match=setting) as refused:
        Reach.parse("", setting).require_allowed("pages.test", port, ipaddress.ip_address(address))
    assert refused.value.params["setting"] == setting
    assert setting.removeprefix(ENV_PREFIX).lower() in {one.name for one in fields(Settings)}
    Reach.parse(f"{address}/32", setting).require_allowed("pages.test", port, ipaddress.ip_address(address))
