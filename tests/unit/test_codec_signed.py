"""A pickle is only opened if it was signed with the same secret."""

import hashlib
import hmac
import pickle
import sys

import pytest

from holdfast.codec import Signed
from holdfast.core.errors import ConfigError, InvalidJob, MissingExtra

HERE = ("call", "holdfast.call", "store")


class Trap:
    """Runs code when it is unpickled."""

    sprung: list[str] = []  # noqa: RUF012 - counts over all instances

    def __reduce__(self):
        return (Trap.sprung.append, ("boom",))


def test_lambdas_and_closures_come_back():
    base = 10
    signed = Signed(["secret"])
    assert signed.loads(signed.dumps(lambda x: x + base, HERE), HERE)(1) == 11


@pytest.mark.parametrize("nothing", [(), [""], ["secret", ""]])
def test_there_is_no_codec_without_a_secret(nothing):
    with pytest.raises(ConfigError, match="HOLDFAST_SECRET"):
        Signed(nothing)


def test_another_secret_opens_nothing():
    with pytest.raises(InvalidJob, match="signature"):
        Signed(["other"]).loads(Signed(["secret"]).dumps(1, HERE), HERE)


def test_the_first_of_several_secrets_signs_and_every_one_opens():
    before, during, after = Signed(["old"]), Signed(["new", "old"]), Signed(["new"])
    assert during.loads(before.dumps(1, HERE), HERE) == 1
    assert after.loads(during.dumps(2, HERE), HERE) == 2
    with pytest.raises(InvalidJob, match="signature"):
        before.loads(during.dumps(3, HERE), HERE)


@pytest.mark.parametrize(
    "elsewhere",
    [("result", "holdfast.call", "store"), ("call", "other", "store"), ("call", "holdfast.call", "other"), ("call",)],
)
def test_a_pickle_for_another_task_part_or_store_is_not_opened(elsewhere):
    signed = Signed(["secret"])
    data = signed.dumps(Trap(), elsewhere)
    Trap.sprung.clear()
    with pytest.raises(InvalidJob, match="for another task or store"):
        signed.loads(data, HERE)
    assert Trap.sprung == []


def test_every_changed_or_missing_byte_is_noticed_before_anything_runs():
    data = Signed(["secret"]).dumps(Trap(), HERE)
    Trap.sprung.clear()
    changed = [data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in range(len(data))]
    cut = [data[:i] for i in range(len(data))]
    for wrong in [*changed, *cut, data + b"x", pickle.dumps(Trap())]:
        with pytest.raises(InvalidJob, match="signature"):
            Signed(["secret"]).loads(wrong, HERE)
    assert Trap.sprung == []


def test_a_signature_made_for_another_purpose_opens_nothing():
    body = pickle.dumps(Trap())
    for digest in (hmac.digest(b"secret", body, "sha256"), hashlib.sha256(b"secret" + body).digest()):
        with pytest.raises(InvalidJob, match="signature"):
            Signed(["secret"]).loads(digest + body, HERE)


def test_what_cannot_be_pickled_or_unpickled_is_an_invalid_job():
    signed = Signed(["secret"])
    with pytest.raises(InvalidJob, match="cannot be pickled"):
        signed.dumps(sys._getframe(), HERE)

    class Broken:
        def __reduce__(self):
            return (int, ("no number",))

    with pytest.raises(InvalidJob, match="cannot be unpickled: ValueError"):
        signed.loads(signed.dumps(Broken(), HERE), HERE)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[cloudpickle\]"):
        Signed(["secret"])
