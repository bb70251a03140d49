"""Which addresses may be asked at all; no server is needed to refuse."""

from __future__ import annotations

import pytest

from driftline.streams.images.download import UrlSource
from driftline.streams.images.sources import Missing
from driftline.streams.images.web import Limits, is_public


@pytest.mark.parametrize(
    "url",
    [
        "",
        "image.jpg",
        "ftp://127.0.0.1/a",
        "file:///etc/passwd",
        "http://",
        "http://[::1",
        "http://a:99999/",
        "http://a b/",
        "javascript:1",
    ],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    (found,) = UrlSource(attempts=1, limits=Limits(allow_private=True)).read([url])
    assert isinstance(found, Missing)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1", "255.255.255.255",
     "240.0.0.1", "::1", "::", "fe80::1%eth0", "fc00::1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1", "ff02::1"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_public_addresses() -> None:
    assert all(
        is_public(address) for address in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"]
    )
