/* link.h: fake.h's functions for a fake library that is not linked with the fake libcuda but finds it in the process,
 * as NVIDIA's libraries find the driver. fk_link() first; without the fake libcuda it is false. */
#ifndef FAKECUDA_LINK_H
#define FAKECUDA_LINK_H

#include "fake.h"

#include <string.h>

typedef struct fk_linked {
    bool there;
    void *(*map)(uint64_t address, size_t bytes, bool write, const char *who);
    int (*work)(void *stream, const char *name, void (*run)(void *), void (*done)(void *), void *data);
    int (*work_when)(void *stream, const char *name, bool (*ready)(void *), void (*run)(void *), void (*done)(void *),
                     void *data);
    void (*report)(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
    int (*fail)(const char *function);
    void (*made)(const char *kind, const void *object);
    bool (*gone)(const char *kind, const void *object);
    int (*sm)(void);
    int (*current)(void **context); /* cuCtxGetCurrent */
    int (*capturing)(void *stream, int *status); /* cuStreamIsCapturing */
} fk_linked;
extern fk_linked fk;

bool fk_link(void);
bool fk_link_one(void *library, const char *name, void *pointer);

#define FK_EXPORT __attribute__((visibility("default")))

#endif
