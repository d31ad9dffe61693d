"""Tasks outside the app's module are found: `imports=`, `-I` and `--discover`."""

import json

import pytest

QUEUE = """
from holdfast import Holdfast

app = Holdfast({arguments})
"""
TASK = """
from shop.queue import app

@app.task(run_in={run_in!r})
def {name}() -> str:
    return "{name} ran"
"""


@pytest.fixture
def shop(terminal):
    """Writes a package whose tasks are in other modules than its app."""

    def write(arguments=""):
        for folder in ("shop", "shop/orders"):
            (terminal.folder / folder).mkdir()
            (terminal.folder / folder / "__init__.py").touch()
        (terminal.folder / "shop/queue.py").write_text(QUEUE.format(arguments=arguments))
        (terminal.folder / "shop/mail.py").write_text(TASK.format(name="send", run_in="isolated"))
        (terminal.folder / "shop/tasks.py").write_text(TASK.format(name="clean", run_in=None))
        (terminal.folder / "shop/orders/tasks.py").write_text(TASK.format(name="ship", run_in=None))

    return write


def run(terminal, name, *options):
    id = json.loads(terminal("enqueue", "--task", name, "--json"))["id"]
    terminal("worker", "start", "-A", "shop.queue:app", "--foreground", "--drain", *options)
    return terminal.job(id)["state"], terminal.log()


def test_modules_that_the_app_names_are_imported_by_workers_and_children(terminal, shop):
    shop("imports=['shop.mail']")
    state, _ = run(terminal, "send")
    assert state == "succeeded"


def test_modules_of_the_command_line_are_imported_by_workers_and_children(terminal, shop):
    shop()
    state, _ = run(terminal, "send", "-I", "shop.mail")
    assert state == "succeeded"


def test_all_tasks_modules_of_a_package_are_found(terminal, shop):
    shop()
    other = json.loads(terminal("enqueue", "--task", "clean", "--json"))["id"]
    state, _ = run(terminal, "ship", "--discover", "shop")
    assert (state, terminal.job(other)["state"]) == ("succeeded", "succeeded")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-I", "shop.mial"), "imports= or -I: there is no module 'shop.mial' in the current folder"),
        (("--discover", "shop.mail"), "--discover shop.mail: this is a module, not a package; use -I shop.mail"),
        (("--discover", "shop.bare"), "neither this package nor one in it has a module tasks.py"),
        (("--discover", "nothing"), "--discover: there is no module 'nothing'"),
    ],
)
def test_a_module_that_does_not_exist_is_named(terminal, shop, options, said):
    shop()
    (terminal.folder / "shop/bare").mkdir()
    (terminal.folder / "shop/bare/__init__.py").touch()
    assert said in terminal("worker", "start", "-A", "shop.queue:app", *options, code=2)


def test_imports_need_an_application(terminal):
    assert "name it with -A module:app" in terminal("worker", "start", "-I", "shop.mail", code=2)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            "def load():\n    return nothing\n\n\nload()\n",
            ["cannot be imported: NameError: name 'nothing' is not defined", "line 5: load()", "line 2: return"],
        ),
        ("def load(:\n", ["module 'broken' cannot be imported: SyntaxError: invalid syntax", "line 1: def load(:"]),
        ("import nothing_here\n", ["ModuleNotFoundError: No module named 'nothing_here'", "line 1: import nothing"]),
        (
            "from shop.queue import app\n\n@app.task(bind=True)\ndef send(self): ...\n",
            ["TypeError: unknown option 'bind', which is Celery's: annotate the first parameter", "line 3: @app.task("],
        ),
        (
            "from holdfast import Depends\nfrom shop.queue import app\n\n@app.task\ndef send(a=Depends): ...\n",
            ["the default of 'a' is Depends itself: write Depends(function); in", "line 4: @app.task"],
        ),
    ],
    ids=["exception", "syntax", "import", "option", "holdfast"],
)
def test_a_module_that_cannot_be_imported_is_reported_with_its_own_lines(terminal, shop, source, lines):
    shop()
    (terminal.folder / "broken.py").write_text(source)
    printed = terminal("worker", "start", "-A", "shop.queue:app", "-I", "broken", code=2)
    assert [line for line in lines if line not in printed] == []
    assert str(terminal.folder / "broken.py") in printed
    assert len(printed.splitlines()) <= len(lines)


def test_a_django_project_that_cannot_be_set_up_is_named(terminal, shop):
    shop()
    terminal.env["DJANGO_SETTINGS_MODULE"] = "site.setings"
    printed = terminal("worker", "start", "-A", "shop.queue:app", code=2)
    assert "DJANGO_SETTINGS_MODULE=site.setings: the Django project cannot be loaded: ModuleNotFoundError" in printed
    assert len(printed.splitlines()) == 1
