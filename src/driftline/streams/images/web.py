"""One careful GET: only http and https, only public addresses, bounded in time and size.

Flow: URL -> bytes, or `WebError` with the reason and whether another attempt may help. Redirects are followed by hand;
at every hop the host is resolved once, the address checked, and the connection made to that very address.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import re
import socket
import ssl
import time
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from driftline.version import VERSION

REDIRECTS = frozenset({301, 302, 303, 307, 308})
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may be other ones a little later."""
MAX_IDLE = 4
"""Connections a thread keeps open for the next request to the same host."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_SAFE = "%/:=&?~#+!$,;'@()*[]"


class WebError(Exception):
    """No bytes came; `passing` says that another attempt may help."""

    def __init__(self, reason: str, *, passing: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.passing = passing
        self.wait_s = wait_s
        """How long the server asked to wait."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a download. The total time covers redirects, retries and waiting."""

    connect_s: float = 10.0
    read_s: float = 20.0
    total_s: float = 120.0
    max_bytes: int = 2**25
    max_redirects: int = 5
    allow_private: bool = False


@dataclass
class Browser:
    """Fetches URLs, one at a time; keeps a few connections open in between. One for each thread."""

    limits: Limits = field(default_factory=Limits)
    _idle: dict[tuple[str, str, int], _Connection] = field(default_factory=dict)

    def get(self, url: str, *, deadline: float | None = None) -> bytes:
        """The body found at a URL, after redirects."""
        deadline = time.monotonic() + self.limits.total_s if deadline is None else deadline
        for _ in range(self.limits.max_redirects + 1):
            answer = self._hop(_parsed(url), deadline)
            if isinstance(answer, bytes):
                return answer
            url = urljoin(url, answer)
            if "photo_unavailable" in url:
                # Flickr answers for a deleted photo with a redirect to a placeholder picture of this name.
                raise WebError("photo no longer available")
        raise WebError(f"more than {self.limits.max_redirects} redirects")

    def _hop(self, parts: SplitResult, deadline: float) -> bytes | str:
        """The body, or the place it redirects to."""
        key = (parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        idle = self._idle.pop(key, None)
        try:
            if idle is not None:
                try:
                    return self._exchange(idle, key, parts, deadline)
                except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                    idle.close()  # it had been closed while idle; a fresh one decides
            return self._exchange(_Connection(key, self.limits, deadline), key, parts, deadline)
        except WebError:
            raise
        except TimeoutError:
            raise WebError("timed out", passing=True) from None
        except ssl.SSLCertVerificationError as error:
            raise WebError(f"certificate not valid: {error.verify_message}") from None
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise WebError(f"connection failed: {type(error).__name__}", passing=True) from None

    def _exchange(
        self, connection: _Connection, key: tuple[str, str, int], parts: SplitResult, deadline: float
    ) -> bytes | str:
        connection.deadline = deadline
        done = False
        try:
            target = quote(parts.path or "/", safe=_SAFE) + (
                f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
            )
            connection.request(
                "GET", target, headers={"User-Agent": f"driftline/{VERSION}", "Accept": "image/*"}
            )
            response = connection.getresponse()
            if response.status in REDIRECTS and (place := response.getheader("Location")):
                return place
            if response.status != 200:
                raise _status_error(response)
            body = _body(response, self.limits.max_bytes)
            done = not response.will_close
            response.close()
        finally:
            if done and len(self._idle) < MAX_IDLE:
                self._idle[key] = connection
            else:
                connection.close()
        return body

    def close(self) -> None:
        """Let go of idle connections."""
        for connection in self._idle.values():
            connection.close()
        self._idle.clear()


def _parsed(url: str) -> SplitResult:
    """A URL in its parts; what cannot be the name of a host is never looked up."""
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").encode("idna").decode()
        usable = parts.scheme in ("http", "https") and _HOST.fullmatch(host) and parts.port != 0
    except ValueError:
        usable = None
    if not usable:
        raise WebError(f"not an http or https address: {url[:80]!r}")
    return parts


def _status_error(response: http.client.HTTPResponse) -> WebError:
    wait = response.getheader("Retry-After") or ""
    wait_s = float(wait) if wait.isascii() and wait.isdigit() else 0.0
    return WebError(f"HTTP status {response.status}", passing=response.status in PASSING, wait_s=wait_s)


def _body(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """The body in pieces, so that size and time are checked as it arrives."""
    if response.getheader("Content-Encoding", "identity").lower() != "identity":
        raise WebError("sent compressed, which was not asked for")
    expected = response.length
    if expected is not None and expected > max_bytes:
        raise WebError(f"too large: {expected} bytes, the limit is {max_bytes}")
    pieces: list[bytes] = []
    size = 0
    while expected is None or size < expected:
        piece = response.read1(65536 if expected is None else min(65536, expected - size))
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        if size > max_bytes:
            raise WebError(f"too large: more than {max_bytes} bytes")
    if expected is not None and size < expected:
        raise WebError(f"cut short: {size} of {expected} bytes", passing=True)
    return b"".join(pieces)


def is_public(address: str) -> bool:
    """True for an address of the open internet; false for private, loopback, link-local and reserved ones.

    >>> is_public("8.8.8.8"), is_public("10.1.2.3"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False, False)
    """
    ip = ipaddress.ip_address(address.split("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


@cache
def _tls() -> ssl.SSLContext:
    """Reading the system's certificates takes milliseconds, so it is done once."""
    return ssl.create_default_context()


class _Connection(http.client.HTTPConnection):
    """A connection to a checked address of a host, with a deadline for everything that is read."""

    def __init__(self, key: tuple[str, str, int], limits: Limits, deadline: float) -> None:
        self.scheme, host, port = key
        super().__init__(host, port)
        self.limits = limits
        self.deadline = deadline

    def connect(self) -> None:
        """Resolve once, check, connect to an address that passed."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise WebError("host not found", passing=True) from None
        allowed = [info for info in found if self.limits.allow_private or is_public(str(info[4][0]))]
        if not allowed:
            raise WebError(f"private address, which needs --allow-private: {self.host}")
        family, kind, protocol, _, address = allowed[0]
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(max(0.001, min(self.limits.connect_s, self.deadline - time.monotonic())))
            plain.connect(address)
            if self.scheme == "https":
                plain = _tls().wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        self.sock = _TimedSocket(plain, self)


class _TimedSocket:
    """What http.client needs of a socket; every wait ends at the read limit or the deadline."""

    def __init__(self, inner: socket.socket, owner: _Connection) -> None:
        self._inner = inner
        self._owner = owner

    def arm(self) -> None:
        """Set the time the next wait may take."""
        left = self._owner.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._inner.settimeout(min(self._owner.limits.read_s, left))

    def sendall(self, data: bytes) -> None:
        self.arm()
        self._inner.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self, self._inner.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._inner.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: _TimedSocket, raw: socket.SocketIO) -> None:
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int | None:
        self._sock.arm()
        return self._raw.readinto(buffer)  # type: ignore[arg-type]

    def close(self) -> None:
        self._raw.close()
        super().close()
