/* op_ctc.c: CTC loss and its derivative on the cpu: forward and backward variables of a sample in log space, in double;
 * samples are dealt out to threads. Graves et al. 2006, section 4.1. Called by cpu.c. */
#include "backend/cpu/recurrent.h"

#include <math.h>
#include <stdio.h>

typedef struct ctc_plan {
    int64_t n, t, c, s, places; /* samples, steps, classes, labels, 2 labels + 1 */
    int64_t blank, threads;
    size_t room; /* of a thread in the workspace */
} ctc_plan;

/* One sample at work: alpha [T, L], two rows of beta, the label of each place. */
typedef struct sample {
    const ctc_plan *s;
    const void *x; /* [T, C] of f32 or f64 */
    void *slope;
    bool f64;
    int64_t steps, places;
    int64_t *label;
    double *alpha, *beta, *next;
} sample;

static int64_t int_of(const sw__cpu_plan *p, void *const *ptr, int in, int64_t i)
{
    return sw__cpu_index((sw_dtype)p->d.in[in].dtype, ptr[in], i);
}

static double at(const sample *a, int64_t t, int64_t place)
{
    const int64_t i = t * a->s->c + a->label[place];
    return a->f64 ? ((const double *)a->x)[i] : (double)((const float *)a->x)[i];
}

static double log_add(double a, double b, double c)
{
    const double top = fmax(fmax(a, b), c);
    if (top == -INFINITY) return top;
    return top + log(exp(a - top) + exp(b - top) + exp(c - top));
}

/* May a path come to this place from the one two before, without the blank between? */
static bool skips(const sample *a, int64_t place)
{
    return (place & 1) != 0 && place >= 3 && a->label[place] != a->label[place - 2];
}

static void forward(const sample *a)
{
    const int64_t L = a->places;
    for (int64_t t = 0; t < a->steps; t++) {
        double *const now = a->alpha + t * L;
        const double *const was = now - L;
        for (int64_t i = 0; i < L; i++) {
            double v = i < 2 ? 0 : -INFINITY;
            if (t > 0) v = log_add(was[i], i > 0 ? was[i - 1] : -INFINITY, skips(a, i) ? was[i - 2] : -INFINITY);
            now[i] = v + at(a, t, i);
        }
    }
}

static void subtract(const sample *a, int64_t t, int64_t place, double v)
{
    const int64_t i = t * a->s->c + a->label[place];
    if (a->f64) ((double *)a->slope)[i] -= v;
    else ((float *)a->slope)[i] -= (float)v;
}

/* beta of step t from that of step t + 1, and what each place has of the whole probability. */
static void backward(sample *a, double total)
{
    const int64_t L = a->places;
    for (int64_t t = a->steps; t-- > 0;) {
        for (int64_t i = 0; i < L; i++) {
            double v = i >= L - 2 ? 0 : -INFINITY;
            if (t < a->steps - 1)
                v = log_add(a->next[i], i + 1 < L ? a->next[i + 1] : -INFINITY,
                            i + 2 < L && skips(a, i + 2) ? a->next[i + 2] : -INFINITY);
            a->beta[i] = v;
            subtract(a, t, i, exp(a->alpha[t * L + i] + v - total));
        }
        for (int64_t i = 0; i < L; i++) a->next[i] = a->beta[i] + at(a, t, i);
    }
}

static double loss_of(sample *a)
{
    const int64_t L = a->places;
    if (a->steps == 0) return L == 1 ? 0 : INFINITY;
    forward(a);
    const double *const last = a->alpha + (a->steps - 1) * L;
    const double total = log_add(last[L - 1], L > 1 ? last[L - 2] : -INFINITY, -INFINITY);
    if (total == -INFINITY) return INFINITY;
    backward(a, total);
    return -total;
}

static void run_sample(const sw__cpu_plan *p, void *const *ptr, int64_t b, void *room)
{
    const ctc_plan *const s = p->state;
    const size_t size = sw_dtype_size((sw_dtype)p->d.in[0].dtype), image = (size_t)(s->t * s->c) * size;
    sample a = {.s = s, .x = (const char *)ptr[0] + (size_t)b * image, .f64 = size == sizeof(double),
                .slope = (char *)ptr[5] + (size_t)b * image, .steps = int_of(p, ptr, 2, b), .label = room};
    a.alpha = (double *)(void *)(a.label + s->places);
    a.beta = a.alpha + s->t * s->places;
    a.next = a.beta + s->places;
    a.places = 2 * int_of(p, ptr, 3, b) + 1;
    for (int64_t i = 0; i < a.places; i++) a.label[i] = (i & 1) != 0 ? int_of(p, ptr, 1, b * s->s + i / 2) : s->blank;
    memset(a.slope, 0, image);
    const double loss = loss_of(&a);
    if (a.f64) ((double *)ptr[4])[b] = loss;
    else ((float *)ptr[4])[b] = (float)loss;
}

static sw_status check_one(const sw__cpu_plan *p, void *const *ptr, int in, const char *what, int64_t i, int64_t most)
{
    const int64_t v = int_of(p, ptr, in, i);
    if (v >= 0 && v <= most) return SW_OK;
    return sw__fail(SW_ERR_DATA, "%s[%lld] is %lld, outside 0 to %lld", what, (long long)i, (long long)v,
                    (long long)most);
}

static sw_status exec_ctc(sw__cpu_plan *p, void *const *ptr)
{
    const ctc_plan *const s = p->state;
    for (int64_t b = 0; b < s->n; b++) {
        SW_TRY(check_one(p, ptr, 2, "input_lengths", b, s->t));
        SW_TRY(check_one(p, ptr, 3, "target_lengths", b, s->s));
        for (int64_t i = 0; i < int_of(p, ptr, 3, b); i++)
            SW_TRY(check_one(p, ptr, 1, "targets", b * s->s + i, s->c - 1));
    }
    const int threads = (int)s->threads;
    char *const work = ptr[6];
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t b = 0; b < s->n; b++) run_sample(p, ptr, b, work + (size_t)sw__cpu_thread() * s->room);
    return SW_OK;
}

sw_status sw__cpu_ctc_plan(sw__cpu_plan *p)
{
    ctc_plan *const s = sw__calloc(1, sizeof *s);
    if (s == NULL) return sw__no_memory(sizeof *s, "a planned op");
    p->state = s;
    const int64_t *const dim = p->d.in[0].dim;
    *s = (ctc_plan){.n = dim[0], .t = dim[1], .c = dim[2], .s = p->d.in[1].dim[1], .blank = p->attr.axis.axis};
    s->places = 2 * s->s + 1;
    s->threads = SW_MAX(1, SW_MIN(sw__cpu_threads(p->cpu, 100.0 * (double)(s->n * s->t * s->places)), s->n));
    s->room = sw__cpu_align((size_t)(s->places * (s->t + 2)) * sizeof(double) + (size_t)s->places * sizeof(int64_t));
    p->workspace = s->room * (size_t)s->threads;
    p->exec = exec_ctc;
    snprintf(p->note, sizeof p->note, "log space, %lld threads", (long long)s->threads);
    return SW_OK;
}
