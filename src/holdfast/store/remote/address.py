"""The address of a server: base URL, token and options, parsed from the store URL."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import quote

import msgspec

from ...core.errors import ConfigError
from ...core.url import Url

OPTIONS = ("token_file", "timeout", "ca", "cert", "key", "verify")
_PATH = "/:!$&'()*+,;="
"""Characters that need no quoting in a path."""
LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server. Frozen, so that siblings share it."""

    base: str
    """The base URL of the routes, without a slash at its end."""
    host: str
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    timeout: float = 15.0
    """Seconds without data after which a call fails."""

    def __str__(self) -> str:
        return self.base

    @property
    def private(self) -> bool:
        """Whether the connection is encrypted or local."""
        return self.base.startswith("https:") or self.host in LOCAL

    def token(self) -> str | None:
        """The token, read each time: the file may have been replaced."""
        if self.token_file is None:
            return _checked(os.environ.get("HOLDFAST_TOKEN", ""), "HOLDFAST_TOKEN") or None
        try:
            text = Path(self.token_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token file {self.token_file} cannot be read: {error}; check ?token_file=") from None
        token = _checked(text, f"the token file {self.token_file}")
        if not token:
            raise ConfigError(f"the token file {self.token_file} is empty: write a token into it")
        return token

    def tls(self) -> ssl.SSLContext | bool:
        """The TLS context; True: the default verification."""
        if not self.base.startswith("https:") or (self.ca is None and self.cert is None and self.verify):
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:  # includes ssl.SSLError
            raise ConfigError(
                f"{self.base}: a file of ?ca=, ?cert= or ?key= cannot be used: {error}; name readable PEM files"
            ) from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def parse(url: Url) -> Address:
    if url.username is not None:
        raise url.wrong("the URL contains a user name or token: remove it, and set HOLDFAST_TOKEN or ?token_file=")
    if len(url.hosts) != 1 or not url.hosts[0][0]:
        raise url.wrong("the URL must name one server: write http://host:port")
    return Address(
        base=f"{url.scheme}://{url.authority}{quote(url.path.rstrip('/'), safe=_PATH)}",
        host=url.hosts[0][0].lower(),
        **{name: url.options.get(name) for name in ("token_file", "ca", "cert", "key")},
        verify=url.verifies(),
        timeout=url.timeout(15.0),
    )


def _checked(text: str, source: str) -> str:
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        # The text is not shown: it may be secret.
        raise ConfigError(f"{source} is not a token: a token is printable ASCII without spaces")
    return token
