/* cache.h: compiled GPU programs kept on disk, so that the second start of a program compiles nothing.
 * Called by backend/gpu/gpu_build.c; knows nothing of what the bytes mean. */
#ifndef SW_KERNEL_CACHE_H
#define SW_KERNEL_CACHE_H

#include "base/base.h"

/* The folder: $SWOOP_CACHE_DIR, else $XDG_CACHE_HOME/swoop, else $HOME/.cache/swoop. SWOOP_CACHE_MB (256): how much is
 * kept, the least recently used goes first; 0 turns the cache off.
 * The key is everything that the bytes depend on: program text, options, device, driver version. A file that cannot be
 * read or written is a miss, said in the log; the only error is SW_ERR_MEMORY. Any number of threads and processes. */

/* A copy of what was put under this key (sw__free); *bytes NULL: there is none. */
sw_status sw__kcache_get(const char *key_text, size_t key_bytes, void **bytes, size_t *n);
/* kept: NULL, or whether it is there now. */
sw_status sw__kcache_put(const char *key_text, size_t key_bytes, const void *bytes, size_t n, bool *kept);

/* For whoever reads an entry to put it back changed: between lock and unlock no other process does. -1, where the folder
 * takes no locks: unlock takes that too. */
int sw__kcache_lock(void);
void sw__kcache_unlock(int lock);

#endif
