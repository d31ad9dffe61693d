"""The process guard: stands above one job's processes, and does not leave before all of them are gone.

Run as a script with nothing but the standard library, since one is started for every job:

    python -I -S process_guard.py STATUS_FD WORKER_PID COMMAND…

1. It adopts whatever its descendants leave behind (a subreaper), so that a double-forked daemon stays within reach.
2. SIGTERM: end the job's processes, with SIGTERM. SIGUSR1: end them now, with SIGKILL.
3. If the worker dies, however suddenly, the kernel sends it SIGUSR1; if the process guard dies, the command gets SIGKILL.
4. Once the command has ended, what it left running is ended too: SIGTERM, and a second later SIGKILL.
5. It says `pid N` at the start and `exit N` or `signal N` at the very end, on STATUS_FD.

Without Linux there is no subreaper and no /proc: there it reaches the command's process group, and no further.
"""

# ruff: noqa: SIM105  # contextlib would cost a millisecond of every job

from __future__ import annotations

import os
import select
import signal
import sys

LEFTOVERS = 1.0
"""Seconds between SIGTERM and SIGKILL for what a command left running."""
PR_SET_PDEATHSIG = 1
"""An option of prctl(2): the signal at the death of the parent."""
PR_SET_CHILD_SUBREAPER = 36
"""An option of prctl(2): orphans below become children of this process."""


def prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants() -> list[int]:
    """Every process below this one, zombies included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib would cost more than all the rest
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    below = [os.getpid()]
    while below:
        for pid in children.get(below.pop(), ()):
            found.append(pid)
            below.append(pid)
    return found


def strike(command: int, number: int) -> None:
    """Signal everything below; a stopped process is woken, so that it can hear."""
    try:
        pids = descendants()
    except OSError:
        pids = [-command]
    for pid in pids:
        for each in (number, signal.SIGCONT):
            try:
                os.kill(pid, each)
            except OSError:
                pass


def start(command: list[str], status: int) -> int:
    """Run the command in a session of its own; it dies with the process guard."""
    process_guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != process_guard:
        os._exit(1)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; a shell's children expect them
        signal.signal(number, signal.SIG_DFL)
    os.close(status)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def ignore(*_: object) -> None:
    """The signal has done its work: it woke us."""


def reap(command: int, ended: int | None) -> tuple[int | None, bool]:
    """Collect the dead: the command's status once it is among them, and whether anybody is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        if pid == command:
            ended = status


def main() -> None:
    status, worker = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(status, False)
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, hear)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, ignore)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    if os.getppid() != worker:
        return
    command = start(sys.argv[3:], status)
    os.write(status, b"pid %d\n" % command)
    for fd in range(3, 64):  # what belongs to the command alone, so that its end can be seen
        if fd not in (status, reading, writing):
            try:
                os.close(fd)
            except OSError:
                pass
    ended, tidying, killing = None, False, False
    while True:
        ended, anybody = reap(command, ended)
        if not anybody:
            break
        if ended is not None and not tidying:
            tidying = True
            signal.setitimer(signal.ITIMER_REAL, LEFTOVERS)
        while heard:
            if heard.pop(0) == signal.SIGTERM:
                strike(command, signal.SIGTERM)
            else:
                killing = True
        if killing or tidying:  # again and again: a process that was being made has not heard the last one
            strike(command, signal.SIGKILL if killing else signal.SIGTERM)
        select.select([reading], [], [], 0.02 if killing else 0.1 if tidying else None)
        try:
            os.set_blocking(reading, False)
            os.read(reading, 4096)
        except OSError:
            pass
    if ended is None:
        line = b""
    elif os.WIFSIGNALED(ended):
        line = b"signal %d\n" % os.WTERMSIG(ended)
    else:
        line = b"exit %d\n" % os.WEXITSTATUS(ended)
    os.write(status, line)


main()
