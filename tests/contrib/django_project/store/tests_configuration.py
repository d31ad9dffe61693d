"""The URL of the store, from the settings of a database."""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase, TransactionTestCase

from holdfast.contrib.django.configuration import Configuration, postgres_url
from holdfast.core.url import split
from holdfast.store.postgres.address import from_url

EMPTY = {"NAME": "", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}


class CallCommand(TransactionTestCase):
    def test_a_command_returns(self):
        with redirect_stdout(StringIO()) as printed:
            call_command("holdfast", "status")
        self.assertIn("Holdfast Status", printed.getvalue())
        with self.assertRaisesMessage(CommandError, "exit code 1"), redirect_stderr(StringIO()):
            call_command("holdfast", "show", "unknown")


class Urls(SimpleTestCase):
    def test_of_a_postgres_database(self):
        for given, url in {
            "NAME": ({"NAME": "shop"}, "postgresql:///shop"),
            "all": (
                {"NAME": "s p", "USER": "a@b", "PASSWORD": "p:/?#%", "HOST": "db", "PORT": 5433},
                "postgresql://a%40b:p%3A%2F%3F%23%25@db:5433/s%20p",
            ),
            "socket": ({"NAME": "shop", "HOST": "/run/pg", "PORT": "5"}, "postgresql:///shop?host=%2Frun%2Fpg&port=5"),
            "IPv6": ({"NAME": "shop", "HOST": "::1", "PORT": "5"}, "postgresql://[::1]:5/shop"),
            "options": (
                {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 3}},
                "postgresql://db/shop?sslmode=require",
            ),
            "service": ({"OPTIONS": {"service": "shop"}}, "postgresql:///?service=shop"),
        }.values():
            with self.subTest(url):
                self.assertEqual(postgres_url({**EMPTY, **given}), url)
                from_url(url)  # a store accepts it

    def test_parameters_are_added(self):
        made = Configuration(parameters={"schema": "jobs", "pool": 8})
        self.assertEqual(made.with_parameters("postgresql:///shop"), "postgresql:///shop?schema=jobs&pool=8")
        self.assertEqual(made.with_parameters("postgresql:///a?b=c"), "postgresql:///a?b=c&schema=jobs&pool=8")

    def test_a_file_may_have_any_name(self):
        name = "/srv/a b/50%#1?.sqlite3"
        self.assertEqual(unquote(split(Configuration.file_url(Path(name))).path), f"/{name}")
