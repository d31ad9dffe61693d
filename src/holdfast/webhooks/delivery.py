"""The built-in task `holdfast.webhook`: one signed POST to a public address.

1. The address is checked when the connection is opened, not when the name is resolved, so DNS rebinding cannot reach
   private networks.
2. Redirects are not followed, proxy variables of the environment are ignored, only the response status is read.
3. 2xx is success, 410 discards the delivery, any other status is retried.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING, Any

from ..core.errors import HoldfastError, requires
from ..store.protocol import records_of
from ..tasks.context import Context, Discard
from ..tasks.options import Options
from ..version import __version__
from .service import KIND, TASK, Webhook, proof_of, read, signature, signing_key

if TYPE_CHECKING:
    from ..client.session import Session
    from ..tasks.registry import Registry

POST_TIMEOUT = 15.0
"""Seconds for one POST, from connect to response status."""
GONE = 410
"""The HTTP status with which a receiver unsubscribes."""
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def allow_webhooks(registry: Registry, session: Session) -> None:
    """Register the delivery task, so that this app's workers run it."""

    async def deliver(ctx: Context, webhook: str, message: str, proof: str) -> dict[str, int]:
        """Send one message; returns the receiver's HTTP status."""
        settings, id, store = session.settings, ctx.job.id, await session.identify()
        key = signing_key(settings.secret, webhook)
        proofs = [proof_of(secret, store, id, webhook, message) for secret in settings.secret]
        if not any(hmac.compare_digest(one.encode(), proof.encode()) for one in proofs):
            raise Discard(
                f"delivery {id} to webhook {webhook!r} was not sent: its job was created with another HOLDFAST_SECRET,"
                " or is a copy; set the same secret in all processes"
            )
        hooks = {hook.name: hook for hook in read(await records_of(session.store, KIND))}
        if webhook not in hooks:
            raise Discard(f"delivery {id} was not sent: webhook {webhook!r} has been removed")
        now = session.clock.now() // 1_000_000
        body = message.encode()
        headers = {
            "content-type": "application/json",
            "user-agent": f"holdfast/{__version__}",
            "webhook-id": id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(key, id, now, body),
        }
        status = await _post(hooks[webhook], body, headers, anywhere=settings.private_webhooks)
        if status == GONE:
            raise Discard(
                f"webhook {webhook!r}: the receiver answered 410 Gone, so the delivery is not retried; remove the"
                " webhook"
            )
        if not 200 <= status < 300:
            raise HoldfastError(
                f"webhook {webhook!r}: the receiver answered {status} instead of 2xx; see the log of the receiver"
            )
        return {"status": status}

    registry.add(deliver, TASK, Options(), built_in=True)


async def _post(hook: Webhook, body: bytes, headers: dict[str, str], *, anywhere: bool) -> int:
    with requires("delivering webhooks", "server", "aiohttp"):
        import aiohttp

    refused: list[str] = []

    def checked(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        if not (anywhere or is_public(str(address[0]))):
            refused.append(str(address[0]))
            raise OSError("not a public address")
        return socket.socket(family, kind, protocol)

    connector = aiohttp.TCPConnector(socket_factory=checked, use_dns_cache=False, force_close=True, limit=1)
    limit = aiohttp.ClientTimeout(total=POST_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limit, cookie_jar=aiohttp.DummyCookieJar()) as client,
            client.post(hook.url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if refused:
            reason = f"{', '.join(refused)} is not a public address; set HOLDFAST_PRIVATE_WEBHOOKS=on to allow it"
        elif isinstance(error, TimeoutError):
            reason = f"no answer within {POST_TIMEOUT:g} s from the receiver; see its log"
        else:
            reason = (
                f"{type(error).__name__}: the receiver could not be reached, or did not answer with HTTP; check its URL"
            )
        # The text of the error is left out: it may contain the URL, which may contain a secret.
        raise HoldfastError(f"webhook {hook.name!r}: {reason}") from None


def is_public(text: str) -> bool:
    """Whether an IP address is globally routable; IPv4 addresses embedded in IPv6 are checked as IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
