"""All spellings of a URL become one text, and URLs that programs parse differently are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Permanent
from holdfast.sources.urls import LONGEST, Url


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://example.org", "http://example.org/"),
        ("  HTTP://Example.ORG:80/#top ", "http://example.org/"),
        ("https://example.org:443/a?b=c#d", "https://example.org/a?b=c"),
        ("https://example.org:8443/", "https://example.org:8443/"),
        ("http://example.org./", "http://example.org/"),
        ("http://example.org/a/../b/./c", "http://example.org/b/c"),
        ("http://example.org/../../a", "http://example.org/a"),
        ("http://example.org/a/..", "http://example.org/"),
        ("http://example.org/%7euser/%2f%c3%a9", "http://example.org/~user/%2F%C3%A9"),
        ("http://example.org/é?ü=ß", "http://example.org/%C3%A9?%C3%BC=%C3%9F"),
        ("http://example.org/100%", "http://example.org/100%25"),
        ("http://example.org/a?", "http://example.org/a"),
        ("http://example.org/a//b", "http://example.org/a//b"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://BÜCHER.example/", "http://xn--bcher-kva.example/"),
        ("http://例え。テスト/", "http://xn--r8jz45g.xn--zckzah/"),
        ("http://my_host.example/", "http://my_host.example/"),
        ("http://192.0.2.7:80/", "http://192.0.2.7/"),
        ("http://①②⑦.0.0.1/", "http://127.0.0.1/"),
        ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
    ],
)
def test_spellings_of_a_url_become_one(given: str, normal: str) -> None:
    assert str(Url.parse(given)) == normal
    assert str(Url.parse(normal)) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.org",
        "//example.org/",
        "http:example.org",
        "javascript:alert(1)",
        "http://",
        "http://.",
        "http://a..b/",
        "http://-a.example/",
        "http://a-.example/",
        "http://example.org:-1/",
        "http://example.org:http/",
        "http://example.org:0/",
        "http://[::1]x/",
        "http://[::1/",
        "http://[1.2.3.4]/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.x]/",
        "http://a@b/",
        "http://@b/",
        "http://user:secret@b.example/",
        "http://a%00b/",
        "http://a\x00b/",
        "http://a\nb/",
        "http://a\tb/",
        "http://a b/",
        "http://a\\b/",
        "http://1.2.3/",
        "http://1.2.3.4.5/",
        "http://1.2.3.256/",
        "http://01.2.3.4/",
        "http://0x7f000001/",
        "http://999999999999/",
        "http://a.0x/",
        "http://\u200b/",
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 130 + "example/",
        "http://example.org/" + "a" * 5000,
    ],
)
def test_an_invalid_url_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(Permanent) as caught:
        Url.parse(text)
    assert caught.value.code == "bad_url"
    assert str(caught.value).endswith(".")
    assert "url_" not in str(caught.value)  # the reason has a text
    assert "secret" not in f"{caught.value} {caught.value.params}"


def test_the_message_names_the_reason() -> None:
    with pytest.raises(Permanent) as caught:
        Url.parse("ftp://example.org/")
    assert caught.value.params == {"why": "url_scheme"}
    assert str(caught.value) == (
        "The address does not begin with http:// or https://. Write it like https://example.org/page and try again."
    )
    with pytest.raises(Permanent, match=f"has more than {LONGEST} characters"):
        Url.parse("http://example.org/" + "a" * LONGEST)


@given(st.text(max_size=60) | st.from_regex(r"https?://[a-z0-9.\[\]:@%\\-]{0,20}(/[^#]{0,20})?", fullmatch=True))
def test_a_url_is_refused_or_normalised_in_one_step(text: str) -> None:
    try:
        url = Url.parse(text)
    except Permanent as refused:
        assert refused.code == "bad_url"  # noqa: PT017 - either outcome is right
        return
    assert Url.parse(str(url)) == url
    assert str(url).isascii()
    assert not set("\\@ #") & set(url.authority)


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/b", "https://example.org/b"),
        ("c?d", "https://example.org/a/c?d"),
        ("//other.example/x", "https://other.example/x"),
        ("http://EXAMPLE.org/#x", "http://example.org/"),
        ("..", "https://example.org/"),
    ],
)
def test_a_link_is_resolved_against_the_url_of_its_page(location: str, leads_to: str) -> None:
    assert str(Url.parse("https://example.org/a/b").join(location)) == leads_to
