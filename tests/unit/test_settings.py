"""Settings: where they come from, what they may be, and what is never shown."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from holdfast import ConfigError, Holdfast
from holdfast.app import parts_of
from holdfast.core.settings import (
    PARSERS,
    STORED,
    Settings,
    combine,
    duration,
    expand_stored,
    from_environment,
    parse,
    parse_stored,
    redact,
    stored_name,
)

# -- precedence


def test_the_call_comes_before_the_environment_before_the_store_before_the_default():
    call, environment, stored = {"grace": 1}, {"grace": 2.0, "poll": 2.0}, {"grace": 3, "poll": 3, "concurrency": 3}
    settings = combine(call, environment, stored)
    assert (settings.grace, settings.poll, settings.concurrency, settings.max_attempts) == (1, 2, 3, 5)


def test_a_setting_of_none_in_the_call_comes_before_the_environment():
    assert combine({"max_depth": None}, {"max_depth": 5}, {}).max_depth is None


def test_the_defaults_are_those_of_the_manual():
    settings = Settings()
    assert settings.url == "sqlite:///holdfast.db"
    assert (settings.lease, settings.poll, settings.grace, settings.concurrency) == (None, 1.0, 6.0, None)
    assert (settings.max_attempts, settings.max_crashes, settings.max_depth) == (5, 3, None)
    assert (settings.retry_base, settings.retry_factor, settings.retry_jitter, settings.retry_cap) == (5, 2, 2, 3600)
    assert (settings.max_payload, settings.max_output) == (1024**2, 1024**2)
    assert settings.retention == settings.key_retention == 7 * 86400
    assert (settings.refusal_timeout, settings.cloudpickle, settings.secret) == (3600, False, ())


def test_every_setting_can_be_parsed_and_every_parser_has_a_setting():
    assert set(PARSERS) == set(Settings.__struct_fields__)
    assert set(STORED) <= set(PARSERS)


def test_secrets_and_urls_are_not_kept_in_the_store():
    assert not {"secret", "url", "cloudpickle", "log_level"} & set(STORED)


def test_every_default_is_a_value_that_its_own_parser_takes():
    for name in PARSERS:
        default = getattr(Settings(), name)
        assert parse(name, default) == default


# -- the environment


def test_the_environment_gives_every_setting_by_its_name_in_capitals():
    environ = {"HOLDFAST_MAX_ATTEMPTS": "7", "HOLDFAST_RETRY_CAP": "2h", "HOLDFAST_CLOUDPICKLE": "yes", "PATH": "/"}
    assert from_environment(environ) == {"max_attempts": 7, "retry_cap": 7200.0, "cloudpickle": True}


def test_a_wrong_variable_is_named_with_what_it_must_be():
    with pytest.raises(ConfigError, match=r"HOLDFAST_CONCURRENCY: concurrency must be a whole number .* not 'many'"):
        from_environment({"HOLDFAST_CONCURRENCY": "many"})


def test_an_app_takes_its_url_from_the_environment(monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", "memory://")
    assert parts_of(Holdfast()).url == "memory://"
    assert parts_of(Holdfast("sqlite:///other.db")).url == "sqlite:///other.db"


def test_an_app_without_a_url_uses_a_file_here():
    assert parts_of(Holdfast()).url == "sqlite:///holdfast.db"


# -- values


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        (1.5, 1.5),
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("7d", 7 * 86400),
        ("2w", 14 * 86400),
        (" 15 m ", 900),
        (timedelta(hours=1), 3600),
        (0, 0),
    ],
)
def test_a_duration_is_seconds_or_a_number_with_its_unit(given, seconds):
    assert duration(given) == seconds
    assert parse("retention", given) == seconds


@pytest.mark.parametrize(
    "given", ["", "soon", "-5", "5 minutes", "1.2.3", "m", None, True, [], "nan", "inf", -1, float("inf")]
)
def test_what_is_no_duration_is_refused(given):
    with pytest.raises(ConfigError, match="retention must be"):
        parse("retention", given)


def test_a_duration_that_no_clock_could_add_is_refused():
    with pytest.raises(ConfigError, match="retention must be"):
        parse("retention", 1e300)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (500_000, 500_000),
        ("500000", 500_000),
        ("64k", 65_536),
        ("64 KiB", 65_536),
        ("1MiB", 1024**2),
        ("1.5m", 1_572_864),
    ],
)
def test_a_size_is_bytes_or_a_number_with_its_unit(given, size):
    assert parse("max_payload", given) == size


@pytest.mark.parametrize("given", ["1GB of it", "many", "0", 0, -1, 1.5, None, True])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(ConfigError, match="max_payload must be"):
        parse("max_payload", given)


@pytest.mark.parametrize("word", ["1", "true", "YES", "on", True])
def test_a_flag_is_on(word):
    assert parse("cloudpickle", word) is True


@pytest.mark.parametrize("word", ["0", "False", "no", "off", "", False])
def test_a_flag_is_off(word):
    assert parse("cloudpickle", word) is False


@pytest.mark.parametrize("word", ["none", "None", "off", "", None])
def test_a_limit_can_be_switched_off(word):
    assert parse("max_depth", word) is None


def test_a_log_level_is_a_word_in_either_case():
    assert parse("log_level", "debug") == "DEBUG"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("concurrency", 0, "concurrency must be a whole number from 1 to 10000, not 0"),
        ("concurrency", "1.5", "concurrency must be a whole number"),
        ("concurrency", 2.5, "concurrency must be a whole number, not 2.5"),
        ("max_attempts", -1, "max_attempts must be a whole number from 0"),
        ("max_attempts", True, "max_attempts must be a whole number, not True"),
        ("poll", 0, "poll must be from 0.01 to 3600, not 0"),
        ("poll", "often", "poll must be a number, not 'often'"),
        ("lease", 0, "lease must be from 0.1 to 604800, not 0"),
        ("lease", [], "lease must be a number"),
        ("retry_factor", -1, "retry_factor must be a finite number of at least 0, not -1"),
        ("refusal_timeout", "never", "refusal_timeout must be a duration such as 90 (seconds), 15m or 7d, not 'never'"),
        ("log_format", "xml", "log_format must be one of auto, json, pretty"),
        ("cloudpickle", "maybe", "cloudpickle must be true or false, not 'maybe'"),
        (
            "key_retention",
            "1h",
            "key_retention must be at least 24h (so that a late retry of an enqueue finds its key), not '1h'",
        ),
        ("max_payload", "12 parsecs", "max_payload must be a size such as 500000 (bytes), 64k or 1MiB"),
        ("max_payload", "abc", "max_payload must be a size such as 500000 (bytes), 64k or 1MiB"),
        ("max_payload", "1.2.3k", "max_payload must be a size such as 500000 (bytes), 64k or 1MiB"),
        ("grace", "5y", "grace must be a duration such as 90 (seconds), 15m or 7d"),
        ("retention", "1.2.3d", "retention must be a duration such as 90 (seconds), 15m or 7d"),
    ],
)
def test_a_wrong_value_is_refused_with_what_it_must_be(name, given, said):
    with pytest.raises(ConfigError) as refused:
        parse(name, given)
    assert said in str(refused.value)


def test_an_unknown_setting_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"unknown setting 'max_atempts'; known settings: .*max_attempts"):
        Holdfast("memory://", max_atempts=3)


# -- the store's config


def test_max_retries_is_the_same_number_as_max_attempts():
    assert combine({}, {}, {"max_retries": 2}).max_attempts == 2


def test_backoff_base_is_the_plain_power_without_jitter():
    settings = combine({}, {}, {"backoff_base": 3})
    backoff = settings.rules.backoff
    assert [backoff.delay(attempt, 0.99) for attempt in (1, 2, 3)] == [3, 9, 27]


@pytest.mark.parametrize("spelled", ["max-retries", "MAX_RETRIES", "max_retries", "Max-Retries"])
def test_hyphens_and_capitals_are_as_good(spelled):
    assert stored_name(spelled) == "max_retries"


def test_a_stored_value_is_checked_and_understood():
    assert parse_stored("max-retries", "2") == ("max_retries", 2)
    assert parse_stored("backoff_base", "2") == ("backoff_base", 2)
    assert parse_stored("backoff-base", "1.5") == ("backoff_base", 1.5)
    assert parse_stored("retention", "2d") == ("retention", 172_800.0)


@pytest.mark.parametrize("given", ["-1", "two", None, float("nan")])
def test_a_wrong_backoff_base_is_refused(given):
    with pytest.raises(ConfigError, match="backoff_base must be a finite number of at least 0"):
        parse_stored("backoff_base", given)


@pytest.mark.parametrize("name", ["secret", "url", "no_such", ""])
def test_what_the_store_does_not_keep_is_refused_with_what_it_does(name):
    with pytest.raises(ConfigError, match=r"cannot be kept .* these settings can: audit_retention, .*max_retries"):
        stored_name(name)


def test_a_stored_value_from_another_version_harms_nobody():
    assert expand_stored({"concurrency": "a lot", "from_the_future": 1, "max_retries": 3}) == {"max_attempts": 3}


# -- secrets


@pytest.mark.parametrize(
    ("given", "secrets"),
    [
        ("one", ("one",)),
        ("new, old", ("new", "old")),
        (["new", "old"], ("new", "old")),
        (("new",), ("new",)),
        ("", ()),
        (" , ", ()),
        (None, ()),
        ("off", ()),
    ],
)
def test_secrets_are_text_with_commas_or_a_list(given, secrets):
    assert parse("secret", given) == secrets


@pytest.mark.parametrize("given", [12345, b"12345", ["new", 12345], {"12345": 12345}.values()])
def test_what_is_no_secret_is_refused_and_not_repeated(given):
    with pytest.raises(ConfigError, match="secret must be a string") as refused:
        parse("secret", given)
    assert "12345" not in str(refused.value)


def test_repr_hides_the_secret_and_the_password():
    shown = repr(Settings(url="redis://user:hunter2@host/0", secret=("correct horse", "battery staple")))
    assert "hunter2" not in shown
    assert "correct horse" not in shown
    assert "battery staple" not in shown
    assert "redis://***@host/0" in shown


def test_nor_does_rich_show_them():
    from rich.pretty import pretty_repr

    shown = pretty_repr(Settings(url="redis://user:hunter2@host/0", secret=("correct horse", "battery staple")))
    assert "hunter2" not in shown
    assert "correct horse" not in shown
    assert "battery staple" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@host/db",
        "postgresql://:hunter2@host/db",
        "redis://:hunter2@host:6379/0",
        "postgresql://user:p@hunter2@host/db",
        "postgresql://user:p:hunter2@host/db",
        "postgresql://user:p/hunter2@host/db",
        "postgresql://host/db?password=hunter2",
        "postgresql://host/db?sslmode=on&sslpassword=hunter2&x=1",
        "postgresql://host/db?signal=redis://:hunter2@other/0",
        "s3://bucket/prefix?secret_access_key=hunter2",
        "s3://bucket/prefix?aws_session_token=hunter2#there",
        "az://box/prefix?SAS_KEY=hunter2",
        "az://box/prefix?sig=hunter2",
        "az://box/prefix?credential=hunter2",
    ],
)
def test_a_url_is_shown_without_its_secrets(url):
    assert "hunter2" not in redact(url)
    assert "***" in redact(url)


@pytest.mark.parametrize("url", ["sqlite:///jobs.db", "memory://", "redis://host:6379/0", "postgresql://user@host/db"])
def test_a_url_without_secrets_is_shown_whole(url):
    assert redact(url) == url


def test_an_error_about_a_url_does_not_show_its_password():
    with pytest.raises(ConfigError) as refused:
        Holdfast("mysql://user:hunter2@host/db")
    assert "there is no store for the scheme 'mysql'" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "has no scheme"),
        ("jobs", "has no scheme"),
        ("jobs.db", "write sqlite:///jobs.db"),
        ("./jobs.db", "write sqlite:///jobs.db"),
        ("../jobs.sqlite3", "write sqlite:///../jobs.sqlite3"),
        ("/var/lib/jobs.db", "write sqlite:////var/lib/jobs.db"),
        ("me:secret@host/jobs.db", "has no scheme"),
        ("sqlite://jobs.db", "a SQLite URL has three slashes: sqlite:///jobs.db"),
        ("sqlite://", "name a file"),
        ("sqlite:///", "name a file"),
        ("sqlite:///jobs.db?sychronous=normal", "unknown parameter sychronous; known: synchronous"),
        ("sqlite:///jobs.db?synchronous=off", "synchronous= must be full or normal, not 'off'"),
        ("memory://?x=1", "unknown parameter x"),
        ("http://[", "the http:// URL is malformed"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong(url, said):
    with pytest.raises(ConfigError) as refused:
        Holdfast(url)
    assert said in str(refused.value)


@pytest.mark.parametrize("store", [5, ["memory://"], object()])
def test_what_is_neither_a_url_nor_a_store_is_refused(store):
    with pytest.raises(ConfigError, match="a URL, a store object, a Redis client, an asyncpg pool or an obstore store"):
        Holdfast(store)


def test_cloudpickle_without_a_secret_is_refused():
    with pytest.raises(ConfigError, match="set HOLDFAST_SECRET or"):
        Holdfast("memory://", cloudpickle=True)


def test_a_wrong_variable_stops_the_program_with_one_clear_line():
    environ = {**os.environ, "HOLDFAST_LEASE": "forever"}
    program = [sys.executable, "-c", "from holdfast import Holdfast; Holdfast('memory://')"]
    ended = subprocess.run(program, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("HOLDFAST_LEASE: lease must be a number, not 'forever'")
