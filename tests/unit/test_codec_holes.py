"""Results of a flow's jobs in the payload of another: marks, and what stands in their place."""

import pytest

from holdfast import InvalidJob
from holdfast.codec.holes import MARK, Hole, filled, is_open, opened


def mark(number):
    return f'{{"{MARK}":{number}}}'


def test_each_mark_is_replaced_by_the_result_of_its_job():
    payload = f'{{"args":[{mark(0)},[{mark(1)},5]],"kwargs":{{"a":{mark(2)}}}}}'.encode()
    found = filled(payload, {0: b'"x"', 1: b"[1,2]", 2: None})
    assert found == b'{"args":["x",[[1,2],5]],"kwargs":{"a":null}}'


@pytest.mark.parametrize("value", [f'{{"{MARK}":0,"b":1}}', f'{{"{MARK}":"0"}}', '{"other":0}'])
def test_what_only_looks_like_a_mark_stays(value):
    payload = f'{{"args":[{value}]}}'.encode()
    assert filled(payload, {0: b"1"}) == payload


def test_a_result_that_is_no_json_is_refused():
    with pytest.raises(InvalidJob, match="job 0 of the flow"):
        filled(f'{{"args":[{mark(0)}]}}'.encode(), {0: b'1],"kwargs":{}'})


def test_placeholders_become_marks_wherever_they_are():
    assert opened({"a": [Hole(0), {"b": Hole(1)}], "c": 1}, "total()") == {"a": [{MARK: 0}, {"b": {MARK: 1}}], "c": 1}
    with pytest.raises(InvalidJob, match="rename the key"):
        opened([{MARK: 1}], "total()")


def test_a_payload_is_open_while_it_has_marks():
    assert is_open(f'{{"a":{mark(0)}}}'.encode())
    assert not is_open(b'{"a":1}')
    assert not is_open(f'{{"a":"{MARK}"}}'.encode())
