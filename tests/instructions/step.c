/* step.c: trains a small network for so many steps: what scripts/checks/instructions counts the instructions of.
 *   step lenet|gpt STEPS
 * Sizes are such that valgrind takes seconds; the kinds of launches are those of the large ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swoop/swoop.h>

static const struct {
    const char *name, *model;
    int64_t batch, classes, tokens;
    int rank;
    int64_t shape[3];
    sw_optimizer optimizer;
} networks[] = {
    {"lenet", "lenet", 4, 10, 0, 3, {1, 28, 28}, {.kind = SW_ADAM, .lr = 1e-3}},
    {"gpt", "gpt:2x2x32", 2, 65, 65, 1, {32}, {.kind = SW_ADAMW, .lr = 1e-3, .weight_decay = 0.1, .decay_matrices = true}},
};

static void check(sw_status st)
{
    if (st == SW_OK) return;
    fprintf(stderr, "step: %s\n", sw_error());
    exit(1);
}

/* Numbers that are the same everywhere. */
static void fill(sw_program *p, const char *name, int64_t n, int64_t below)
{
    double *const v = malloc((size_t)n * sizeof *v);
    if (v == NULL) exit(1);
    for (int64_t i = 0; i < n; i++) v[i] = below > 0 ? (double)(i * 7 % below) : (double)(i * 37 % 101) / 50 - 1;
    check(sw_program_set(p, sw_program_input(p, name), SW_F64, v, n));
    free(v);
}

static double step(sw_program *p, const sw_optimizer *o, int64_t t)
{
    static const char *const names[] = {SW_INPUT_LR, SW_INPUT_BIAS1, SW_INPUT_BIAS2};
    double scalars[3], loss = 0;
    sw_optimizer_scalars(o, t, o->lr, &scalars[0], &scalars[1], &scalars[2]);
    for (int i = 0; i < 3; i++) {
        const int input = sw_program_input(p, names[i]);
        if (input >= 0) check(sw_program_set(p, input, SW_F64, &scalars[i], 1));
    }
    check(sw_program_run(p));
    check(sw_program_get(p, sw_program_output(p, "loss"), SW_F64, &loss, 1));
    return loss;
}

static void train(int net, int steps)
{
    sw_device *d = NULL;
    sw_graph *g = NULL;
    sw_program *p = NULL;
    int64_t shape[4] = {networks[net].batch}, elements = networks[net].batch, tokens = networks[net].tokens;
    for (int i = 0; i < networks[net].rank; i++) elements *= shape[i + 1] = networks[net].shape[i];
    check(sw_device_open("cpu", &(sw_device_options){.threads = 1}, &d));
    check(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", tokens ? SW_I64 : SW_F32, networks[net].rank + 1, shape);
    const sw_t y = sw_input(g, "y", SW_I64, tokens ? networks[net].rank + 1 : 1, shape);
    const sw_t out = sw_model_build(networks[net].model, x, networks[net].classes);
    const sw_t loss = sw_output(sw_cross_entropy(out, y), "loss");
    check(sw_optimizer_apply(&networks[net].optimizer, loss, NULL, 0));
    check(sw_compile(g, d, NULL, &p));
    fill(p, "x", elements, tokens);
    fill(p, "y", tokens ? elements : networks[net].batch, networks[net].classes);
    double last = 0;
    for (int t = 0; t < steps; t++) last = step(p, &networks[net].optimizer, t);
    printf("%s: loss %.4f after %d steps\n", networks[net].name, last, steps);
    sw_program_free(p);
    sw_graph_free(g);
    sw_device_close(d);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 3 && i < sizeof networks / sizeof networks[0]; i++) {
        if (strcmp(argv[1], networks[i].name) != 0) continue;
        train((int)i, atoi(argv[2]));
        return 0;
    }
    fprintf(stderr, "usage: step lenet|gpt STEPS\n");
    return 2;
}
