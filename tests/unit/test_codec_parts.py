"""Parts of the codec: the meta of a job, the results of a batch, and what is said of a value that JSON would change."""

from typing import Any

import pytest

from holdfast import InvalidJob
from holdfast.codec.changes import changed
from holdfast.codec.items import result_type
from holdfast.codec.meta import checked_meta


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
