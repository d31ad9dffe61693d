"""Parts of the codec: the meta of a job, the results of a batch, and what is said of a value that JSON would change."""

import datetime as dt
import math
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

import pytest

from holdfast import InvalidJob
from holdfast.codec import Arguments, Hole
from holdfast.codec.changes import changed
from holdfast.codec.items import result_type
from holdfast.codec.meta import checked_meta
from holdfast.codec.shape import Injected


@dataclass
class Measured:
    """Two of them are equal, whatever was measured."""

    seconds: float | None = field(compare=False)


class OwnPath(PurePosixPath):
    """A path that msgspec does not know."""


def test_meta_is_plain_json():
    assert checked_meta({"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}
    for wrong in ([1], {1: 2}, {"a": (1, 2)}):
        with pytest.raises(InvalidJob, match="meta"):
            checked_meta(wrong)


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (list[int], int),
        (list[int | ValueError], int),
        (list[str] | None, str),
        (list[ValueError], Any),
        (list, Any),
        (int, Any),
    ],
)
def test_a_job_of_a_batch_has_the_result_type_of_one_item(hint, kind):
    assert result_type(hint) == kind


def test_a_key_that_json_would_change_is_named_with_its_type():
    assert str(changed({"a": {1: 2}}, {"a": {"1": 2}}, exact=True)) == "JSON would turn the int at a key 1 into str"


@pytest.mark.parametrize("meta", [[("a", 1)], "a", {1: 2}, {"a": 1, 2: 3}])
def test_meta_that_is_no_dict_with_string_keys_is_refused(meta):
    with pytest.raises(InvalidJob, match="dict with string keys"):
        checked_meta(meta)


def test_a_call_with_results_of_other_jobs_is_checked_and_written_with_marks():
    def add(a: int, b: int): ...

    arguments = Arguments(add)
    assert arguments.encode_open((1, Hole(3)), {}) == b'{"a":1,"b":{"$result":3}}'
    with pytest.raises(InvalidJob, match="'a'"):
        arguments.encode_open(("x", Hole(3)), {})


def test_a_payload_of_a_function_without_a_signature_must_be_an_object():
    arguments = Arguments(dict)
    arguments.check_open(b'{"a":1}')
    with pytest.raises(InvalidJob):
        arguments.check_open(b"[1]")


def test_dependencies_and_the_context_are_not_part_of_a_call():
    class Ctx: ...

    made = Injected(dict, "job")

    def task(ctx: Annotated[Ctx, "of the job"], a: int, db: Any = made): ...

    arguments = Arguments(task, context_type=Ctx)
    assert arguments.takes_context
    assert arguments.injected == {"db": made}
    assert arguments.encode((1,), {}) == b'{"a":1}'


def test_a_number_that_json_does_not_have_is_named_in_a_dict_with_other_keys():
    def task(a: dict[int, float | None]): ...

    with pytest.raises(InvalidJob, match="NaN or infinity"):
        Arguments(task).encode(({1: math.nan},), {})
    assert Arguments(task).encode(({1: None},), {}) == b'{"a":{"1":null}}'


def test_a_number_that_json_does_not_have_is_found_in_a_field_that_is_not_compared():
    def task(a: Measured): ...

    with pytest.raises(InvalidJob, match="NaN or infinity"):
        Arguments(task).encode((Measured(math.nan),), {})
    assert Arguments(task).encode((Measured(None),), {}) == b'{"a":{"seconds":null}}'


def test_a_time_that_json_would_move_is_named_by_its_type():
    odd = dt.datetime(1900, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=90)))
    back = odd.astimezone(dt.UTC) + dt.timedelta(seconds=30)
    assert changed([odd], [back], exact=False)[:2] == ("[0]", "datetime")


@pytest.mark.parametrize(("exact", "path"), [(True, " key 1"), (False, None)])
def test_a_key_that_is_no_text_is_a_change_only_without_an_annotation(exact, path):
    found = changed({1: object}, {1: object}, exact=exact)
    assert (found and found.path) == path


def test_a_path_is_read_from_text_alone():
    def task(a: OwnPath): ...

    arguments = Arguments(task)
    args, kwargs = arguments.decode(b'{"a":"x"}')
    assert [type(each) for each in (*args, *kwargs.values())] == [OwnPath]
    with pytest.raises(InvalidJob, match="Expected `OwnPath`"):
        arguments.decode(b'{"a":1}')
