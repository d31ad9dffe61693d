"""What a bucket's URL may say."""

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.errors import ConfigError
from holdfast.store.open import open_store


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://key:hunter2@bucket/jobs", "keys do not belong into a URL"),
        ("s3://", "name a bucket"),
        ("file://jobs", "three slashes"),
        ("file:///", "three slashes"),
        ("s3://bucket?verify=never", "verify may be always"),
        ("s3://bucket?secret=hunter2", "unknown parameter; known: endpoint"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason_and_without_its_secrets(url, why):
    with pytest.raises(ConfigError, match=why) as told:
        open_store(url, SystemClock())
    assert "hunter2" not in str(told.value)
