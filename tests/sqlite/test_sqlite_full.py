"""A file that may not grow any more, for longer than a lease: what runs, runs on."""

import resource

from support.outage import outlasted


class Limited:
    """The files of this process may not grow while it is set."""

    def __init__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def kill(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self.before[1]))

    def start(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


async def test_a_job_outlasts_a_disk_that_is_full_for_longer_than_its_lease(tmp_path):
    limited = Limited()
    try:
        job = await outlasted(f"sqlite:///{tmp_path}/jobs.db", limited)
    finally:
        limited.start()
    assert (job.attempt, job.result) == (1, "kept")
