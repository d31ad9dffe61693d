#!/bin/sh
# A night's work as shell jobs: some now, some later, all of them retried, none of them lost.
# Run it in an empty folder:  sh nightly.sh
set -e
holdfast config set max_retries 3
holdfast config set backoff_base 2
holdfast enqueue '{"id": "backup", "command": "tar -cf backup.tar *.sh", "timeout": "1h", "priority": -10}'
holdfast enqueue '{"id": "report", "command": "wc -l *.sh", "tags": ["report"]}'
holdfast enqueue '{"id": "tidy", "command": "rm -f backup.tar", "delay": 2}'
holdfast worker start --count 2
while [ "$(holdfast show tidy --json | grep -c '"state":"succeeded"')" = 0 ]; do sleep 0.2; done
holdfast worker stop
holdfast logs report
holdfast status
