"""The lines of output: marked ones with level and time, plain ones as they were written."""

import sys
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.log_lines import MAX_HELD, MAX_LINE, MAX_OPEN, Lines, Splitter, as_text, encode
from holdfast.core.operations import Printed

AT = 1_700_000_000_000_000


def lines(*chunks, position=0, fence=1):
    reader, found = Lines(position), []
    for chunk in chunks:
        found += reader.add(Printed(position, fence, chunk))
        position += len(chunk)
    return found + reader.rest()


def test_a_marked_line_has_level_time_and_logger():
    [line] = lines(encode(AT, "WARNING", "shop.mail", "slow"))
    assert (line.level, line.logger, line.text) == ("warning", "shop.mail", "slow")
    assert line.time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert as_text(line, UTC) == "2023-11-14 22:13:20Z warning  shop.mail: slow"


def test_a_record_of_several_lines_is_one_line():
    [line] = lines(encode(AT, "ERROR", None, "it broke\nTraceback\n  File"))
    assert (line.logger, line.text) == (None, "it broke\nTraceback\n  File")


def test_plain_output_is_returned_line_by_line():
    plain = lines(b"one\ntw", b"o\n\nthree \xff")
    assert [(line.position, line.text) for line in plain] == [(0, "one"), (4, "two"), (8, ""), (9, "three �")]
    assert {(line.level, line.time) for line in plain} == {(None, None)}


def test_names_and_texts_that_look_like_the_format_are_stored():
    [line] = lines(encode(AT, "Level 25", "a b\nc", "x\x1e1 2 3\x1fy \ud800"))
    assert (line.level, line.logger, line.text) == ("level_25", "a_b_c", "x\x1e1 2 3 y \\ud800")


def test_what_only_begins_like_a_marked_line_is_shown():
    assert [line.text for line in lines(b"\x1enonsense\n\x1e12 info\n", b"\x1e1 info - cut")] == [
        "nonsense", "12 info", "\x1e1 info - cut",
    ]  # fmt: skip


def test_a_marked_line_may_follow_plain_output_without_an_end():
    whole = b"no end" + encode(AT, "INFO", None, "one") + b"again \x1e" + encode(AT, "ERROR", "shop", "two")
    assert [(line.level, line.text) for line in lines(whole)] == [
        (None, "no end"), ("info", "one"), (None, "again \x1e"), ("error", "two"),
    ]  # fmt: skip


@given(
    st.lists(st.one_of(st.sampled_from([b"plain\n", b"\n", b"no end", b"\x1e"]), st.text(max_size=5)), max_size=6),
    st.data(),
)
def test_the_same_lines_come_however_the_output_is_cut(parts, data):
    whole = b"".join(encode(AT, "INFO", None, part) if isinstance(part, str) else part for part in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    chunks = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert lines(*chunks) == lines(whole)


def test_a_reader_continues_at_the_position_of_another():
    whole = encode(AT, "INFO", None, "one") + b"half a line\n"
    first = Lines()
    assert len(first.add(Printed(0, 1, whole[:-5]))) == 1
    second = Lines(first.position)
    assert [line.text for line in second.add(Printed(0, 1, whole))] == ["half a line"]


def test_dropped_output_is_noted():
    reader = Lines()
    found = reader.add(Printed(0, 1, b"begin\n")) + reader.add(Printed(100, 1, b"end\n"))
    assert [line.text for line in found] == [
        "begin", "94 bytes of older output were dropped: the setting max_output limits what is kept", "end",
    ]  # fmt: skip
    assert found[1].level == "warning"


def test_the_output_of_the_next_claim_begins_a_line():
    reader = Lines()
    found = reader.add(Printed(0, 1, b"killed in the mid")) + reader.add(Printed(17, 2, b"again\n"))
    assert [(line.fence, line.text) for line in found] == [(1, "killed in the mid"), (2, "again")]


def test_a_line_without_an_end_is_not_kept_for_ever():
    assert [len(line.text) for line in Lines().add(Printed(0, 1, b"x" * (MAX_OPEN + 1)))] == [MAX_OPEN + 1]
    [line] = lines(encode(AT, "INFO", None, "x" * (MAX_LINE + 7)))
    assert line.text.endswith("x… (7 more characters were not stored)")


def test_what_may_become_a_marked_line_is_not_kept_for_ever():
    parts, chunk, shown = Splitter(), b"\x1e" + b"x" * 99_999, 0
    for number in range(100):
        shown += sum(len(part.data) for part in parts.split(Printed(number * len(chunk), 1, chunk)))
        assert (number + 1) * len(chunk) - shown <= MAX_HELD
    assert parts.position == shown
    whole = encode(AT, "INFO", None, "\ud800" * MAX_LINE)  # the longest one
    [line] = lines(whole[:-1], b"\n")
    assert (line.level, len(whole) < MAX_HELD) == ("info", True)


def test_marks_without_lines_are_read_in_one_pass():
    calls = []
    sys.setprofile(lambda _, event, what: calls.append(what) if event == "c_call" else None)
    try:
        [line] = lines(b"x" + b"\x1e" * 10_000 + b"\n")
    finally:
        sys.setprofile(None)
    assert len(line.text) == 10_001
    assert 0 < len(calls) < 1000, "not a search for each mark"
