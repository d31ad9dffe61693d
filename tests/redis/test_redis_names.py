"""Names: the scripts use the fields of messages.py, and repeat none of its numbers or letters.

After a change of a message or a constant: `python tests/redis/test_redis_names.py` writes names.txt anew.
"""

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.core.job import LimitKey
from holdfast.core.retry import Backoff
from holdfast.store.redis import messages, names
from holdfast.store.redis.pack import pack_one
from holdfast.store.redis.scripts import KINDS, NEEDS, lone_script, script, write_script
from holdfast.testing import build

GOLDEN = Path(__file__).with_name("names.txt")
LUA = {path.stem: path.read_text() for path in (Path(names.__file__).parent / "lua").glob("*.lua")}
COMMENT = re.compile(r"--[^\n]*")
STRING = re.compile(r"'(?:\\.|[^'\\\n])*'")
VARIABLES = "|".join(variable for records in names.RECORDS.values() for variable in records.variables)


def code_of(name, *, strings=True):
    code = COMMENT.sub("", LUA[name])
    return code if strings else STRING.sub("''", code)


def test_the_values_of_the_names_are_unchanged():
    assert names.listing() == GOLDEN.read_text(), "stored jobs and servers that run have the old places and letters"


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_script_reads_no_field_of_a_message_by_its_number(name):
    assert re.findall(rf"\b(?:{VARIABLES})\[\d+\]", code_of(name)) == []


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_script_names_states_and_letters_in_full(name):
    letters = (
        set(names.LETTERS.values()) | set(names.LETTER.values()) | {names.DEFERRED, names.DELETED, names.UNREADABLE}
    )
    assert [text for text in STRING.findall(code_of(name)) if text[1:-1].removesuffix(":") in letters] == []
    assert re.findall(r"[{,]\s*[a-zA-Z] =", code_of(name)) == [], "a field of a table is named by one letter"


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_script_uses_names_instead_of_known_numbers(name):
    code = code_of(name, strings=False)
    distinct = {value for value in names.CONSTANTS.values() if isinstance(value, int) and value > 2000}
    said = {int(text, 0) for text in re.findall(r"(?<![\w.])(0x[0-9a-f]+|\d+)\b", code)}
    assert said & distinct == set()
    assert not re.search(r"\b0x[89a-f]", code), "a byte of MessagePack is MP.<name>"
    assert not re.search(r"'[^'\n]*\\[12]\d\d", code_of(name)), "bytes of MessagePack are MP_CHAR or PACKED"


@pytest.mark.parametrize("name", sorted(LUA))
def test_a_script_redefines_no_given_name(name):
    code = code_of(name, strings=False)
    declared = set(re.findall(r"\b[A-Z][A-Z_]+\b", " ".join(re.findall(r"\blocal ([^=\n]*)=", code))))
    assert declared & names.CONSTANTS.keys() == set()


def test_every_name_in_a_script_is_known():
    code = "\n".join(COMMENT.sub("", STRING.sub("''", names.rendered(text))) for text in LUA.values())
    used = set(re.findall(r"\b[A-Z][A-Z_]+\b(?! =)", code))
    declared = set(re.findall(r"\b[A-Z][A-Z_]+\b", " ".join(re.findall(r"\blocal ([^=\n]*)=", code))))
    assert used - declared == {"KEYS", "ARGV"}


def test_a_field_that_a_message_does_not_have_is_an_error():
    for text in (
        "return e.fences",
        "return mutable.s",
        "return STATE.waiting",
        "return MUTABLE.q",
        "return NOTHING.id",
    ):
        with pytest.raises(KeyError):
            names.rendered(text)


def test_comments_and_strings_stay_as_they_are():
    text = "call('MICROS e.fence') -- STATE.queued and e.fence"
    assert names.rendered(text) == text
    assert names.rendered("if e.fence == known.mutable.fence then tell(STATE.queued) end") == (
        "if e[2] == known.mutable.f then tell('q') end"
    )


def test_every_field_of_a_message_is_at_its_place():
    end = messages.EndMessage(*range(1, 23))
    for name, place in names.GROUPS["END"].items():
        assert getattr(end, name) == place
    assert messages.EndMessage.__struct_fields__[: len(messages.PlainEndMessage.__struct_fields__)] == (
        messages.PlainEndMessage.__struct_fields__
    )


def test_a_body_is_written_in_the_order_of_its_fields():
    new = build.new_job(
        "id", task="task", payload=b"payload", queue="queue", tags=("tag",), key="key", codec="codec", max_attempts=7,
        timeout=8.0, retry=Backoff(base=9.0), meta={"meta": 1}, limit_key=LimitKey("limit_key", 1, 2, 3, 4),
    )  # fmt: skip
    front = b"".join(msgspec.msgpack.encode(number) for number in (1, 2, 3))
    body = msgspec.msgpack.decode(b"\x9f" + front + pack_one(new).body, type=messages.Body)
    assert msgspec.structs.asdict(body) == {
        "created_at": 1, "run_at": 2, "priority": 3, "id": "id", "queue": "queue", "task": "task", "tags": '["tag"]',
        "key": "key", "codec": "codec", "max_attempts": 7, "timeout": 8.0, "retry": Backoff(base=9.0),
        "meta": '{"meta":1}', "payload": b"payload", "limit_key": "1,2,3,4,limit_key",
    }  # fmt: skip


def test_every_script_is_put_together():
    for name in set(LUA) & set(NEEDS) | {"leave", "stats", "transitions", "record", "output"}:
        assert script(name).text
    assert lone_script("enqueue_one").text
    assert write_script(*KINDS).text


if __name__ == "__main__":
    GOLDEN.write_text(names.listing())
