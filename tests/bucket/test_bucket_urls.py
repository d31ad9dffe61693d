"""The URLs of buckets."""

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError
from holdfast.store.open import open_store


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://key:hunter2@bucket/jobs", "URL contains credentials: remove them"),
        ("s3://", "URL names no bucket"),
        ("file://jobs", "three slashes"),
        ("file:///", "three slashes"),
        ("s3://bucket?verify=never", "verify= must be always"),
        (
            "s3://bucket?secret=hunter2",
            "may be part of a secret; write & in a secret as %26\\); known: endpoint",
        ),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason_and_without_its_secrets(url, why):
    with pytest.raises(ConfigError, match=why) as raised:
        open_store(url, SystemClock())
    assert "hunter2" not in str(raised.value)
