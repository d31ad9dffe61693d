"""`holdfast init`: a starter project that runs as its README says."""

import pytest

from holdfast.cli.init import FILES
from support.snippets import check, snippets_of


@pytest.mark.extended
def test_the_project_runs_as_its_readme_says(terminal, tmp_path, monkeypatch):
    terminal("init", "shop")
    folder = tmp_path / "shop"
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (session,) = snippets_of("README.md", (folder / "README.md").read_text())
    check(session, folder)


def test_nothing_is_overwritten(terminal, tmp_path):
    (tmp_path / "tasks.py").write_text("mine")
    assert "nothing was written: tasks.py exists" in terminal("init", code=2)
    assert [file.name for file in tmp_path.iterdir() if file.name != "state"] == ["tasks.py"]
    assert (tmp_path / "tasks.py").read_text() == "mine"
    terminal("init", "a/b")
    assert "a/b/app.py exists" in terminal("init", "a/b", code=2)


def test_a_folder_that_cannot_be_made_is_an_error(terminal, tmp_path):
    (tmp_path / "file").touch()
    assert "file/below cannot be written: Not a directory" in terminal("init", "file/below", code=2)


def test_the_programs_of_the_project_are_valid():
    for name, text in FILES.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
