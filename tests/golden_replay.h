/* golden_replay.h: the runs of golden_nets.h done again: the stored tensors, batches and rates of each step, the first
 * gradients. For tests that replay them in several ways: test_golden.c, test_precision.c. */
#ifndef GOLDEN_REPLAY_H
#define GOLDEN_REPLAY_H

#include "golden_nets.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define STEPS 20

typedef struct golden_run {
    sw_safetensors *f;
    sw_device *d;
    sw_params *params;
    sw_program *p;
} golden_run;

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s: %s", sw_status_name(st), sw_error());
}

static const sw_array *tensor(const sw_safetensors *f, const char *prefix, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const sw_safetensors_info *i = sw_safetensors_find(f, full);
    if (!i) fail_msg("no tensor %s", full);
    return &i->array;
}

static sw_safetensors *open_golden(const char *name)
{
    char path[512];
    sw_safetensors *f = NULL;
    snprintf(path, sizeof path, "%s/golden/%s.safetensors", SWOOP_TEST_DATA, name);
    ok(sw_safetensors_open(path, &f));
    return f;
}

/* The forward pass and its output "loss". */
static sw_graph *build_loss(const golden_net *net, const sw_safetensors *f)
{
    sw_graph *g = NULL;
    ok(sw_graph_new(&g));
    const sw_array *x = tensor(f, "", "x"), *y = tensor(f, "", "y");
    const sw_t in = sw_input(g, "x", x->dtype, x->rank - 1, x->shape + 1);
    const sw_t answer = sw_input(g, "y", y->dtype, y->rank - 1, y->shape + 1);
    sw_output(net->loss(sw_model_build(net->model, in, net->outputs), answer), "loss");
    ok(sw_graph_status(g));
    return g;
}

/* g's variables as they were in the beginning, and g ready to run; g is freed. */
static void start_run(golden_run *r, sw_graph *g)
{
    ok(sw_params_new(r->d, g, 0, &r->params));
    ok(sw_compile(g, r->d, &(sw_compile_options){.params = r->params}, &r->p));
    sw_graph_free(g);
    for (int i = 0; i < sw_params_count(r->params); i++) {
        sw_var_info v;
        ok(sw_params_info(r->params, i, &v));
        if (v.kind == SW_VAR_STATE) continue;
        const sw_array *a = tensor(r->f, "init.", v.name);
        ok(sw_params_set(r->params, i, a->dtype, a->data, v.elements));
    }
}

static void end_run(golden_run *r)
{
    sw_program_free(r->p);
    sw_params_free(r->params);
    sw_device_close(r->d);
    sw_safetensors_close(r->f);
}

static void set_batch(sw_program *p, const sw_safetensors *f, int step)
{
    const sw_array *x = tensor(f, "", "x"), *y = tensor(f, "", "y");
    const int64_t nx = sw_array_count(x) / STEPS, ny = sw_array_count(y) / STEPS;
    const size_t bx = (size_t)nx * sw_dtype_size(x->dtype), by = (size_t)ny * sw_dtype_size(y->dtype);
    ok(sw_program_set(p, sw_program_input(p, "x"), x->dtype, (const char *)x->data + (size_t)step * bx, nx));
    ok(sw_program_set(p, sw_program_input(p, "y"), y->dtype, (const char *)y->data + (size_t)step * by, ny));
}

static void set_scalar(sw_program *p, const char *name, double v)
{
    const int i = sw_program_input(p, name);
    if (i >= 0) ok(sw_program_set(p, i, SW_F64, &v, 1));
}

static double get_scalar(sw_program *p, const char *name)
{
    double v = NAN;
    ok(sw_program_get(p, sw_program_output(p, name), SW_F64, &v, 1));
    return v;
}

/* One step; its loss. */
static double run_step(const golden_run *r, const golden_net *net, int step)
{
    const double *const rates = tensor(r->f, "", "lr")->data;
    double lr, bias1, bias2;
    sw_optimizer_scalars(&net->optimizer, step, rates[step], &lr, &bias1, &bias2);
    set_batch(r->p, r->f, step);
    set_scalar(r->p, SW_INPUT_LR, lr);
    set_scalar(r->p, SW_INPUT_BIAS1, bias1);
    set_scalar(r->p, SW_INPUT_BIAS2, bias2);
    ok(sw_program_run(r->p));
    return get_scalar(r->p, "loss");
}

/* Largest |a - b| relative to the norm of b, which counts as `least` if it is smaller. */
static double distance_of_norm(const double *a, const float *b, int64_t n, double least)
{
    double norm = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        norm += (double)b[i] * (double)b[i];
        most = fmax(most, fabs(a[i] - (double)b[i]));
    }
    return most / fmax(sqrt(norm), least);
}

/* g outputs the gradients of the first step, each under its parameter's name; g is freed. */
static void check_gradients_of(const golden_run *r, sw_graph *g, double least, double bound, const char *what)
{
    sw_program *p = NULL;
    ok(sw_compile(g, r->d, &(sw_compile_options){.params = r->params}, &p));
    sw_graph_free(g);
    set_batch(p, r->f, 0);
    ok(sw_program_run(p));
    double worst = 0;
    for (int i = 0;; i++) {
        sw_var_info v;
        if (sw_program_output_info(p, i, &v) != SW_OK) break;
        if (strcmp(v.name, "loss") == 0) continue;
        double *grad = malloc((size_t)v.elements * sizeof *grad);
        ok(sw_program_get(p, i, SW_F64, grad, v.elements));
        const double e = distance_of_norm(grad, tensor(r->f, "grad0.", v.name)->data, v.elements, least);
        if (!(e <= bound)) fail_msg("%s: gradient of %s is %g off", what, v.name, e);
        worst = fmax(worst, e);
        free(grad);
    }
    print_message("%s: first gradients within %.2g\n", what, worst);
    sw_program_free(p);
}

#endif
