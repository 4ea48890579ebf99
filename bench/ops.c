/* ops.c: times each whole op of the reference networks' training steps (bench models mlp, lenet, resnet18) on the CPU
 * backend: forward and both gradients, with GFLOP/s and the implementation that was chosen.
 * Usage: ops [threads [network[/layer] [seconds per op]]]. Minimum over the repetitions, since machines are shared;
 * with one thread its CPU time is taken, so that neighbours on the core do not count. */
#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern const sw__backend sw__backend_cpu;
static const sw__backend *const be = &sw__backend_cpu;
static double seconds = 0.2, total_ms;

typedef struct layer {
    const char *net, *name;
    int kind;
    int64_t n, c, o, size, kernel, stride, pad;
    int count, first;
} layer;
enum { LINEAR, CONV, MAXPOOL, AVGPOOL };

/* Convolutions of square images; linear: n rows, c -> o. first: no gradient with respect to the input is wanted. */
static const layer layers[] = {
    {"mlp", "fc1", LINEAR, 64, 784, 512, 0, 0, 0, 0, 1, 1},
    {"mlp", "fc2", LINEAR, 64, 512, 512, 0, 0, 0, 0, 1, 0},
    {"mlp", "fc3", LINEAR, 64, 512, 10, 0, 0, 0, 0, 1, 0},
    {"lenet", "conv1", CONV, 64, 1, 6, 28, 5, 1, 2, 1, 1},
    {"lenet", "pool1", AVGPOOL, 64, 6, 6, 28, 2, 2, 0, 1, 0},
    {"lenet", "conv2", CONV, 64, 6, 16, 14, 5, 1, 0, 1, 0},
    {"lenet", "pool2", AVGPOOL, 64, 16, 16, 10, 2, 2, 0, 1, 0},
    {"lenet", "fc1", LINEAR, 64, 400, 120, 0, 0, 0, 0, 1, 0},
    {"lenet", "fc2", LINEAR, 64, 120, 84, 0, 0, 0, 0, 1, 0},
    {"lenet", "fc3", LINEAR, 64, 84, 10, 0, 0, 0, 0, 1, 0},
    {"resnet18", "conv1", CONV, 32, 3, 64, 32, 3, 1, 1, 1, 1},
    {"resnet18", "layer1", CONV, 32, 64, 64, 32, 3, 1, 1, 4, 0},
    {"resnet18", "layer2.0.conv1", CONV, 32, 64, 128, 32, 3, 2, 1, 1, 0},
    {"resnet18", "layer2.0.down", CONV, 32, 64, 128, 32, 1, 2, 0, 1, 0},
    {"resnet18", "layer2", CONV, 32, 128, 128, 16, 3, 1, 1, 3, 0},
    {"resnet18", "layer3.0.conv1", CONV, 32, 128, 256, 16, 3, 2, 1, 1, 0},
    {"resnet18", "layer3.0.down", CONV, 32, 128, 256, 16, 1, 2, 0, 1, 0},
    {"resnet18", "layer3", CONV, 32, 256, 256, 8, 3, 1, 1, 3, 0},
    {"resnet18", "layer4.0.conv1", CONV, 32, 256, 512, 8, 3, 2, 1, 1, 0},
    {"resnet18", "layer4.0.down", CONV, 32, 256, 512, 8, 1, 2, 0, 1, 0},
    {"resnet18", "layer4", CONV, 32, 512, 512, 4, 3, 1, 1, 3, 0},
    {"resnet18", "fc", LINEAR, 32, 512, 10, 0, 0, 0, 0, 1, 0},
    {"cnn", "conv1", CONV, 64, 1, 32, 28, 3, 1, 1, 1, 1},
    {"cnn", "pool1", MAXPOOL, 64, 32, 32, 28, 2, 2, 0, 1, 0},
    {"cnn", "conv2", CONV, 64, 32, 64, 14, 3, 1, 1, 1, 0},
    {"cnn", "pool2", MAXPOOL, 64, 64, 64, 14, 2, 2, 0, 1, 0},
    {"unet", "enc1.0", CONV, 8, 1, 16, 64, 3, 1, 1, 1, 1},
    {"unet", "enc1.3", CONV, 8, 16, 16, 64, 3, 1, 1, 2, 0},
    {"unet", "dec1.0", CONV, 8, 32, 16, 64, 3, 1, 1, 1, 0},
    {"unet", "enc2.0", CONV, 8, 16, 32, 32, 3, 1, 1, 1, 0},
    {"unet", "enc2.3", CONV, 8, 32, 32, 32, 3, 1, 1, 2, 0},
    {"unet", "mid.0", CONV, 8, 32, 64, 16, 3, 1, 1, 1, 0},
    {"unet", "mid.3", CONV, 8, 64, 64, 16, 3, 1, 1, 1, 0},
    {"gpt", "c_attn", LINEAR, 2048, 128, 384, 0, 0, 0, 0, 4, 0},
    {"gpt", "c_proj", LINEAR, 2048, 128, 128, 0, 0, 0, 0, 4, 0},
    {"gpt", "mlp.c_fc", LINEAR, 2048, 128, 512, 0, 0, 0, 0, 4, 0},
    {"gpt", "mlp.c_proj", LINEAR, 2048, 512, 128, 0, 0, 0, 0, 4, 0},
    {"gpt", "logits", LINEAR, 2048, 128, 65, 0, 0, 0, 0, 1, 0},
};

static void fail(const char *what)
{
    fprintf(stderr, "ops: %s: %s\n", what, sw_error());
    exit(1);
}

static sw__desc dense(int rank, const int64_t *dim, bool last)
{
    sw__desc d = {.dtype = SW_F32, .rank = (uint8_t)rank};
    int order[SW_MAX_RANK];
    for (int i = 0; i < rank; i++) order[i] = !last ? i : i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        d.dim[order[i]] = dim[order[i]];
        d.stride[order[i]] = stride;
        stride *= dim[order[i]];
    }
    return d;
}

static sw__desc transposed(sw__desc d)
{
    const int64_t dim = d.dim[0], stride = d.stride[0];
    d.dim[0] = d.dim[1];
    d.stride[0] = d.stride[1];
    d.dim[1] = dim;
    d.stride[1] = stride;
    return d;
}

static size_t bytes_of(const sw__desc *d)
{
    size_t n = 4;
    for (int i = 0; i < d->rank; i++) n *= (size_t)d->dim[i];
    return n;
}

static void *filled(void *dev, size_t bytes)
{
    void *buf;
    if (be->alloc(dev, bytes + 64, &buf) != SW_OK) fail("alloc");
    float *const f = be->host_pointer(buf);
    for (size_t i = 0; i < bytes / 4; i++) f[i] = (float)((i * 2654435761u >> 8) % 2001) / 1000.0f - 1.0f;
    return buf;
}

static double now(void *dev)
{
    struct timespec t;
    clock_gettime(be->traits(dev)->compute_units == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(void *dev, const layer *l, const char *what, const sw__op_desc *d, double flops)
{
    void *plan;
    size_t workspace;
    if (be->op_plan(dev, d, &plan, &workspace) != SW_OK) fail(l->name);
    sw__bind bind[8] = {{0}};
    int n = 0;
    for (int i = 0; i < d->n_in; i++) bind[n++].buffer = filled(dev, bytes_of(&d->in[i]));
    bind[n++].buffer = filled(dev, bytes_of(&d->out[0]));
    bind[n++].buffer = filled(dev, workspace);
    double best = 1e9, spent = 0;
    for (int r = 0; r < 5 || (spent < seconds && r < 2000); r++) {
        const double t = now(dev);
        if (be->op_exec(dev, plan, bind) != SW_OK) fail(l->name);
        const double e = now(dev) - t;
        spent += e;
        if (r > 1 && e < best) best = e;
    }
    printf("%-9s %-15s %-7s x%d %9.3f ms %7.1f GFLOP/s  ws %6zu K  %s\n", l->net, l->name, what, l->count, best * 1e3,
           flops / best * 1e-9, workspace >> 10, be->op_note(plan));
    total_ms += best * 1e3 * l->count;
    for (int i = 0; i < n; i++) be->release(dev, bind[i].buffer);
    be->op_free(dev, plan);
}

static void bench_linear(void *dev, const layer *l)
{
    const int64_t xd[2] = {l->n, l->c}, wd[2] = {l->o, l->c}, yd[2] = {l->n, l->o}, bd[1] = {l->o};
    const sw__desc x = dense(2, xd, false), w = dense(2, wd, false), y = dense(2, yd, false);
    const double flops = 2.0 * (double)(l->n * l->c * l->o);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    const sw__desc fwd[3] = {x, transposed(w), dense(1, bd, false)}, gx[2] = {y, w}, gw[2] = {transposed(y), x};
    run(dev, l, "fwd", &(sw__op_desc){SW_OP_MATMUL, &attr, l->name, 3, 1, fwd, &y}, flops);
    if (!l->first) run(dev, l, "grad_x", &(sw__op_desc){SW_OP_DOT, &attr, l->name, 2, 1, gx, &x}, flops);
    run(dev, l, "grad_w", &(sw__op_desc){SW_OP_DOT, &attr, l->name, 2, 1, gw, &w}, flops);
}

static void bench_conv(void *dev, const layer *l)
{
    const int64_t out = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    const int64_t xd[4] = {l->n, l->c, l->size, l->size}, wd[4] = {l->o, l->c, l->kernel, l->kernel};
    const int64_t yd[4] = {l->n, l->o, out, out};
    const bool last = getenv("NCHW") == NULL;
    const sw__desc x = dense(4, xd, last), w = dense(4, wd, false), y = dense(4, yd, last);
    const double flops = 2.0 * (double)(l->n * l->c * l->o * out * out * l->kernel * l->kernel);
    sw__attr a;
    memset(&a, 0, sizeof a);
    a.conv.nd = 2;
    a.conv.groups = 1;
    for (int i = 0; i < 2; i++) {
        a.conv.stride[i] = l->stride;
        a.conv.pad_lo[i] = a.conv.pad_hi[i] = l->pad;
        a.conv.dilation[i] = 1;
    }
    const sw__desc fwd[2] = {x, w}, gx[2] = {y, w}, gw[2] = {x, y};
    run(dev, l, "fwd", &(sw__op_desc){SW_OP_CONV, &a, l->name, 2, 1, fwd, &y}, flops);
    if (!l->first) run(dev, l, "grad_x", &(sw__op_desc){SW_OP_CONV_GRAD_X, &a, l->name, 2, 1, gx, &x}, flops);
    run(dev, l, "grad_w", &(sw__op_desc){SW_OP_CONV_GRAD_W, &a, l->name, 2, 1, gw, &w}, flops);
}

static void bench_pool(void *dev, const layer *l)
{
    const int64_t out = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    const int64_t xd[4] = {l->n, l->c, l->size, l->size}, yd[4] = {l->n, l->c, out, out};
    const sw__desc x = dense(4, xd, getenv("NCHW") == NULL), y = dense(4, yd, getenv("NCHW") == NULL);
    const double flops = (double)(l->n * l->c * out * out * l->kernel * l->kernel);
    const bool max = l->kind == MAXPOOL;
    sw__attr a;
    memset(&a, 0, sizeof a);
    a.pool.nd = 2;
    for (int i = 0; i < 2; i++) {
        a.pool.kernel[i] = l->kernel;
        a.pool.stride[i] = l->stride;
        a.pool.pad_lo[i] = a.pool.pad_hi[i] = l->pad;
        a.pool.dim[i] = xd[i];
        a.pool.dim[2 + i] = xd[2 + i];
    }
    const sw__desc grad[3] = {x, y, y};
    run(dev, l, "fwd", &(sw__op_desc){max ? SW_OP_MAX_POOL : SW_OP_AVG_POOL, &a, l->name, 1, 1, &x, &y}, flops);
    if (max) run(dev, l, "grad_x", &(sw__op_desc){SW_OP_MAX_POOL_GRAD, &a, l->name, 3, 1, grad, &x}, flops);
    else run(dev, l, "grad_x", &(sw__op_desc){SW_OP_AVG_POOL_GRAD, &a, l->name, 1, 1, &y, &x}, flops);
}

int main(int argc, char **argv)
{
    const char *const net = argc > 2 ? argv[2] : "all";
    if (argc > 3) seconds = atof(argv[3]);
    void *dev = NULL;
    sw_device_properties p;
    const sw_device_options o = {.threads = argc > 1 ? atoi(argv[1]) : 0};
    if (be->properties(0, &p) != SW_OK || be->open(0, &o, &dev) != SW_OK) fail("device");
    printf("%s; %s; %d threads\n", p.name, p.compute, be->traits(dev)->compute_units);
    static const char *const nets[] = {"mlp", "lenet", "resnet18", "cnn", "unet", "gpt"};
    for (size_t k = 0; k < SW_COUNT(nets); k++) {
        const size_t name = strcspn(net, "/");
        if (strcmp(net, "all") != 0 && (strlen(nets[k]) != name || strncmp(net, nets[k], name) != 0)) continue;
        total_ms = 0;
        for (size_t i = 0; i < SW_COUNT(layers); i++) {
            const layer *const l = &layers[i];
            if (strcmp(l->net, nets[k]) != 0 || (net[name] == '/' && strcmp(net + name + 1, l->name) != 0)) continue;
            if (l->kind == LINEAR) bench_linear(dev, l);
            else if (l->kind == CONV) bench_conv(dev, l);
            else bench_pool(dev, l);
        }
        printf("%-9s all ops: %.2f ms\n", nets[k], total_ms);
    }
    be->close(dev);
    return 0;
}
