"""Settings from the environment, so that one project covers every database and store."""

import json
import os
import sys

if os.environ.get("STORE_DRIVER") == "psycopg2":
    sys.modules["psycopg"] = None  # Django then uses the older driver

SECRET_KEY = "for tests"
USE_TZ = True
INSTALLED_APPS = ["holdfast.contrib.django", "store"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
if port := os.environ.get("STORE_POSTGRES"):
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ.get("STORE_NAME", "postgres"),
            "USER": "postgres",
            "HOST": "127.0.0.1",
            "PORT": port,
            "CONN_MAX_AGE": int(os.environ.get("STORE_CONN_MAX_AGE", "0")),
            "TEST": {"NAME": os.environ.get("STORE_TEST_NAME")},
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("STORE_FILE", ":memory:"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},
            "TEST": {"NAME": os.environ.get("STORE_TEST_NAME")},
        }
    }
HOLDFAST = json.loads(os.environ.get("STORE_HOLDFAST", "{}"))
TASKS = {
    "default": {
        "BACKEND": "holdfast.contrib.django.HoldfastBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"max_attempts": 2, "retry": None},
    }
}
QUIET = {name: {"level": "CRITICAL"} for name in ("holdfast", "django.tasks", "django_tasks")}
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": QUIET}
