import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

URL = os.environ.get("REDIS_URL", "redis://localhost")
broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="letters", max_retries=3, min_backoff=1000, time_limit=60_000, store_results=True)
def write(name):
    return f"Dear {name}"


@dramatiq.actor(store_results=True)
def sign(text):
    return f"{text}, thank you"


if __name__ == "__main__":
    letter = dramatiq.pipeline([write.message("Ada"), sign.message()]).run()
    later = write.send_with_options(args=("Grace",), delay=1000)
    print(letter.get_result(block=True, timeout=30_000))
    print(later.get_result(block=True, timeout=30_000))
