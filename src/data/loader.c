/* loader.c: batches in shuffled order, prepared ahead by background threads into a ring of slots.
 * The top of data: the trainer takes its batches from here. */
#include "swoop/data.h"
#include "base/base.h"
#include <inttypes.h>
#include <pthread.h>

/* How it works
 *   Batches are numbered 0, 1, 2, … from where the loader was opened or sought to, across epochs. Batch s lives in
 *   slot s % slots. Under the lock, a worker claims the next number and draws its sample indices (so the order is that
 *   of the numbers, whoever works); then, without the lock, it fills the slot. sw_loader_next waits for its slot.
 *   A worker may claim s while s < next + slots − 1: the caller still reads slot next − 1.
 *   Without workers the caller does the same work itself in sw_loader_next. */

typedef struct slot {
    void *x, *y;
    int64_t *samples;
    int64_t n, epoch, index;
    bool ready;
    sw_status status;
    char message[1024];
} slot;

struct sw_loader {
    const sw_dataset *data;
    sw_loader_options options;
    int64_t count, batches; /* samples in the set; batches per epoch */
    slot *slots;
    int64_t slot_count;
    pthread_t *threads;
    int thread_count;

    pthread_mutex_t lock; /* guards what follows, and each slot's `ready` */
    pthread_cond_t filled, freed;
    bool has_lock, stop;
    int64_t next, claimed;    /* numbers of the batch to deliver and of the batch to claim; next ≤ claimed */
    sw_loader_position claim; /* where the claims are */
    int64_t *order;           /* of epoch `ordered` */
    int64_t ordered;

    sw_loader_position position; /* what sw_loader_next gives next */
    double waited;
};

/* Random streams of one seed: shuffling must not draw the numbers of splitting (dataset.c) or initial weights. */
static const uint64_t SHUFFLE_STREAM = 0x53485546;

/* The order of an epoch depends on seed and epoch alone, so that seeking needs no history. */
static void draw_order(sw_loader *l, int64_t epoch)
{
    if (l->ordered == epoch) return;
    l->ordered = epoch;
    for (int64_t i = 0; i < l->count; i++) l->order[i] = i;
    if (!l->options.shuffle) return;
    sw__rng rng;
    sw__rng_init(&rng, l->options.seed, SHUFFLE_STREAM << 32 | (uint64_t)epoch);
    sw__rng_shuffle(&rng, l->order, (size_t)l->count);
}

/* Takes the next batch number; with the lock held. */
static slot *claim(sw_loader *l)
{
    slot *const s = &l->slots[l->claimed++ % l->slot_count];
    draw_order(l, l->claim.epoch);
    const int64_t first = l->claim.batch * l->options.batch;
    s->epoch = l->claim.epoch;
    s->index = l->claim.batch;
    s->n = SW_MIN(l->options.batch, l->count - first);
    s->ready = false;
    memcpy(s->samples, l->order + first, (size_t)s->n * sizeof *s->samples);
    if (++l->claim.batch == l->batches) {
        l->claim.epoch++;
        l->claim.batch = 0;
    }
    return s;
}

/* Fills a claimed slot; without the lock. A message is kept with it: it belongs to the thread that failed. */
static void fill(const sw_loader *l, slot *s)
{
    s->status = sw_dataset_get(l->data, s->samples, s->n, s->x, s->y);
    if (s->status == SW_OK) return;
    const char *const message = sw_error();
    const size_t n = SW_MIN(strlen(message), sizeof s->message - 1);
    memcpy(s->message, message, n);
    s->message[n] = '\0';
}

static void *worker_main(void *argument)
{
    sw_loader *const l = argument;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && l->claimed >= l->next + l->slot_count - 1) pthread_cond_wait(&l->freed, &l->lock);
        if (l->stop) break;
        slot *const s = claim(l);
        pthread_mutex_unlock(&l->lock);
        fill(l, s);
        pthread_mutex_lock(&l->lock);
        s->ready = true;
        pthread_cond_broadcast(&l->filled);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void stop_workers(sw_loader *l)
{
    if (l->thread_count == 0) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->freed);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->thread_count; i++) pthread_join(l->threads[i], NULL);
    l->thread_count = 0;
}

static sw_status start_workers(sw_loader *l)
{
    l->stop = false;
    for (int i = 0; i < l->options.workers; i++) {
        const int err = pthread_create(&l->threads[i], NULL, worker_main, l);
        if (err != 0) {
            stop_workers(l);
            return sw__fail(SW_ERR_THREAD, "loader: cannot start worker %d of %d: %s; use fewer workers, or 0", i + 1,
                            l->options.workers, strerror(err));
        }
        l->thread_count++;
    }
    return SW_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static sw_status alloc_slots(sw_loader *l)
{
    const sw_dataset_info *const info = sw_dataset_about(l->data);
    size_t x = sw_dtype_size(info->x_dtype), y = sw_dtype_size(info->y_dtype), samples;
    bool fits = true;
    for (int i = 0; i < info->x_rank; i++) fits = fits && sw__mul_size(x, (size_t)info->x_shape[i], &x);
    for (int i = 0; i < info->y_rank; i++) fits = fits && sw__mul_size(y, (size_t)info->y_shape[i], &y);
    /* A batch larger than the set never fills: no memory for what cannot be there. */
    const size_t n = (size_t)SW_MIN(l->options.batch, l->count);
    fits = fits && sw__mul_size(x, n, &x) && sw__mul_size(y, n, &y) && sw__mul_size(n, sizeof(int64_t), &samples);
    if (!fits) return sw__no_memory(SIZE_MAX, "a batch");
    l->slots = sw__calloc((size_t)l->slot_count, sizeof *l->slots);
    if (l->slots == NULL) return sw__no_memory((size_t)l->slot_count * sizeof *l->slots, "the loader");
    for (int64_t i = 0; i < l->slot_count; i++) {
        slot *const s = &l->slots[i];
        s->x = sw__malloc_aligned(64, x);
        s->samples = sw__malloc(samples);
        s->y = info->target != SW_TARGET_NONE ? sw__malloc_aligned(64, y) : NULL;
        if (s->x == NULL || s->samples == NULL || (s->y == NULL && info->target != SW_TARGET_NONE)) {
            return sw__no_memory(x + y + samples, "a batch");
        }
    }
    return SW_OK;
}

static sw_status alloc_all(sw_loader *l)
{
    l->order = sw__calloc((size_t)l->count, sizeof *l->order);
    l->threads = sw__calloc((size_t)l->options.workers, sizeof *l->threads);
    if (l->order == NULL || l->threads == NULL) {
        return sw__no_memory((size_t)l->count * sizeof *l->order, "the order of the samples");
    }
    return alloc_slots(l);
}

static sw_status init_locks(sw_loader *l)
{
    int err = pthread_mutex_init(&l->lock, NULL);
    if (err == 0 && (err = pthread_cond_init(&l->filled, NULL)) != 0) {
        pthread_mutex_destroy(&l->lock);
    } else if (err == 0 && (err = pthread_cond_init(&l->freed, NULL)) != 0) {
        pthread_cond_destroy(&l->filled);
        pthread_mutex_destroy(&l->lock);
    }
    l->has_lock = err == 0;
    return err == 0 ? SW_OK : sw__fail(SW_ERR_THREAD, "loader: cannot make its lock: %s", strerror(err));
}

static sw_status check(sw_loader_options *o, int64_t count)
{
    if (o->batch == 0) o->batch = 64;
    if (o->batch < 0 || o->workers < 0 || o->prefetch < 0) {
        return sw__fail(SW_ERR_ARGUMENT, "loader: batch, workers and prefetch cannot be negative");
    }
    if (o->workers > 1024 || o->prefetch > 65536) {
        return sw__fail(SW_ERR_ARGUMENT, "loader: at most 1024 workers and 65536 batches ahead");
    }
    if (o->drop_last && count < o->batch) {
        return sw__fail(SW_ERR_ARGUMENT,
                        "loader: drop_last leaves nothing: %" PRId64 " samples do not fill a batch of %" PRId64, count,
                        o->batch);
    }
    if (o->prefetch == 0) o->prefetch = 2 * o->workers;
    return SW_OK;
}

sw_status sw_loader_open(const sw_dataset *d, const sw_loader_options *options, sw_loader **out)
{
    if (d == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_loader_open: data set or out is NULL");
    sw_loader_options o = options != NULL ? *options : (sw_loader_options){ 0 };
    const int64_t count = sw_dataset_about(d)->count;
    SW_TRY(check(&o, count));
    sw_loader *const l = sw__calloc(1, sizeof *l);
    if (l == NULL) return sw__no_memory(sizeof *l, "the loader");
    l->data = d;
    l->options = o;
    l->count = count;
    l->batches = o.drop_last ? count / o.batch : (count - 1) / o.batch + 1;
    l->slot_count = o.workers > 0 ? o.prefetch + 1 : 1; /* + 1: the one that the caller reads */
    l->ordered = -1;
    sw_status st = alloc_all(l);
    if (st == SW_OK) st = init_locks(l);
    if (st == SW_OK) st = start_workers(l);
    if (st != SW_OK) {
        sw_loader_close(l);
        return st;
    }
    *out = l;
    return SW_OK;
}

void sw_loader_close(sw_loader *l)
{
    if (l == NULL) return;
    stop_workers(l);
    if (l->has_lock) {
        pthread_cond_destroy(&l->freed);
        pthread_cond_destroy(&l->filled);
        pthread_mutex_destroy(&l->lock);
    }
    for (int64_t i = 0; l->slots != NULL && i < l->slot_count; i++) {
        sw__free(l->slots[i].x);
        sw__free(l->slots[i].y);
        sw__free(l->slots[i].samples);
    }
    sw__free(l->slots);
    sw__free(l->order);
    sw__free(l->threads);
    sw__free(l);
}

/* ---- use --------------------------------------------------------------------------------------------------------- */

/* Waits until batch number `next` is there; without workers, makes it. Only now may workers have the slot that the
 * caller read before. */
static slot *await(sw_loader *l)
{
    slot *const s = &l->slots[l->next % l->slot_count];
    if (l->options.workers == 0) {
        if (l->claimed == l->next) fill(l, claim(l));
        return s;
    }
    pthread_mutex_lock(&l->lock);
    while (l->claimed <= l->next || !s->ready) pthread_cond_wait(&l->filled, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return s;
}

/* Batch `next` is the caller's now, and the one before it free. */
static void advance(sw_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->next++;
    pthread_cond_signal(&l->freed);
    pthread_mutex_unlock(&l->lock);
}

sw_status sw_loader_next(sw_loader *l, sw_batch *out)
{
    if (l == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_loader_next: loader or out is NULL");
    if (l->position.batch == l->batches) {
        *out = (sw_batch){ .epoch = l->position.epoch, .index = l->batches };
        l->position = (sw_loader_position){ .epoch = l->position.epoch + 1 };
        return SW_OK;
    }
    if (l->thread_count != l->options.workers) {
        return sw__fail(SW_ERR_THREAD, "loader: its workers could not be started again after a seek");
    }
    const double start = sw__now();
    slot *const s = await(l);
    l->waited += sw__now() - start;
    if (s->status != SW_OK) return sw__fail(s->status, "%s", s->message);
    advance(l);
    l->position.batch++;
    *out = (sw_batch){ .x = s->x, .y = s->y, .n = s->n, .epoch = s->epoch, .index = s->index, .samples = s->samples };
    return SW_OK;
}

int64_t sw_loader_batches(const sw_loader *l)
{
    if (l == NULL) return 0;
    return l->batches;
}

sw_loader_position sw_loader_tell(const sw_loader *l)
{
    if (l == NULL) return (sw_loader_position){ 0, 0 };
    return l->position;
}

sw_status sw_loader_seek(sw_loader *l, sw_loader_position p)
{
    if (l == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_loader_seek: the loader is NULL");
    if (p.epoch < 0 || p.batch < 0 || p.batch > l->batches) {
        return sw__fail(SW_ERR_ARGUMENT,
                        "loader: there is no batch %" PRId64 " in epoch %" PRId64 "; an epoch has %" PRId64, p.batch,
                        p.epoch, l->batches);
    }
    stop_workers(l);
    l->position = p;
    l->claim = p;
    if (p.batch == l->batches) l->claim = (sw_loader_position){ .epoch = p.epoch + 1 };
    l->next = l->claimed = 0;
    return start_workers(l);
}

double sw_loader_wait_seconds(const sw_loader *l)
{
    if (l == NULL) return 0;
    return l->waited;
}
