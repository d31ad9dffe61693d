"""TLS connections: certificate files, and the diagnosis if only one side uses TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from ...core.errors import ConfigError

TLS_PROBE = 1.0
"""Seconds without an answer before the other mode (TLS or plain) is probed, and the limit of that probe."""


def context(ca: str | None, cert: str | None, key: str | None, *, verify: bool) -> ssl.SSLContext:
    """The TLS context of a connection; ConfigError names a file that cannot be used."""
    for name, path in (("ca", ca), ("cert", cert), ("key", key)):
        if path is not None:
            try:
                open(path, "rb").close()
            except OSError as error:
                raise ConfigError(
                    f"the TLS file {path} of ?{name}= cannot be read: {error.strerror}; correct its path or permissions"
                ) from None
    try:
        made = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise ConfigError(f"?ca={ca} contains no PEM certificates ({error.reason}): name a PEM file") from None
    if cert is not None:
        _load(made, cert, key)
    elif key is not None:
        raise ConfigError("?key= is given without ?cert=: add the certificate of that key")
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def _load(made: ssl.SSLContext, cert: str, key: str | None) -> None:
    encrypted = False

    def passphrase() -> str:  # without it, OpenSSL asks for one at the terminal, and waits
        nonlocal encrypted
        encrypted = True
        return ""

    try:
        made.load_cert_chain(cert, key, passphrase)
    except ssl.SSLError as error:
        if encrypted:
            file = f"?key={key}" if key else f"?cert={cert}"
            raise ConfigError(f"the key in {file} is encrypted: use a key without a passphrase") from None
        if key is None and b"PRIVATE KEY-----" not in Path(cert).read_bytes():
            raise ConfigError(f"?cert={cert} contains no private key: name the key file with ?key=") from None
        given = f"?cert={cert}" + (f"&key={key}" if key else "")
        raise ConfigError(
            f"{given} is not a PEM certificate with its private key ({error.reason}): name files that belong together"
        ) from None


async def is_plain(host: str, port: int) -> bool:
    """Whether the server answers without TLS."""
    try:
        async with asyncio.timeout(TLS_PROBE):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"PING\r\n")
                return await reader.read(1) in (b"+", b"-")  # PONG, or that it wants a password first
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False


async def explain(host: str, port: int, used: ssl.SSLContext | None) -> str:
    """Diagnose a connection that the server closed: ConfigError if TLS is the cause, else a hint or an empty text."""
    where, hint = f"{host}:{port}", ""
    try:
        async with asyncio.timeout(TLS_PROBE):
            reader, writer = await asyncio.open_connection(host, port, ssl=used or _trusting())
            try:
                if used is None:
                    raise ConfigError(f"{where} uses TLS: write rediss:// instead of redis://")
                hint = "; the server may require a client certificate: set ?cert= and ?key="
                await reader.read(1)  # nothing is sent, so that a TLS alert of the server arrives
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "ALERT" not in reason:
            return ""
        if used is None:
            raise ConfigError(f"{where} uses TLS: write rediss:// instead of redis://") from None
        if reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"):
            raise ConfigError(f"{where} requires a client certificate: set ?cert= and ?key=") from None
        raise ConfigError(
            f"{where} rejects the certificate of ?cert= ({reason}); use a certificate that the server trusts"
        ) from None
    except TimeoutError:
        return ""
    except OSError:
        return hint
    return hint


def _trusting() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made
