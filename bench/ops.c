/* ops.c: every launch of a network's compiled training step (or inference), timed, one JSON line each: what it is, how long it
 * took, its operations and bytes; and of those that are products or convolutions, their shapes, for bench/dnn.cc. The first
 * line tells of the device's limits and of the whole step. Started by bench/ops.
 *   ops --model NAME --threads N [--batch N] [--precision f32|bf16] [--infer] [--steps N]
 * Nothing is listed by hand: the shapes are what the backend is asked to plan, which is listened to here. It stands beside the
 * library's own tests in that it reads the structures of exec/exec.h, and links the static library. */
#include "networks.h"

#include "backend/desc.h"
#include "exec/exec.h"
#include "graph/recurrent.h"
#include <getopt.h>

#define MAX_HEARD 4096
#define MAX_DESCS 16

/* An op that was planned: its descriptors outlive the call that gave them. */
typedef struct heard {
    void *plan;
    sw__op_desc op;
    sw__attr attr;
    sw__desc desc[MAX_DESCS];
} heard;

static heard ops[MAX_HEARD];
static int n_ops;
static sw__backend listening; /* the cpu's, but for op_plan … */
static const sw__backend *cpu; /* … which asks this one */

static sw_status listen_plan(void *dev, const sw__op_desc *d, void **plan, size_t *workspace)
{
    const sw_status st = cpu->op_plan(dev, d, plan, workspace);
    if (st != SW_OK || n_ops == MAX_HEARD || d->n_in + d->n_out > MAX_DESCS) return st;
    heard *const h = &ops[n_ops++];
    h->plan = *plan;
    h->op = *d;
    if (d->attr) h->attr = *d->attr;
    memcpy(h->desc, d->in, (size_t)d->n_in * sizeof *d->in);
    memcpy(h->desc + d->n_in, d->out, (size_t)d->n_out * sizeof *d->out);
    h->op.attr = &h->attr;
    h->op.in = h->desc;
    h->op.out = h->desc + d->n_in;
    return st;
}

static const heard *find_op(const void *plan)
{
    for (int i = n_ops; i-- > 0;) /* a freed plan's address may come again: the last one counts */
        if (ops[i].plan == plan) return &ops[i];
    return NULL;
}

/* ---- what an op is made of, as lines of bench/dnn.cc's input ---------------------------------------------------------- */

static const char *separator = "";

static void product(const char *type, int64_t times, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    printf("%s[%lld, \"matmul %s %lld %lld %lld %lld\"]", separator, (long long)times, type, (long long)batch, (long long)m,
           (long long)n, (long long)k);
    separator = ", ";
}

/* conv DIRECTION TYPE GROUPS N C O, then of each of two axes: x, w, y, stride, pads, dilation */
static void conv(const heard *h, const char *direction, const sw__desc *x, const sw__desc *w, const sw__desc *y)
{
    if (x->rank != 4) return;
    const sw__attr *const a = &h->attr;
    printf("%s[1, \"conv %s %s %lld %lld %lld %lld", separator, direction, sw_dtype_name((sw_dtype)h->desc[0].dtype),
           (long long)a->conv.groups, (long long)x->dim[0], (long long)x->dim[1], (long long)y->dim[1]);
    for (int i = 0; i < 2; i++)
        printf(" %lld %lld %lld %lld %lld %lld %lld", (long long)x->dim[2 + i], (long long)w->dim[2 + i], (long long)y->dim[2 + i],
               (long long)a->conv.stride[i], (long long)a->conv.pad_lo[i], (long long)a->conv.pad_hi[i],
               (long long)a->conv.dilation[i]);
    printf("\"]");
    separator = ", ";
}

/* Scores and what they weigh; backwards the scores again, and four more. q [B, T, H, D], v [B, S, G, E]. */
static void attention(const heard *h, const char *type, bool backward)
{
    const sw__desc *const q = &h->op.in[0], *const v = &h->op.in[2];
    const int64_t heads = q->dim[0] * q->dim[2], t = q->dim[1], s = v->dim[1], d = q->dim[3], e = v->dim[3];
    product(type, 1, heads, t, s, d);
    if (!backward) {
        product(type, 1, heads, t, e, s);
        return;
    }
    product(type, 1, heads, t, s, e);
    product(type, 1, heads, s, e, t);
    product(type, 1, heads, t, d, s);
    product(type, 1, heads, s, d, t);
}

static void recurrent(const heard *h, const char *type)
{
    const sw__recurrent r = sw__recurrent_of(h->op.op, &h->attr, h->op.out[0].dim);
    if (r.backward) product(type, r.steps, 1, r.batch, r.state, r.rows);
    else product(type, r.steps, 1, r.batch, r.rows, r.state);
}

static void made_of(const heard *h)
{
    const sw__desc *const in = h->op.in, *const out = h->op.out;
    const char *const type = sw_dtype_name((sw_dtype)in[0].dtype);
    switch (h->op.op) {
    case SW_OP_MATMUL:
    case SW_OP_DOT: {
        const sw__matrices m = sw__matrices_of(&h->op);
        int64_t batch = 1;
        for (int i = 0; i < m.rank; i++) batch *= m.batch[i];
        product(type, 1, batch, m.m, m.n, m.k);
        break;
    }
    case SW_OP_CONV: conv(h, "fwd", &in[0], &in[1], &out[0]); break;
    case SW_OP_CONV_GRAD_X: conv(h, "grad_x", &out[0], &in[1], &in[0]); break;
    case SW_OP_CONV_GRAD_W: conv(h, "grad_w", &in[0], &out[0], &in[1]); break;
    case SW_OP_ATTENTION: attention(h, type, false); break;
    case SW_OP_ATTENTION_GRAD: attention(h, type, true); break;
    case SW_OP_LSTM:
    case SW_OP_GRU:
    case SW_OP_RNN:
    case SW_OP_LSTM_GRAD:
    case SW_OP_GRU_GRAD:
    case SW_OP_RNN_GRAD: recurrent(h, type); break;
    default: break;
    }
}

/* ---- output ------------------------------------------------------------------------------------------------------------ */

static void print_launch(const sw_program *p, const sw__launch *l)
{
    const heard *const h = l->is_op ? find_op(l->built) : NULL;
    const char *const note = l->is_op ? p->device->backend->op_note(l->built) : "";
    printf("{\"name\": \"%s\", \"kind\": \"%s\", \"how\": \"%s\", \"ms\": %.6f, \"mean_ms\": %.6f, \"flops\": %.0f, \"bytes\": %.0f, "
           "\"products\": [", l->name ? l->name : "", l->kind, note, l->least * 1e3, l->seconds / (double)p->runs * 1e3, l->flops,
           l->bytes);
    separator = "";
    if (h) made_of(h);
    printf("]}\n");
}

static double *time_steps(const bench *b)
{
    double *const times = malloc((size_t)b->steps * sizeof *times);
    if (!times) exit(1);
    int64_t t = 0;
    while (t < b->warmup) step(b, t++);
    for (int i = 0; i < b->steps; i++) {
        const double start = now_ms();
        step(b, t++);
        times[i] = now_ms() - start;
    }
    qsort(times, (size_t)b->steps, sizeof *times, by_value);
    return times;
}

static void run(bench *b)
{
    sw_device_peak peak;
    check(sw_device_open("cpu", &(sw_device_options){.threads = b->threads}, &b->dev));
    check(sw_device_measure(b->dev, &peak));
    cpu = b->dev->backend;
    listening = *cpu;
    listening.op_plan = listen_plan;
    b->dev->backend = &listening;
    sw_graph *g = record(b);
    check(sw_params_new(b->dev, g, 0, &b->params));
    check(sw_compile(g, b->dev, &(sw_compile_options){.params = b->params, .profile = true}, &b->program));
    sw_graph_free(g);
    synthesize(b);
    if (b->infer) make_output(b);
    double *const times = time_steps(b);
    printf("{\"model\": \"%s\", \"batch\": %lld, \"dtype\": \"%s\", \"infer\": %s, \"threads\": %d, \"step_ms\": %.4f, "
           "\"least_ms\": %.4f, \"peak_flops\": %.0f, \"peak_bytes\": %.0f, \"peak_how\": \"%s\"}\n",
           b->net->name, (long long)b->batch, sw_dtype_name(b->type), b->infer ? "true" : "false", b->threads,
           times[b->steps / 2], times[0], peak.flops, peak.bandwidth, peak.how);
    for (uint32_t i = 0; i < b->program->n_launches; i++) print_launch(b->program, &b->program->launches[i]);
    free(times);
    free(b->out);
    sw_program_free(b->program);
    sw_params_free(b->params);
    b->dev->backend = cpu;
    sw_device_close(b->dev);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"model", required_argument, 0, 'm'}, {"threads", required_argument, 0, 't'}, {"batch", required_argument, 0, 'b'},
        {"steps", required_argument, 0, 's'}, {"precision", required_argument, 0, 'P'}, {"infer", no_argument, 0, 'I'},
        {0, 0, 0, 0}};
    bench b = {.device = "cpu", .threads = 1, .steps = 30, .warmup = 5, .type = SW_F32, .profile = true};
    bool good = true;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'm') b.net = find_network(optarg);
        if (c == 't') b.threads = atoi(optarg);
        if (c == 'b') b.batch = atoll(optarg);
        if (c == 's') b.steps = atoi(optarg);
        if (c == 'P') good = find_type(optarg, &b.type);
        if (c == 'I') b.infer = true;
        if (c == '?') return 2;
    }
    if (!good || !b.net || b.steps < 1 || b.threads < 1) {
        fprintf(stderr, "usage: ops --model NAME [--threads N] [--batch N] [--steps N] [--precision f32|bf16] [--infer]\n");
        return 2;
    }
    if (!b.batch) b.batch = b.net->batch;
    run(&b);
    return 0;
}
