/* cu_order.c: who comes before whom. Every operation has a vector clock; every word of memory remembers who wrote it
 * last and, of each stream, who read it last. An access that nothing orders after these is reported, whatever order
 * the operations ran in. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fk_clock fk_host, fk_done;
uint64_t fk_epoch;

enum { ATOMIC = 1 << 23, SEQ = ATOMIC - 1, NAMES = 64 };
#define POISON 0xffffffffu

static bool taken[FK_IDS + 1];
static int n_ids = 1; /* entries in use are below this */
static char names[FK_IDS + 1][NAMES][80]; /* of the last operations of each stream */
static fk_clock reported;                  /* the last operation of each stream that was reported */

void fk_join(fk_clock *to, const fk_clock *from)
{
    for (int i = 0; i < n_ids; i++)
        if (to->seq[i] < from->seq[i]) to->seq[i] = from->seq[i];
}

bool fk_before(const fk_clock *a, const fk_clock *b)
{
    for (int i = 0; i < n_ids; i++)
        if (a->seq[i] > b->seq[i]) return false;
    return true;
}

bool fk_is_due(const fk_op *op)
{
    for (int i = 0; i < n_ids; i++)
        if (i != op->id && op->clock.seq[i] > fk_done.seq[i]) return false; /* its own turn comes by the queue */
    return true;
}

int fk_id_new(void)
{
    for (int i = 1; i < FK_IDS; i++) {
        if (taken[i]) continue;
        taken[i] = true;
        if (n_ids <= i) n_ids = i + 1;
        return i;
    }
    return -1;
}

void fk_id_free(int id)
{
    taken[id] = false; /* its numbers go on, so what was remembered stays true */
}

void fk_order_name(const fk_op *op)
{
    snprintf(names[op->id][op->clock.seq[op->id] % NAMES], sizeof names[0][0], "%s", op->task->name);
}

static uint32_t seq_of(const fk_op *op)
{
    return op->clock.seq[op->id];
}

/* "kernel 'k' (stream 2, operation 7)" */
static void describe(int id, uint32_t seq, char *text, size_t n)
{
    const bool known = fk_done.seq[id] < seq + NAMES;
    snprintf(text, n, "%s (stream %d, operation %u)", known ? names[id][seq % NAMES] : "an operation", id, seq);
}

static void complain(const fk_alloc *a, size_t word, const char *did, const char *what, uint32_t who, const fk_op *op,
                     const char *by)
{
    char other[160];
    if (reported.seq[op->id] == seq_of(op)) return;
    reported.seq[op->id] = seq_of(op);
    describe((int)(who >> 24), who & SEQ, other, sizeof other);
    fk_report(
        "%s (stream %d, operation %u) %s 0x%llx, byte %zu of %s %llu of %zu bytes, %s %s without an order between "
        "the two: a wait is missing",
        by, op->id, seq_of(op), did, (unsigned long long)a->lo + 4 * word, 4 * word,
        a->pinned ? "pinned memory" : "allocation", (unsigned long long)a->number, a->bytes, what, other);
}

static void complain_dead(const fk_alloc *a, size_t word, bool poison, const fk_op *op, const char *by)
{
    if (reported.seq[op->id] == seq_of(op)) return;
    reported.seq[op->id] = seq_of(op);
    fk_report("%s (stream %d, operation %u) reads 0x%llx, byte %zu of allocation %llu of %zu bytes, %s", by, op->id,
              seq_of(op), (unsigned long long)a->lo + 4 * word, 4 * word, (unsigned long long)a->number, a->bytes,
              poison ? "which is dead (fk_poison)" : "which nothing has written");
}

/* Is the last writer of every word ordered before op? */
static void check_writers(const fk_alloc *a, size_t first, size_t last, int access, const fk_op *op, const char *who)
{
    const uint32_t *const w = a->writer;
    const bool uninit = fk_set.uninit && access == PTX_READ && !a->pinned; /* who knows what the host wrote */
    for (size_t i = first; i <= last; i++) {
        if ((w[i] & SEQ) <= op->clock.seq[w[i] >> 24] && (w[i] != 0 || !uninit)) continue;
        if (w[i] == POISON || w[i] == 0) {
            if (access != PTX_WRITE) complain_dead(a, i, w[i] == POISON, op, who);
            continue;
        }
        if (access == PTX_ATOMIC && (w[i] & ATOMIC) != 0) continue;
        complain(a, i, access == PTX_READ ? "reads" : "writes", "written by", w[i], op, who);
    }
}

static void check_readers(const fk_alloc *a, size_t first, size_t last, const fk_op *op, const char *who)
{
    for (int id = 1; id < n_ids; id++) {
        const uint32_t *const r = a->reader[id];
        if (r == NULL || id == op->id) continue;
        const uint32_t known = op->clock.seq[id];
        for (size_t i = first; i <= last; i++)
            if (r[i] > known) complain(a, i, "writes", "read by", (uint32_t)id << 24 | r[i], op, who);
    }
}

static uint32_t *shadow(const fk_alloc *a, uint32_t **words)
{
    if (*words == NULL) *words = calloc((a->bytes + 3) / 4, sizeof **words);
    if (*words == NULL) fk_report("no memory to check the order of accesses to %zu bytes", a->bytes);
    return *words;
}

void fk_touch(fk_alloc *a, uint64_t address, size_t bytes, int access, const fk_op *op, const char *who)
{
    if (bytes == 0 || shadow(a, &a->writer) == NULL) return;
    const size_t first = (size_t)(address - a->lo) / 4, last = (size_t)(address - a->lo + bytes - 1) / 4;
    check_writers(a, first, last, access, op, who);
    if (access == PTX_READ) {
        uint32_t *const r = shadow(a, &a->reader[op->id]);
        for (size_t i = first; r != NULL && i <= last; i++) r[i] = seq_of(op);
        return;
    }
    check_readers(a, first, last, op, who);
    const uint32_t me = (uint32_t)op->id << 24 | (access == PTX_ATOMIC ? ATOMIC : 0) | seq_of(op);
    for (size_t i = first; i <= last; i++) a->writer[i] = me;
}

static bool is_known(const fk_alloc *a, const uint32_t *words, int id, uint32_t *who)
{
    for (size_t i = 0; words != NULL && i < (a->bytes + 3) / 4; i++) {
        *who = id == 0 ? words[i] : (uint32_t)id << 24 | words[i];
        if (*who != POISON && (*who & SEQ) > fk_host.seq[*who >> 24]) return false;
    }
    return true;
}

void fk_touch_free(fk_alloc *a)
{
    uint32_t who = 0;
    if (fk_sticky != CUDA_SUCCESS) return; /* nobody can wait for a lost device */
    bool known = is_known(a, a->writer, 0, &who);
    for (int id = 1; id < FK_IDS && known; id++) known = is_known(a, a->reader[id], id, &who);
    if (known) return;
    char text[160];
    describe((int)(who >> 24), who & SEQ, text, sizeof text);
    fk_report("%s %llu of %zu bytes is freed though the host has not waited for %s, which uses it",
              a->pinned ? "pinned memory" : "allocation", (unsigned long long)a->number, a->bytes, text);
}

void fk_touch_poison(fk_alloc *a, uint64_t address, size_t bytes)
{
    /* Words that are only partly dead stay. */
    const size_t first = (size_t)(address - a->lo + 3) / 4, end = (size_t)(address - a->lo + bytes) / 4;
    if (shadow(a, &a->writer) == NULL) return;
    for (size_t i = first; i < end; i++) a->writer[i] = POISON;
}

void fk_order_forget(fk_alloc *a)
{
    free(a->writer);
    a->writer = NULL;
    for (int i = 0; i <= FK_IDS; i++) {
        free(a->reader[i]);
        a->reader[i] = NULL;
    }
}

/* ---- new numbers ------------------------------------------------------------------------------------------------- */

static void rebase(fk_alloc *a, void *data)
{
    (void)data;
    const size_t n = (a->bytes + 3) / 4;
    for (size_t i = 0; a->writer != NULL && i < n; i++)
        if (a->writer[i] != 0 && a->writer[i] != POISON) a->writer[i] = 1u << 24; /* written, before everything */
    for (int id = 1; id < FK_IDS; id++)
        if (a->reader[id] != NULL) memset(a->reader[id], 0, n * sizeof *a->reader[id]);
}

void fk_order_rebase(void)
{
    fk_epoch++;
    fk_memory_each(rebase, NULL);
    memset(&fk_host, 0, sizeof fk_host);
    memset(&fk_done, 0, sizeof fk_done);
    memset(&reported, 0, sizeof reported);
    for (fk_object *o = fk_objects(); o != NULL; o = o->next) {
        if (o->kind == FK_STREAM) memset(&((fk_stream *)(void *)o)->clock, 0, sizeof(fk_clock));
        if (o->kind == FK_EVENT) memset(&((fk_event *)(void *)o)->clock, 0, sizeof(fk_clock));
        if (o->kind == FK_EXEC) memset(&((fk_exec *)(void *)o)->last, 0, sizeof(fk_clock));
    }
}
