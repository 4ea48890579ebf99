/* graph.c: without layers or trainer: a graph is recorded, its gradient appended, compiled for a device, and run.
 * Usage: graph [STEPS]: fits y = a sin(x) + b x + c to noisy points by gradient descent. */
/* check: 400 */
/* valgrind: 20 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <swoop/swoop.h>

enum { POINTS = 256 };

/* The whole step is one graph: forward, loss, gradients, update. a, b and c keep their values from run to run. */
static sw_status record(sw_graph *g)
{
    const int64_t shape[] = { POINTS };
    sw_t x = sw_input(g, "x", SW_F32, 1, shape), y = sw_input(g, "y", SW_F32, 1, shape);
    sw_t lr = sw_input(g, "lr", SW_F32, 0, NULL);
    const sw_init zero = { .kind = SW_INIT_ZEROS };
    sw_t w[3] = { sw_param(g, "a", 0, NULL, zero), sw_param(g, "b", 0, NULL, zero), sw_param(g, "c", 0, NULL, zero) };

    sw_t guess = sw_add(sw_add(sw_mul(w[0], sw_sin(x)), sw_mul(w[1], x)), w[2]); /* scalars broadcast */
    sw_t loss = sw_mean(sw_square(sw_sub(guess, y)), SW_ALL_AXES, false);
    sw_output(sw_named(loss, "loss"), "loss");

    sw_t gradient[3];
    const sw_status st = sw_grad(loss, w, 3, gradient); /* nodes like any others; an error above shows up here */
    if (st != SW_OK) return st;
    for (int i = 0; i < 3; i++) sw_assign(w[i], sw_sub(w[i], sw_mul(lr, gradient[i])));
    return sw_graph_status(g);
}

static sw_status print_graph(const sw_graph *g)
{
    char *text = NULL;
    const sw_status st = sw_graph_print(g, SW_PRINT_TEXT, &text);
    if (st == SW_OK) printf("%s\n", text);
    sw_string_free(text);
    return st;
}

/* What the compiled step takes and does, known before it runs. */
static void print_plan(const sw_plan *p)
{
    printf("plan: %d nodes in %d launches (%d fused kernels, %d whole ops, %d copies)\n", p->nodes, p->launches,
           p->kernels, p->ops, p->copies);
    printf("      %llu bytes: parameters %llu, inputs %llu, constants %llu, arena %llu\n\n",
           (unsigned long long)p->total, (unsigned long long)p->params, (unsigned long long)p->inputs,
           (unsigned long long)p->constants, (unsigned long long)p->arena);
}

/* Points on 2 sin(x) - 0.5 x + 1, with noise from a small generator so that every run is the same. */
static void make_points(float *x, float *y)
{
    unsigned state = 1;
    for (int i = 0; i < POINTS; i++) {
        state = state * 1664525u + 1013904223u;
        const float noise = (float)(state >> 8) / 16777216.0f - 0.5f;
        x[i] = -3.0f + 6.0f * (float)i / (POINTS - 1);
        y[i] = 2.0f * sinf(x[i]) - 0.5f * x[i] + 1.0f + 0.2f * noise;
    }
}

static sw_status descend(sw_program *p, int64_t steps)
{
    float x[POINTS], y[POINTS];
    make_points(x, y);
    const float lr = 0.1f;
    sw_status st = sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, POINTS); /* stays until it is set again */
    if (st == SW_OK) st = sw_program_set(p, sw_program_input(p, "y"), SW_F32, y, POINTS);
    if (st == SW_OK) st = sw_program_set(p, sw_program_input(p, "lr"), SW_F32, &lr, 1);
    const int loss = sw_program_output(p, "loss");
    for (int64_t step = 1; step <= steps && st == SW_OK; step++) {
        float now = 0;
        st = sw_program_run(p); /* a replay: nothing is allocated or decided any more */
        if (st == SW_OK) st = sw_program_get(p, loss, SW_F32, &now, 1);
        if (st == SW_OK && (step == 1 || step % 50 == 0)) printf("step %3d  loss %.6f\n", (int)step, (double)now);
    }
    return st;
}

static sw_status print_parameters(sw_params *params)
{
    for (int i = 0; i < sw_params_count(params); i++) {
        sw_var_info v;
        float value = 0;
        sw_status st = sw_params_info(params, i, &v);
        if (st == SW_OK) st = sw_params_get(params, i, SW_F32, &value, 1);
        if (st != SW_OK) return st;
        printf("%s = %.3f  ", v.name, (double)value);
    }
    printf("(the points lie around a = 2, b = -0.5, c = 1)\n");
    return SW_OK;
}

int main(int argc, char **argv)
{
    const int64_t steps = argc > 1 ? strtol(argv[1], NULL, 10) : 400;
    sw_graph *g = NULL;
    sw_device *device = NULL;
    sw_params *params = NULL;
    sw_program *program = NULL;

    sw_status st = sw_graph_new(&g);
    if (st == SW_OK) st = record(g);
    if (st == SW_OK) st = print_graph(g);
    if (st == SW_OK) st = sw_device_open("auto", NULL, &device);
    if (st == SW_OK) st = sw_params_new(device, g, 0, &params);
    if (st == SW_OK) st = sw_compile(g, device, &(sw_compile_options){ .params = params }, &program);
    sw_graph_free(g); /* the program does not need it any more */
    if (st == SW_OK) print_plan(sw_program_plan(program));
    if (st == SW_OK) st = descend(program, steps);
    if (st == SW_OK) st = print_parameters(params);
    if (st != SW_OK) fprintf(stderr, "graph: %s\n", sw_error());
    sw_program_free(program);
    sw_params_free(params);
    sw_device_close(device);
    return st == SW_OK ? 0 : 1;
}
