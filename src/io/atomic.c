/* atomic.c: temporary file in the same folder, fsync, rename, fsync of the folder.
 * Stands under every writer of io and train; see atomic.h. */
#include "io/atomic.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the user can do about a failed write. */
static const char *advice(int err)
{
    switch (err) {
    case ENOSPC:
    case EDQUOT:
        return "; free some space or choose another folder";
    case EFBIG:
        return "; the file size limit (ulimit -f) is reached";
    case EROFS:
    case EACCES:
    case EPERM:
        return "; choose a folder that you may write to";
    case ENOENT:
        return "; its folder does not exist";
    default:
        return "";
    }
}

static sw_status write_failed(const char *path, const char *doing, int err)
{
    return sw__fail(SW_ERR_IO, "%s: cannot %s: %s%s", path, doing, strerror(err), advice(err));
}

/* Opens and locks the temporary file. Between open and lock, another process may have renamed it onto its goal; then
 * the descriptor is that finished file, and must not be touched: look again. */
static sw_status open_locked(const char *path, const char *temporary, int *out)
{
    for (;;) {
        const int fd = open(temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) return write_failed(path, "write it", errno);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            const int err = errno;
            if (err == EWOULDBLOCK) {
                close(fd);
                return sw__fail(SW_ERR_IO, "%s: another process is writing it (%s is locked)", path, temporary);
            }
            /* A file system without locks: two writers of one file would be a user's error anyway. */
            sw__log(SW_LOG_INFO, "%s: no file locks here: %s", temporary, strerror(err));
        }
        struct stat held, named;
        const bool known = fstat(fd, &held) == 0;
        const int err = errno;
        if (known && (stat(temporary, &named) != 0 || held.st_ino != named.st_ino || held.st_dev != named.st_dev)) {
            close(fd);
            continue;
        }
        if (known && ftruncate(fd, 0) == 0) {
            *out = fd;
            return SW_OK;
        }
        const sw_status st = write_failed(path, "empty its temporary file", known ? errno : err);
        unlink(temporary);
        close(fd);
        return st;
    }
}

/* A rename would put a file in the place of /dev/null or of somebody's pipe. */
static sw_status check_goal(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || S_ISREG(s.st_mode)) return SW_OK;
    return sw__fail(SW_ERR_IO, "%s: it is a %s, not a regular file: choose another name", path,
                    S_ISDIR(s.st_mode) ? "folder" : "device or pipe");
}

sw_status sw__atomic_begin(sw__atomic *a, const char *path)
{
    *a = (sw__atomic){ 0 };
    SW_TRY(check_goal(path));
    char *goal = sw__strdup(path), *temporary = sw__asprintf("%s.tmp", path);
    sw_status st = goal && temporary ? SW_OK : sw__no_memory(2 * strlen(path), "a file name");
    int fd = -1;
    if (st == SW_OK) st = open_locked(path, temporary, &fd);
    FILE *file = st == SW_OK ? fdopen(fd, "w") : NULL;
    if (st == SW_OK && !file) {
        st = write_failed(path, "write it", errno);
        unlink(temporary);
        close(fd);
    }
    if (st != SW_OK) {
        sw__free(goal);
        sw__free(temporary);
        return st;
    }
    *a = (sw__atomic){ .file = file, .path = goal, .temporary = temporary };
    return SW_OK;
}

sw_status sw__atomic_put(sw__atomic *a, const void *bytes, size_t n)
{
    if (n == 0 || fwrite(bytes, 1, n, a->file) == n) return SW_OK;
    return write_failed(a->path, "write it", errno);
}

void sw__atomic_abort(sw__atomic *a)
{
    if (!a->path) return;
    if (a->temporary) unlink(a->temporary); /* before the lock goes with the descriptor */
    if (a->file) fclose(a->file);
    sw__free(a->temporary);
    sw__free(a->path);
    *a = (sw__atomic){ 0 };
}

/* Makes the rename itself durable. */
static sw_status sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash          ? sw__strdup(".")
                   : slash == path ? sw__strdup("/")
                                   : sw__strndup(path, (size_t)(slash - path));
    if (!folder) return sw__no_memory(strlen(path), "a folder's name");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sw_status st = SW_OK;
    /* Some file systems cannot sync a folder (EINVAL); there the rename is as durable as it gets. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) st = write_failed(folder, "flush it to the disk", errno);
    if (fd >= 0) close(fd);
    sw__free(folder);
    return st;
}

sw_status sw__atomic_commit(sw__atomic *a)
{
    sw_status st = SW_OK;
    errno = 0;
    if (fflush(a->file) != 0 || ferror(a->file)) {
        st = write_failed(a->path, "write it", errno ? errno : EIO);
    } else if (fsync(fileno(a->file)) != 0) {
        st = write_failed(a->path, "flush it to the disk", errno);
    } else if (rename(a->temporary, a->path) != 0) {
        st = write_failed(a->path, "rename its temporary file", errno);
    }
    if (st != SW_OK) {
        sw__atomic_abort(a);
        return st;
    }
    sw__free(a->temporary);
    a->temporary = NULL; /* it has become the goal: nothing left to remove */
    st = sync_folder(a->path);
    if (fclose(a->file) != 0 && st == SW_OK) st = write_failed(a->path, "close it", errno);
    a->file = NULL;
    sw__atomic_abort(a);
    return st;
}

sw_status sw__atomic_write(const char *path, const void *bytes, size_t n)
{
    sw__atomic a;
    SW_TRY(sw__atomic_begin(&a, path));
    const sw_status st = sw__atomic_put(&a, bytes, n);
    if (st != SW_OK) {
        sw__atomic_abort(&a);
        return st;
    }
    return sw__atomic_commit(&a);
}
