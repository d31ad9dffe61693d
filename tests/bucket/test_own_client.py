"""The user's own obstore store instead of a URL, and adapters that lack methods."""

from __future__ import annotations

import json

import pytest
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from holdfast import ConfigError, Holdfast
from holdfast.store.bucket import BucketStore
from holdfast.store.bucket.cloud import Cloud

KEY = {"gcs_base_url": "http://x", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        (S3Store("jobs", prefix="a/b", region="eu-north-1", client_options={"timeout": "90s"}), "bucket s3://jobs/a/b"),
        (GCSStore("jobs", service_account_key=json.dumps(KEY)), "bucket gs://jobs"),
        (AzureStore("jobs", account_name="me", account_key="aGk="), "bucket az://jobs"),
    ],
    ids=["s3", "gs", "az"],
)
def test_the_settings_of_a_client_are_used_without_its_retries(client, shown):
    cloud = Cloud.of_client(client)
    assert str(cloud) == shown
    made = cloud._connect()
    assert (type(made), made.config, made.prefix) == (type(client), client.config, client.prefix)
    assert made.retry_config["max_retries"] == 0, "a repeated conditional put would refuse its own success"
    assert made.client_options["timeout"] == "10s", "a request must be short compared with a lease"
    assert repr(Holdfast(client)) == "Holdfast('bucket://')"


def test_clients_and_adapters_that_cannot_be_a_store_are_refused():
    with pytest.raises(ConfigError, match="an obstore MemoryStore cannot be used as a store: pass an S3Store"):
        Holdfast(MemoryStore())

    class Adapter:
        name = "mine"
        get = list = write = None

    with pytest.raises(ConfigError, match=r"a Adapter cannot be a store: add features, .*heartbeat, .*put_record"):
        Holdfast(Adapter())
    with pytest.raises(
        ConfigError, match=r"a Adapter cannot be a bucket: add the methods put_if_absent, delete to it$"
    ):
        BucketStore(Adapter())
    with pytest.raises(ConfigError, match="an asyncpg pool or an obstore store, not 7"):
        Holdfast(7)
