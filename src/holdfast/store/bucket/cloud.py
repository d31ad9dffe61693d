"""S3, GCS, Azure and compatible services, through obstore, with its retries switched off.

A client that repeats a conditional put can get "exists" for its own success. So nothing is repeated here: the caller
reads the object back.

Requests are obstore's blocking calls on our threads, which are joined at exit. Its async calls enter Python from its
own threads; if that happens while the interpreter ends, the process aborts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...core.clock import MICROS
from ...core.errors import ConfigError, requires
from ..callers import mark_store_thread
from .protocol import Listed, Refused

TIMEOUT = "10s"
"""The timeout of one request, in seconds: longer than any normal one, and short compared with a lease."""
REQUESTS = 64
"""Maximum concurrent requests: as many as one read of the log makes. Each uses a thread, started on demand."""
T = TypeVar("T")
_used_by: set[int] = set()


class Cloud:
    """A bucket, or a folder of one, of a provider that obstore knows."""

    def __init__(self, scheme: str, place: str, path: str, options: dict[str, str]) -> None:
        self._scheme = scheme
        self._place = place
        self._path = path.strip("/") + "/" if path.strip("/") else ""
        self._options = options
        self._client: Any = None
        self._store: Any = None
        self._threads: ThreadPoolExecutor | None = None

    @classmethod
    def of_client(cls, client: Any) -> Cloud:
        """The bucket, or folder of one, that an obstore client of the user names; its settings are used.

        Its retries and its timeout are not used.
        """
        schemes = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}
        scheme = schemes.get(type(client).__name__)
        if scheme is None:
            raise ConfigError(
                f"an obstore {type(client).__name__} cannot be used as a store: pass an {', '.join(schemes)}, or a URL"
            )
        place = client.config.get("container_name" if scheme == "az" else "bucket", "")
        made = cls(scheme, place, "", {})
        made._client = client
        return made

    def __str__(self) -> str:
        path = self._path if self._client is None else self._client.prefix or ""
        return f"bucket {self._scheme}://{self._place}/{path}".rstrip("/")

    @property
    def store(self) -> Any:
        """The client, created at its first use in this process."""
        if self._store is None:
            # The client's threads do not survive a fork, and a new one made in the child waits for them for ever.
            if _used_by - {os.getpid()}:
                raise ConfigError(
                    f"{self} cannot be used in this forked process, because its parent process used a bucket before the"
                    " fork: start processes with multiprocessing's spawn method, or open the app only after the fork"
                )
            _used_by.add(os.getpid())
            self._store = self._connect()
            self._threads = ThreadPoolExecutor(REQUESTS, "holdfast-cloud", mark_store_thread)
        return self._store

    async def _ask(self, request: Callable[[Any], T]) -> T:
        """Run a request of the client on one of our threads."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        store = self.store
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, request, store)
        except (PermissionDeniedError, UnauthenticatedError) as error:
            why = f"{self} rejects the credentials of this process ({type(error).__name__})"
            raise Refused(f"{why}; nothing was written. Check the credentials and their permissions") from error

    def _connect(self) -> Any:
        with requires("a bucket in the cloud", "bucket", "obstore"):
            import obstore.store as stores
        if (client := self._client) is not None:
            return type(client)(
                prefix=client.prefix,
                config=client.config,
                client_options={**(client.client_options or {}), "timeout": TIMEOUT},
                retry_config={"max_retries": 0},
                credential_provider=client.credential_provider,
            )
        endpoint = self._options.get("endpoint")
        options: dict[str, Any] = {"timeout": self._options.get("timeout", TIMEOUT)}
        if endpoint is not None and endpoint.startswith("http:"):
            options["allow_http"] = True
        made: dict[str, Any] = {"client_options": options, "retry_config": {"max_retries": 0}}
        if self._scheme == "s3":
            if endpoint is not None:
                made |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
            if "region" in self._options or (endpoint is not None and not os.environ.get("AWS_REGION")):
                made["region"] = self._options.get("region", "us-east-1")
            return stores.S3Store(self._place, **made)
        if self._scheme == "gs":
            if endpoint is not None:
                # An emulator: endpoint and missing signature are configured as in a key file.
                key = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
                made["service_account_key"] = json.dumps(key | {"private_key_id": ""})
            return stores.GCSStore(self._place, **made)
        if endpoint is not None:
            made["endpoint"] = endpoint
        if "account" in self._options:
            made["account_name"] = self._options["account"]
        return stores.AzureStore(self._place, **made)

    async def get(self, key: str) -> bytes | None:
        try:
            return await self._ask(lambda store: bytes(store.get(self._path + key).bytes()))
        except FileNotFoundError:
            return None

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            await self._ask(lambda store: store.put(self._path + key, data, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    async def list(self, prefix: str, after: str | None = None) -> Sequence[Listed]:
        # A prefix is a folder to obstore: whole names, up to a slash.
        folder = self._path + prefix.rpartition("/")[0]
        offset = None if after is None else self._path + after

        def pages(store: Any) -> list[Any]:
            return [each for page in store.list(folder, offset=offset, chunk_size=1000) for each in page]

        found: list[Listed] = []
        for each in await self._ask(pages):
            key = each["path"].removeprefix(self._path)
            if key.startswith(prefix):
                found.append(Listed(key, int(each["last_modified"].timestamp() * MICROS), each["size"]))
        return sorted(found, key=lambda listed: listed.key)

    async def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), 1000):
            await asyncio.gather(*[self._delete(part) for part in self._parts(keys[start : start + 1000])])

    def _parts(self, keys: Sequence[str]) -> list[list[str]]:
        """The keys that one request can delete: S3 takes a thousand, and ignores missing ones."""
        paths = [self._path + key for key in keys]
        return [paths] if self._scheme == "s3" else [[path] for path in paths]

    async def _delete(self, paths: list[str]) -> None:
        with contextlib.suppress(FileNotFoundError):
            await self._ask(lambda store: store.delete(paths))
