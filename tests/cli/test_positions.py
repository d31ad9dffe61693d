"""-A and --url are accepted before the command, between a group and its command, and after the command."""

import pytest

APP = """
from holdfast import Holdfast
app = Holdfast("sqlite:///shop.db")

@app.task
def ship(order: int) -> None: ...
"""


@pytest.mark.parametrize(
    "words",
    [
        "-A shop:app list --json",
        "list -A shop:app --json",
        "list --json --app=shop:app",
        "--url sqlite:///shop.db list --json",
        "list --url sqlite:///shop.db --json",
        "list --json -A nowhere:app -A shop:app",
    ],
)
def test_the_application_is_accepted_in_any_position(terminal, words):
    (terminal.folder / "shop.py").write_text(APP)
    terminal("enqueue", "-A", "shop:app", "--task", "ship", "--args", "[1]", "--id", "x")
    assert '"id":"x"' in terminal(*words.split())


@pytest.mark.parametrize("words", ["-A shop:app dlq list", "dlq -A shop:app list", "dlq list -A shop:app"])
def test_a_group_accepts_it_too(terminal, words):
    (terminal.folder / "shop.py").write_text(APP)
    terminal("enqueue", "-A", "shop:app", "--task", "ship", "--args", "[1]")
    assert "in sqlite:///shop.db (" in terminal(*words.split())


def test_after_two_dashes_it_belongs_to_the_job(terminal):
    terminal("enqueue", "--id", "x", "--", "echo", "-A", "shop:app")
    assert terminal.job("x")["payload"]["command"] == "echo -A shop:app"


@pytest.mark.parametrize("words", ["demo -A shop:app", "init -A shop:app"])
def test_a_command_without_a_store_refuses_it(terminal, words):
    assert "No such option: -A" in terminal(*words.split(), code=2)


def test_a_path_instead_of_a_url_is_an_error_with_the_right_url(terminal):
    for path, url in (("/var/x.db", "sqlite:////var/x.db"), ("./x.db", "sqlite:///x.db"), ("x.db", "sqlite:///x.db")):
        said = terminal("list", "--url", path, code=2)
        assert said == f"holdfast: the store must be a URL, not the path of a file: write {url}\n"
