/* atomic.h: writes a file so that its path holds either the old content or the whole new one, whatever happens.
 * Stands under every writer: safetensors, checkpoints, plan.json, results. */
#ifndef SW_IO_ATOMIC_H
#define SW_IO_ATOMIC_H

#include "base/base.h"
#include <stdio.h>

/* One file being written. Zero-initialise; after a failed begin or after commit or abort it is zero again. */
typedef struct sw__atomic {
    FILE *file;      /* buffered; write here with fwrite/fprintf, or with sw__atomic_put, which checks */
    char *path;      /* the goal */
    char *temporary; /* path + ".tmp", locked while in use: a leftover of a killed process is simply reused */
} sw__atomic;

sw_status sw__atomic_begin(sw__atomic *a, const char *path);
/* Writes n bytes; on failure says why (disk full, …); the caller then aborts. */
sw_status sw__atomic_put(sw__atomic *a, const void *bytes, size_t n);
/* Flushes to the disk, renames onto the path and flushes the folder. On failure it has aborted. */
sw_status sw__atomic_commit(sw__atomic *a);
/* Removes the temporary file. Does nothing on a zero *a, so that it can stand at every exit. */
void sw__atomic_abort(sw__atomic *a);

/* The three in one, for content that is in memory. */
sw_status sw__atomic_write(const char *path, const void *bytes, size_t n);

#endif
