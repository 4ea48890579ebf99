/* fakecl_order.c: the order of commands by vector clocks: for each queue, how many of its commands are certain to be over.
 * A queue's commands follow each other; an event hands its clock to who waits for it; the host knows what it waited for. */
#include "fakecl_order.h"

#include <string.h>

enum { QUEUES = 16, EVENTS = 4096, BUFFERS = 4096, KERNELS = 4096, PLACES = 4096, ARGUMENTS = 64 };

typedef struct stamp { long at[QUEUES]; } stamp;

static struct { cl_command_queue handle; long count, flushed; stamp clock; } queues[QUEUES];
static struct { cl_event handle; int queue; long number; stamp clock; } events[EVENTS];
static struct { cl_mem handle; int writer; long written; stamp read; } buffers[BUFFERS];
static struct { cl_kernel handle; cl_mem argument[ARGUMENTS]; } kernels[KERNELS];
static struct { const void *from; int queue; long number; } places[PLACES]; /* host memory that transfers read */
static stamp host;

/* The entry of a handle in one of the tables, made if it is new: the tables are large enough for what tests do. */
#define ENTRY(table, n, field, value, out)                                                                             \
    do {                                                                                                               \
        int free_ = -1;                                                                                                \
        out = -1;                                                                                                      \
        for (int i_ = 0; i_ < (n) && out < 0; i_++) {                                                                  \
            if (table[i_].field == (value)) out = i_;                                                                  \
            else if (table[i_].field == NULL && free_ < 0) free_ = i_;                                                 \
        }                                                                                                              \
        if (out < 0 && free_ >= 0) table[out = free_].field = (value);                                                 \
    } while (0)

static void join(stamp *to, const stamp *from)
{
    for (int i = 0; i < QUEUES; i++)
        if (from->at[i] > to->at[i]) to->at[i] = from->at[i];
}

static int find_event(cl_event e)
{
    for (int i = 0; i < EVENTS; i++)
        if (events[i].handle == e) return i;
    return -1;
}

static void use(fakecl *f, cl_mem buffer, int writes, int queue, const stamp *clock)
{
    int b;
    ENTRY(buffers, BUFFERS, handle, buffer, b);
    if (b < 0) return;
    int raced = buffers[b].written > clock->at[buffers[b].writer];
    for (int i = 0; writes && i < QUEUES; i++) raced = raced || buffers[b].read.at[i] > clock->at[i];
    f->races += raced;
    if (writes) {
        buffers[b].writer = queue;
        buffers[b].written = clock->at[queue];
    } else {
        buffers[b].read.at[queue] = clock->at[queue];
    }
}

/* Host memory was written since a transfer from there was enqueued: that one must be over, as far as the host knows. When
 * the memory is given back, as far as the queue knows. */
static void leave(fakecl *f, const order_command *c, int queue, const stamp *clock)
{
    int p;
    ENTRY(places, PLACES, from, c->from, p);
    if (p < 0) return;
    f->races += places[p].number > (c->unmaps ? clock : &host)->at[places[p].queue];
    places[p].from = c->unmaps ? NULL : c->from;
    places[p].queue = queue;
    places[p].number = c->unmaps ? 0 : clock->at[queue];
}

void order_enqueued(fakecl *f, const order_command *c)
{
    int q;
    ENTRY(queues, QUEUES, handle, c->queue, q);
    if (q < 0) return;
    stamp *const clock = &queues[q].clock;
    join(clock, &host);
    for (cl_uint i = 0; i < c->n_wait; i++) {
        const int e = find_event(c->wait[i]);
        if (e < 0) continue;
        f->unflushed += events[e].queue != q && events[e].number > queues[events[e].queue].flushed;
        f->across += events[e].queue != q;
        join(clock, &events[e].clock);
    }
    clock->at[q] = ++queues[q].count;
    for (int i = 0; i < 2; i++)
        if (c->use[i].buffer != NULL) use(f, c->use[i].buffer, c->use[i].writes, q, clock);
    for (int k = 0; c->kernel != NULL && k < KERNELS; k++) {
        if (kernels[k].handle != c->kernel) continue;
        for (int i = 0; i < ARGUMENTS; i++)
            if (kernels[k].argument[i] != NULL) use(f, kernels[k].argument[i], 1, q, clock); /* for all one knows */
        break;
    }
    if (c->from != NULL) leave(f, c, q, clock);
    if (c->event != NULL) {
        int e;
        ENTRY(events, EVENTS, handle, *c->event, e);
        if (e >= 0) {
            events[e].queue = q;
            events[e].number = clock->at[q];
            events[e].clock = *clock;
        }
    }
    if (!c->blocks) return;
    queues[q].flushed = queues[q].count;
    join(&host, clock);
}

void order_argument(cl_kernel kernel, cl_uint i, size_t size, const void *value)
{
    int k, known = 0;
    cl_mem buffer = NULL;
    if (i >= ARGUMENTS) return;
    ENTRY(kernels, KERNELS, handle, kernel, k);
    if (k < 0) return;
    if (value != NULL && size == sizeof buffer) memcpy(&buffer, value, sizeof buffer);
    for (int b = 0; b < BUFFERS && !known; b++) known = buffer != NULL && buffers[b].handle == buffer;
    kernels[k].argument[i] = known ? buffer : NULL; /* a number of eight bytes looks the same; memory is filled first */
}

void order_flushed(cl_command_queue queue)
{
    int q;
    ENTRY(queues, QUEUES, handle, queue, q);
    if (q >= 0) queues[q].flushed = queues[q].count;
}

/* waits: those of the host for what it did not know to be over. */
static void learn(fakecl *f, const stamp *clock)
{
    int news = 0;
    for (int i = 0; i < QUEUES; i++) news = news || clock->at[i] > host.at[i];
    f->waits += news;
    join(&host, clock);
}

void order_finished(fakecl *f, cl_command_queue queue)
{
    order_flushed(queue);
    for (int q = 0; q < QUEUES; q++)
        if (queues[q].handle == queue) learn(f, &queues[q].clock);
}

void order_waited(fakecl *f, cl_uint n, const cl_event *list)
{
    for (cl_uint i = 0; i < n; i++) {
        const int e = find_event(list[i]);
        if (e < 0) continue;
        queues[events[e].queue].flushed = queues[events[e].queue].count;
        learn(f, &events[e].clock);
    }
}

void order_forget(const void *object)
{
    for (int i = 0; i < QUEUES; i++)
        if (queues[i].handle == object) queues[i].handle = NULL; /* its numbers go on with the next queue here */
    for (int i = 0; i < EVENTS; i++)
        if (events[i].handle == object) memset(&events[i], 0, sizeof events[i]);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].handle == object) memset(&buffers[i], 0, sizeof buffers[i]);
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i].handle == object) memset(&kernels[i], 0, sizeof kernels[i]);
}
