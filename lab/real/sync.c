/* Preloaded into a process: fsync and fdatasync fail with EIO while the file that LAB_SYNC_FAILS names is there.
   Where it says `folders`, only those of folders do; where it says `once`, one does. Each failure adds a byte to the
   file's neighbour .count. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(int fd) {
    const char *file = getenv("LAB_SYNC_FAILS");
    struct stat synced;
    char count[4096], how = ' ';
    int reading, counting;
    if (file == NULL || (reading = open(file, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    if (read(reading, &how, 1) < 0) how = ' ';
    close(reading);
    if (how == 'f' && (fstat(fd, &synced) != 0 || !S_ISDIR(synced.st_mode))) return 0;
    if (how == 'o' && unlink(file) != 0) return 0;
    snprintf(count, sizeof count, "%s.count", file);
    counting = open(count, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (counting >= 0) {
        if (write(counting, ".", 1) < 0) { /* one failure is not counted */ }
        close(counting);
    }
    errno = EIO;
    return 1;
}

int fsync(int fd) { return fails(fd) ? -1 : (int)syscall(SYS_fsync, fd); }

int fdatasync(int fd) { return fails(fd) ? -1 : (int)syscall(SYS_fdatasync, fd); }
