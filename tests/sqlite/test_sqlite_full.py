"""A file that cannot grow for longer than a lease: running jobs continue."""

from support.limited import Limited
from support.outage import outlasted


async def test_a_job_outlasts_a_disk_that_is_full_for_longer_than_its_lease(tmp_path):
    limited = Limited()
    try:
        job = await outlasted(f"sqlite:///{tmp_path}/jobs.db", limited)
    finally:
        limited.start()
    assert (job.attempt, job.result) == (1, "kept")
