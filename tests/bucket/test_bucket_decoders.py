"""Decoding objects of a bucket: damage is reported with the object's key, and threads do not disturb each other."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import msgspec
import pytest

from holdfast.core.job import NewJob
from holdfast.store.bucket import log_format
from holdfast.testing.build import new_job


def test_two_threads_never_build_a_decoder_at_the_same_time(monkeypatch):
    """msgspec crashes where two threads meet a type for the first time at once."""
    inside: list[int] = []
    most: list[int] = []
    company = threading.Event()

    def build(kind):
        inside.append(1)
        most.append(len(inside))
        if len(inside) > 1:
            company.set()
        company.wait(0.2)  # the other thread has time to come in, if nothing keeps it out
        inside.pop()
        return msgspec.json.Decoder(kind)

    monkeypatch.setattr(log_format, "_decoders", {})
    monkeypatch.setattr(
        log_format, "msgspec", SimpleNamespace(json=SimpleNamespace(Decoder=build), MsgspecError=msgspec.MsgspecError)
    )
    data = log_format.encode(log_format.Tidy(7, [("ann", 3)]))
    read: list[log_format.Tidy] = []
    threads = [
        threading.Thread(target=lambda: read.append(log_format._decoder(log_format.Tidy)(data))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [log_format.Tidy(7, [("ann", 3)])] * 2
    assert max(most) == 1


def test_a_table_that_lacks_a_field_is_reported_with_the_key_of_its_object():
    tables = log_format.pack([new_job("a")])
    del tables[0].like["id"]
    text = r"object done/7 of the bucket is damaged \(2 bytes\): the field id of a NewJob is missing; .*: restore it"
    with pytest.raises(log_format.Damaged, match=text), log_format.unpacking("done/7", b"{}"):
        log_format.unpack(tables, NewJob)
