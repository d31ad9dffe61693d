"""Where the file may be, and who may read it."""

import os
import stat

import pytest

from holdfast.core.errors import ConfigError
from holdfast.store.sqlite import place
from holdfast.testing.verbs import enqueue

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:5 / /dev rw,nosuid shared:2 - devtmpfs devtmpfs rw
44 22 0:52 / /people/ann rw,relatime shared:30 - nfs4 server:/people/ann rw,vers=4.2
45 22 0:53 / /mnt/big\\040share rw - cifs //nas/big rw
46 44 0:54 / /people/ann/local rw - ext4 /dev/vdb1 rw
47 22 0:55 / /vm rw - 9p hostshare rw
48 22 0:56 / /mnt/ssh rw - fuse.sshfs ann@host: rw
a line that makes no sense
"""
MAC_MOUNT = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//ann@nas/jobs on /Volumes/jobs (smbfs, nodev, nosuid, mounted by ann)
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv", "ext4"),
        ("/people/ann", "nfs4"),
        ("/people/ann/projects", "nfs4"),
        ("/people/anna", "ext4"),
        ("/people/ann/local/x", "ext4"),
        ("/mnt/big share/jobs", "cifs"),
        ("/vm/x", "9p"),
        ("/mnt/ssh", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_its_innermost_mount(folder, kind):
    assert place.file_system(folder, place.parse_mountinfo(MOUNTINFO)) == kind


def test_the_output_of_mount_on_macos_is_parsed():
    mounted = place.parse_mount(MAC_MOUNT)
    assert place.file_system("/Users/ann", mounted) == "apfs"
    assert place.file_system("/Volumes/jobs/x", mounted) == "smbfs"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph", "glusterfs", "lustre", "afs"])
async def test_a_network_file_system_is_refused(kind, path, open_store, monkeypatch):
    monkeypatch.setattr(place, "mounts", lambda: [("/", kind)])
    with pytest.raises(ConfigError, match=rf"network file system \({kind}\).*use postgresql:// or redis://"):
        await open_store()
    assert not path.exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "apfs", "tmpfs", "overlay", "9p", "virtiofs"])
async def test_a_local_file_system_is_taken(kind, open_store, monkeypatch):
    monkeypatch.setattr(place, "mounts", lambda: [("/", kind)])
    await open_store()


async def test_the_files_are_private_whatever_the_umask(path, open_store):
    before = os.umask(0)
    try:
        store = await open_store()
        await enqueue(store)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-lock"], 0o600)


async def test_a_missing_folder_is_named(tmp_path, open_store):
    with pytest.raises(ConfigError, match=r"the folder .*nowhere does not exist"):
        await open_store(path=tmp_path / "nowhere" / "jobs.db")


async def test_a_folder_is_no_file(tmp_path, open_store):
    with pytest.raises(ConfigError, match="is a folder"):
        await open_store(path=tmp_path)


async def test_an_unknown_durability_is_refused(open_store):
    with pytest.raises(ConfigError, match="full or normal, not 'off'"):
        await open_store(synchronous="off")


@pytest.mark.parametrize(("asked", "level"), [("full", 2), ("normal", 1)])
async def test_durability_is_as_asked(asked, level, open_store):
    store = await open_store(synchronous=asked)

    def ask(step):
        return (
            step.value("PRAGMA synchronous"),
            step.value("PRAGMA journal_mode"),
            step.value("PRAGMA wal_autocheckpoint"),
        )

    assert await store._write(ask) == (level, "wal", 0)
