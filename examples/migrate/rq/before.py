import os
from datetime import timedelta

from rq import Queue, Retry, get_current_job

from redis import Redis

queue = Queue(connection=Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost")))


def resize(photo, width):
    job = get_current_job()
    job.meta["width"] = width
    job.save_meta()
    return f"{photo}-{width}"


def publish(album):
    return f"{album} is online"


def main():
    photos = [queue.enqueue(resize, name, 640, retry=Retry(max=3, interval=5)) for name in ("cat", "dog")]
    album = queue.enqueue(publish, "pets", depends_on=photos)
    later = queue.enqueue_in(timedelta(seconds=1), resize, "bird", 320, job_timeout=60)
    for job in (*photos, album, later):
        print(job.latest_result(timeout=30).return_value)
