"""The fork server: what its caller can rely on once a program has been started."""

from __future__ import annotations

import pytest
from lab.process import Process

from support.forks import fork_server


@pytest.mark.timeout(60)
def test_a_program_can_be_ended_from_the_moment_it_is_started(tmp_path):
    for number in range(20):
        process = Process(f"program {number}", "http.server", ["0"], tmp_path / "log", fork_server=fork_server())
        process.close()
        assert not process.running
