"""The versions of records go on after a snapshot."""

from holdfast.store.bucket.replica import Replica, dump, load


def test_a_snapshot_keeps_the_last_version_that_was_given():
    replica = Replica()
    replica.jobs.put_record("config", "a", b"1", None)
    replica.jobs.put_record("config", "a", None, None)
    loaded = load(dump(replica), 0)
    loaded.jobs.put_record("config", "a", b"2", None)
    assert loaded.jobs.kept["config"]["a"].version == 2
