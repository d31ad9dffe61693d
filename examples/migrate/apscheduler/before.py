from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.blocking import BlockingScheduler

scheduler = BlockingScheduler({"default": SQLAlchemyJobStore("sqlite:///jobs.db")}, timezone="Europe/Oslo")
ticks = []


def report(region): ...


def tick(word):
    ticks.append(word)
    print(word, len(ticks))
    if len(ticks) == 2:
        scheduler.shutdown(wait=False)


if __name__ == "__main__":
    scheduler.add_job(report, "cron", hour=9, args=["north"], id="report", coalesce=True, replace_existing=True)
    scheduler.add_job(tick, "interval", seconds=1, args=["tick"], id="tick", max_instances=1, replace_existing=True)
    scheduler.start()
