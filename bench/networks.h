/* networks.h: the networks of step.c and ops.c, and what both do with them: record the graph of a step, give it data, run it;
 * and a clock.
 * Included by each; what they measure is their own. */
#ifndef SW_BENCH_NETWORKS_H
#define SW_BENCH_NETWORKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swoop/swoop.h>
#include <time.h>

typedef struct network {
    const char *name, *model;
    int64_t batch;
    int rank;
    int64_t shape[3];
    sw_optimizer optimizer;
    int64_t tokens; /* so many kinds of tokens come in, and one goes out at each place; 0: numbers in, classes out … */
    bool mask;      /* … or an image, each of whose places is yes or no */
} network;

static const network networks[] = {
    {"mlp", "mlp:512,512", 64, 1, {784}, {.kind = SW_SGD, .lr = 0.01, .momentum = 0.9}, 0, false},
    {"lenet", "lenet", 64, 3, {1, 28, 28}, {.kind = SW_ADAM, .lr = 1e-3}, 0, false},
    {"resnet18", "resnet18", 32, 3, {3, 32, 32}, {.kind = SW_SGD, .lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4}, 0, false},
    {"lstm", "lstm:128,256", 32, 1, {64}, {.kind = SW_ADAM, .lr = 2e-3}, 65, false},
    {"gpt", "gpt:4x4x128", 16, 1, {128},
     {.kind = SW_ADAMW, .lr = 1e-3, .betas = {0.9, 0.99}, .weight_decay = 0.1, .decay_matrices = true}, 65, false},
    {"unet", "unet:16", 8, 3, {1, 64, 64}, {.kind = SW_ADAM, .lr = 1e-3}, 0, true},
    {"resnet50", "resnet50", 32, 3, {3, 224, 224}, {.kind = SW_SGD, .lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4}, 0, false},
};

static const network *find_network(const char *name)
{
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++)
        if (strcmp(networks[i].name, name) == 0) return &networks[i];
    return NULL;
}

static void check(sw_status st)
{
    if (st == SW_OK) return;
    fprintf(stderr, "bench: %s\n", sw_error());
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What is asked for, and what is made of it. */
typedef struct bench {
    const network *net;
    const char *device, *init, *output;
    int64_t batch;
    int threads, steps, warmup;
    bool profile, infer;
    sw_dtype type; /* products' */
    float *out;    /* infer: what came out, n_out numbers */
    int64_t n_out;
    sw_device *dev;
    sw_params *params;
    sw_program *program;
} bench;

/* Forward pass and its loss, or "y" alone. */
static sw_graph *record_forward(const bench *b)
{
    int64_t shape[4] = {b->batch};
    for (int i = 0; i < b->net->rank; i++) shape[i + 1] = b->net->shape[i];
    sw_graph *g = NULL;
    check(sw_graph_new(&g));
    sw_graph_set_training(g, !b->infer);
    const bool tokens = b->net->tokens > 0;
    const sw_t x = sw_input(g, "x", tokens ? SW_I64 : SW_F32, b->net->rank + 1, shape);
    const bool mask = b->net->mask;
    const int64_t classes = tokens ? b->net->tokens : mask ? 1 : 10;
    if (b->infer) {
        sw_output(sw_model_build(b->net->model, x, classes), "y");
        return g;
    }
    const sw_t y = sw_input(g, "y", mask ? SW_F32 : SW_I64, tokens || mask ? b->net->rank + 1 : 1, shape);
    const sw_t out = sw_model_build(b->net->model, x, classes);
    sw_output(mask ? sw_bce_with_logits_loss(out, y, SW_NONE, SW_REDUCE_MEAN) : sw_cross_entropy(out, y), "loss");
    return g;
}

static sw_graph *record(const bench *b)
{
    sw_graph *g = record_forward(b);
    if (b->type != SW_F32) {
        sw_graph *mixed = NULL;
        check(sw_graph_autocast(g, b->type, &mixed));
        sw_graph_free(g);
        g = mixed;
    }
    if (!b->infer) check(sw_optimizer_apply(&b->net->optimizer, sw_graph_output(g, "loss"), NULL, 0));
    return g;
}

static int64_t x_elements(const bench *b)
{
    int64_t n = b->batch;
    for (int i = 0; i < b->net->rank; i++) n *= b->net->shape[i];
    return n;
}

static int64_t y_elements(const bench *b)
{
    return b->net->tokens > 0 || b->net->mask ? x_elements(b) : b->batch;
}

/* Inference has no "y" to be given. */
static void put(const bench *b, const char *name, sw_dtype type, const void *data, int64_t n)
{
    const int input = sw_program_input(b->program, name);
    if (input >= 0) check(sw_program_set(b->program, input, type, data, n));
}

static void synthesize_tokens(const bench *b)
{
    const int64_t n = x_elements(b);
    int64_t *t = malloc((size_t)n * sizeof *t);
    if (!t) exit(1);
    srand(1);
    for (int64_t i = 0; i < n; i++) t[i] = rand() % b->net->tokens;
    put(b, "x", SW_I64, t, n);
    put(b, "y", SW_I64, t, n);
    free(t);
}

/* Roughly normal numbers (a sum of uniform ones) and labels, where no file gives them. */
static void synthesize(const bench *b)
{
    if (b->net->tokens > 0) {
        synthesize_tokens(b);
        return;
    }
    const int64_t n = x_elements(b);
    float *x = malloc((size_t)n * sizeof *x);
    int64_t *y = malloc((size_t)y_elements(b) * sizeof *y);
    if (!x || !y) exit(1);
    srand(1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = -6;
        for (int k = 0; k < 12; k++) x[i] += (float)rand() / (float)RAND_MAX;
    }
    const int64_t labels = y_elements(b);
    for (int64_t i = 0; i < labels; i++) y[i] = rand() % (b->net->mask ? 2 : 10);
    put(b, "x", SW_F32, x, n);
    put(b, "y", SW_I64, y, labels);
    free(x);
    free(y);
}

static double infer(const bench *b)
{
    check(sw_program_run(b->program));
    check(sw_program_get(b->program, sw_program_output(b->program, "y"), SW_F32, b->out, b->n_out));
    return 0;
}

/* Returns the loss; in inference there is none. */
static double step(const bench *b, int64_t t)
{
    if (b->infer) return infer(b);
    double scalars[3], loss;
    static const char *const names[] = {SW_INPUT_LR, SW_INPUT_BIAS1, SW_INPUT_BIAS2};
    sw_optimizer_scalars(&b->net->optimizer, t, b->net->optimizer.lr, &scalars[0], &scalars[1], &scalars[2]);
    for (int i = 0; i < 3; i++) {
        const int input = sw_program_input(b->program, names[i]);
        if (input >= 0) check(sw_program_set(b->program, input, SW_F64, &scalars[i], 1));
    }
    check(sw_program_run(b->program));
    check(sw_program_get(b->program, sw_program_output(b->program, "loss"), SW_F64, &loss, 1));
    return loss;
}

static void make_output(bench *b)
{
    sw_var_info v;
    check(sw_program_output_info(b->program, sw_program_output(b->program, "y"), &v));
    b->n_out = v.elements;
    b->out = malloc((size_t)v.elements * sizeof *b->out);
    if (!b->out) exit(1);
}

static bool find_type(const char *name, sw_dtype *out)
{
    static const sw_dtype types[] = {SW_F32, SW_BF16, SW_F16};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(sw_dtype_name(types[i]), name) == 0) {
            *out = types[i];
            return true;
        }
    return false;
}

#endif
