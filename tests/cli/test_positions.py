"""-A and --url are accepted before the command, between a group and its command, and after the command."""

import pytest

APP = """
from holdfast import Holdfast
app = Holdfast("sqlite:///shop.db")

@app.task
def ship(order: int) -> None: ...
"""


@pytest.fixture
def shop(terminal):
    """A terminal in the folder of an application, whose store has one job."""
    (terminal.folder / "shop.py").write_text(APP)
    terminal.env["HOLDFAST_URL"] = f"sqlite:///{terminal.folder}/shop.db"
    terminal.store.using(id="x").enqueue("ship", 1)
    del terminal.env["HOLDFAST_URL"]
    return terminal


def test_the_application_and_the_store_are_accepted_in_any_position(shop):
    for words in (
        "-A shop:app list --json",
        "list --json --app=shop:app",
        "list --json -A nowhere:app -A shop:app",
        "--url sqlite:///shop.db list --json",
        "list --url sqlite:///shop.db --json",
    ):
        assert '"id":"x"' in shop(*words.split()), words
    for words in ("dlq -A shop:app list", "dlq list -A shop:app", "dlq --url sqlite:///shop.db list"):
        assert "in sqlite:///shop.db (" in shop(*words.split()), words


def test_after_two_dashes_it_belongs_to_the_job(terminal):
    terminal("enqueue", "--id", "x", "--", "echo", "-A", "shop:app")
    assert terminal.job("x")["payload"]["command"] == "echo -A shop:app"


def test_a_command_without_a_store_refuses_it(terminal):
    assert "No such option: -A" in terminal("demo", "-A", "shop:app", code=2)
    assert "No such option: -A" in terminal("init", "-A", "shop:app", code=2)


def test_a_path_instead_of_a_url_is_an_error_with_the_right_url(terminal):
    for path, url in (("/var/x.db", "sqlite:////var/x.db"), ("./x.db", "sqlite:///x.db"), ("x.db", "sqlite:///x.db")):
        said = terminal("list", "--url", path, code=2)
        assert said == f"holdfast: the store must be a URL, not the path of a file: write {url}\n"
