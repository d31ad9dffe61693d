"""URLs of stores: read in one way or refused, and no message shows a part of a secret."""

import asyncio
import os
import subprocess
import sys
import traceback

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import ConfigError, Holdfast, HoldfastError
from holdfast.core.clock import SystemClock
from holdfast.core.url import redact, split
from holdfast.store.open import open_store
from support.sizes import size

SPECIAL = "/?#[]@%:;,&=+$!'()*\"<>\\^`{|}~ \t\n\x00é℀€"
PIECES = ("hunter", "zwei", "secret3")
"""Parts of secrets, as long as no message would hold them by chance."""

secrets = st.lists(st.sampled_from(SPECIAL), min_size=2, max_size=2).map(
    lambda marks: f"{PIECES[0]}{marks[0]}{PIECES[1]}{marks[1]}{PIECES[2]}"
)
PLACES = [
    "postgresql://user:{}@host/db",
    "postgresql://:{}@host:5432,other/db?pool=2",
    "postgresql://user:{}@[::1]:5432/db",
    "postgresql://user:{}@host:port/db",
    "postgresql:///db?password={}",
    "postgresql://host/db?password={}&pool=2",
    "postgresql://host/db?sslmode=disable&password={}",
    "postgresql://host/db?signal=redis://:{}@host/0",
    "postgresql://host/db?signal=redis://u:{}@host:port/0",
    "redis://:{}@host/0",
    "redis://{}@host/0",
    "rediss://user:{}@host:6379/x",
    "redis+sentinel://:{}@a,b/mymaster?sentinel_password=x",
    "redis+sentinel://a,b/mymaster?sentinel_password={}",
    "redis+cluster://:{}@host",
    "unix://:{}@/run/redis.sock",
    "http://user:{}@host",
    "https://{}@host/base",
    "http://host?token={}",
    "s3://key:{}@bucket/jobs",
    "s3://bucket/jobs?secret_access_key={}",
    "s3://bucket?endpoint=http://key:{}@host",
    "gs://:{}@bucket",
    "az://:{}@box?account=a",
    "sqlite://user:{}@host/jobs.db",
    "file://user:{}@host/jobs",
    "mysql://user:{}@host/db",
    "postgresql:user:{}@host/db",
    "user:{}@host/db",
    "{}",
]


@settings(deadline=None, max_examples=size(500))
@given(place=st.sampled_from(PLACES), secret=secrets)
@example(place=PLACES[0], secret="hunter/zwei/secret3")
@example(place=PLACES[0], secret="hunter[zwei/secret3")
@example(place=PLACES[0], secret="hunter℀zwei#secret3")
@example(place=PLACES[5], secret="hunter&zwei#secret3")
def test_no_error_and_no_redacted_url_contains_a_part_of_a_secret(place, secret):
    url = place.format(secret)
    said = [redact(url), *refusal(lambda: open_store(url, SystemClock())), *refusal(lambda: Holdfast(url))]
    assert [(piece, text) for text in said for piece in PIECES if piece in text] == []


def refusal(make):
    """What is said where it is refused, with all that a traceback would show."""
    try:
        return [repr(make())]
    except HoldfastError:
        return [line for line in traceback.format_exc().splitlines() if not line.startswith("    ")]


@settings(deadline=None)
@given(user=st.text(min_size=1), password=st.text(min_size=1), option=st.text(min_size=1))
def test_what_is_percent_encoded_is_read_as_it_was(user, password, option):
    from urllib.parse import quote

    try:
        user, password, option = (text.encode().decode() for text in (user, password, option))
    except UnicodeEncodeError:
        return
    encoded = [quote(text, safe="") for text in (user, password, option)]
    parts = split("redis://{}:{}@host:6379/0?prefix={}".format(*encoded))
    assert (parts.username, parts.password, parts.options) == (user, password, {"prefix": option})
    again = split(parts.encoded("redis", parts.options))
    assert (again.username, again.password, again.options) == (user, password, {"prefix": option})
    assert (again.hosts, again.path) == ((("host", 6379),), "/0")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://u:a/b@host/db", "@ after the host; percent-encode"),
        ("postgresql://u:a?b@host/db", "@ after the host"),
        ("postgresql://u:a#b@host/db", "it contains a #"),
        ("postgresql://u:a@b@host/db", "more than one @"),
        ("postgresql://u:a%b@host/db", "% is not followed by two hexadecimal digits"),
        ("postgresql://u:%ff@host/db", "not UTF-8"),
        ("postgresql://host:port/db", "HOST:PORT"),
        ("postgresql://host:0/db", "from 1 to 65535"),
        ("postgresql://host:70000/db", "from 1 to 65535"),
        ("postgresql://[::1/db", "HOST:PORT"),
        ("postgresql://host/db?port=here", "port= must be a number"),
        ("postgresql://host/db?pool=1&pool=2", "given twice"),
        ("postgresql://host/db\n", "control character"),
        ("postgresql://host/db?signal=http://host", r"\?signal= accepts redis://"),
        ("postgresql://host/db?signal=redis://secret@host", "redis://:PASSWORD@HOST"),
        ("redis://secret@host", "redis://:PASSWORD@HOST"),
        ("s3://bucket?endpoint=http://k%40host", "URL contains credentials: remove them"),
        ("sqlite:///a%00b.db", "control character"),
        ("file:///var/a%0Ab", "control character"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///%3Amemory%3A?synchronous=normal", "use memory://"),
        ("sqlite:///file::memory:", "name the file itself"),
        ("sqlite:///file:jobs.db?synchronous=normal", "name the file itself"),
    ],
)
def test_what_is_malformed_or_ambiguous_is_refused_with_what_to_do(url, why):
    with pytest.raises(ConfigError, match=why):
        open_store(url, SystemClock())


STORE_URLS = (
    "memory://",
    "sqlite:///jobs",
    "file:///var/jobs",
    "unix:///run/redis",
    "redis://host/0",
    "redis+sentinel://host/mymaster",
    "redis+cluster://host",
    "postgresql://host/db",
    "s3://bucket/jobs",
    "gs://bucket/jobs",
    "az://box/jobs",
    "http://host/base",
)


@pytest.mark.parametrize("url", STORE_URLS)
@pytest.mark.parametrize(
    ("tail", "why"),
    [
        ("#b.db", "write %23 for a literal #"),
        ("#", "write %23 for a literal #"),
        ("?b.db", "write %3F for a literal [?]"),
        ("?", "write %3F for a literal [?]"),
        ("?&", "write %3F for a literal [?]"),
        ("?b=c#d", "write %23 for a literal #"),
    ],
)
def test_no_store_drops_text_after_a_bare_mark(url, tail, why):
    with pytest.raises(ConfigError, match=why):
        open_store(url + tail, SystemClock())


def test_marks_that_are_escaped_are_part_of_the_name(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path}/a%23b%3Fc.db")
    app.sync.stats()
    app.sync.close()
    app = Holdfast(f"file://{tmp_path}/d%23e%3Ff")
    app.sync.stats()
    app.sync.close()
    assert {each.name for each in tmp_path.iterdir()} >= {"a#b?c.db", "d#e?f"}
    assert not {"a", "d"} & {each.name for each in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "url",
    ["sqlite:///a@b.db", "file:///var/a@b", "unix:///run/a@b.sock", "postgresql:///db?host=/run/pg", "redis://[::1]:7"],
)
def test_what_can_be_read_in_one_way_only_is_taken(url):
    open_store(url, SystemClock())
    assert redact(url) == url


COMMANDS = (["status"], ["list"], ["doctor"], ["migrate"], ["worker", "start"], ["serve", "--port", "0"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("given", ["--url", "HOLDFAST_URL"])
def test_a_command_prints_one_line_without_the_secret(command, given, tmp_path):
    url = "postgresql://user:hunter/zwei@host/db"
    environment = os.environ | ({"HOLDFAST_URL": url} if given == "HOLDFAST_URL" else {})
    words = [sys.executable, "-m", "holdfast", *command, *(["--url", url] if given == "--url" else [])]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "the postgresql:// URL is malformed" in line
    assert "hunter" not in line
    assert "zwei" not in line


def test_a_webhook_url_with_a_secret_is_refused_without_it():
    app = Holdfast("memory://", secret="s" * 32)
    for url in ("https://u:hunter2@host/x", "https://u:hun/ter2@host:x", "http://[hunter2", "ftp://hunter2"):
        with pytest.raises(ConfigError) as refused:
            asyncio.run(app.webhooks.add("hook", url))
        assert "hunter2" not in str(refused.value)
