/* op_check.c: registering a user's op, and whether its backward is the gradient of its forward: by differences.
 * Above sw_compile: the check is a small graph, run a few times for some elements of each input. */
#include "exec/exec.h"
#include "graph/custom.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The loss is the sum over outputs k and their elements e of weight[k][e] y[k][e]: formed in double on the host for the
 * differences, and in the graph for the gradient. */
typedef struct check {
    const sw__custom *c;
    sw_op_id op;
    sw_device *device;
    sw_shape in[SW_OP_MAX_IN];
    sw_graph *graph;
    sw_program *program;
    int n_y;                       /* f32 outputs */
    float *x[SW_OP_MAX_IN];        /* values of f32 inputs, NULL for others */
    int64_t n_x[SW_OP_MAX_IN];
    float *weight[SW_OP_MAX_OUT];
    float *y[2][SW_OP_MAX_OUT];    /* outputs right and left of an element's value */
    int64_t n_weight[SW_OP_MAX_OUT];
    float *dx;                     /* gradient of the input at hand */
    int tried, rough;              /* elements; those where forward is not smooth */
} check;

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static const char *slot(char *buf, const char *what, int i)
{
    snprintf(buf, 16, "%s%d", what, i);
    return buf;
}

/* The op on inputs x0, x1 …; outputs y0 … times w0 … summed as the loss; gradients as outputs g0 …, by input. */
static sw_status record(check *t)
{
    const sw__custom *const c = t->c;
    sw_t x[SW_OP_MAX_IN], wrt[SW_OP_MAX_IN], dx[SW_OP_MAX_IN], loss = SW_NONE;
    char name[16];
    SW_TRY(sw_graph_new(&t->graph));
    for (int i = 0; i < c->n_in; i++)
        x[i] = sw_input(t->graph, slot(name, "x", i), c->in_type[i], t->in[i].rank, t->in[i].dim);
    const sw_t applied = sw_op_apply(t->op, x, c->n_in);
    for (int k = 0; k < c->n_out; k++) {
        if (c->out_type[k] != SW_F32) continue;
        const sw_t y = sw_op_output(applied, k);
        SW_TRY(sw_graph_status(t->graph));
        const sw__node n = *sw__node_of(y);
        const sw_t w = sw_input(t->graph, slot(name, "w", t->n_y), SW_F32, n.rank, n.dim);
        const sw_t part = sw_sum(sw_mul(w, y), SW_ALL_AXES, false);
        loss = t->n_y > 0 ? sw_add(loss, part) : part;
        t->n_weight[t->n_y] = sw_elements(y);
        sw_output(y, slot(name, "y", t->n_y++));
    }
    for (int j = 0; j < c->n_dx; j++) wrt[j] = x[c->dx[j]];
    SW_TRY(sw_grad(loss, wrt, c->n_dx, dx));
    for (int j = 0; j < c->n_dx; j++) sw_output(dx[j], slot(name, "g", c->dx[j]));
    return sw_graph_status(t->graph);
}

static sw_status set(check *t, const char *what, int i, const float *v, int64_t n)
{
    char name[16];
    return sw_program_set(t->program, sw_program_input(t->program, slot(name, what, i)), SW_F32, v, n);
}

static sw_status get(check *t, const char *what, int i, float *v, int64_t n)
{
    char name[16];
    return sw_program_get(t->program, sw_program_output(t->program, slot(name, what, i)), SW_F32, v, n);
}

static sw_status new_values(sw__rng *rng, int64_t n, float **out)
{
    float *const v = sw__malloc(SW_MAX((size_t)n, (size_t)1) * sizeof *v);
    if (!v) return sw__no_memory((size_t)n * sizeof *v, "checking an op");
    for (int64_t e = 0; e < n; e++) v[e] = (float)sw__rng_normal(rng);
    *out = v;
    return SW_OK;
}

static sw_status set_integers(check *t, int i)
{
    int64_t *const v = sw__malloc(SW_MAX((size_t)t->n_x[i], (size_t)1) * sizeof *v);
    char name[16];
    if (!v) return sw__no_memory((size_t)t->n_x[i] * sizeof *v, "checking an op");
    for (int64_t e = 0; e < t->n_x[i]; e++) v[e] = e % 2;
    const int input = sw_program_input(t->program, slot(name, "x", i));
    const sw_status st = sw_program_set(t->program, input, SW_I64, v, t->n_x[i]);
    sw__free(v);
    return st;
}

static sw_status fill(check *t)
{
    sw__rng rng;
    int64_t most = 1;
    sw__rng_init(&rng, 17, 0);
    for (int i = 0; i < t->c->n_in; i++) {
        t->n_x[i] = sw__dims_product(t->in[i].dim, t->in[i].rank);
        most = SW_MAX(most, t->n_x[i]);
        if (t->c->in_type[i] != SW_F32) {
            SW_TRY(set_integers(t, i));
            continue;
        }
        SW_TRY(new_values(&rng, t->n_x[i], &t->x[i]));
        SW_TRY(set(t, "x", i, t->x[i], t->n_x[i]));
    }
    for (int k = 0; k < t->n_y; k++) {
        SW_TRY(new_values(&rng, t->n_weight[k], &t->weight[k]));
        SW_TRY(new_values(&rng, t->n_weight[k], &t->y[0][k]));
        SW_TRY(new_values(&rng, t->n_weight[k], &t->y[1][k]));
        SW_TRY(set(t, "w", k, t->weight[k], t->n_weight[k]));
    }
    return new_values(&rng, most, &t->dx);
}

/* ---- differences ------------------------------------------------------------------------------------------------- */

/* All outputs with x[i][e] = v, as y[side]. */
static sw_status outputs_at(check *t, int i, int64_t e, float v, int side)
{
    const float before = t->x[i][e];
    t->x[i][e] = v;
    sw_status st = set(t, "x", i, t->x[i], t->n_x[i]);
    t->x[i][e] = before;
    if (st == SW_OK) st = sw_program_run(t->program);
    for (int k = 0; k < t->n_y && st == SW_OK; k++) st = get(t, "y", k, t->y[side][k], t->n_weight[k]);
    return st;
}

/* Central difference over +-h, and how far the rounding of results to f32 can have moved it. What x[i][e] has no
 * part in is the same on both sides, to the bit, and adds nothing to either. */
static sw_status difference(check *t, int i, int64_t e, double h, double *slope, double *noise)
{
    const float x = t->x[i][e], right = (float)((double)x + h), left = (float)((double)x - h);
    const double width = (double)right - (double)left;
    SW_TRY(outputs_at(t, i, e, right, 0));
    SW_TRY(outputs_at(t, i, e, left, 1));
    *slope = *noise = 0;
    for (int k = 0; k < t->n_y; k++) {
        for (int64_t j = 0; j < t->n_weight[k]; j++) {
            const double w = (double)t->weight[k][j], a = (double)t->y[0][k][j], b = (double)t->y[1][k][j];
            if (a == b) continue;
            *slope += w * (a - b) / width;
            *noise += 0x1p-23 * fabs(w) * fmax(fabs(a), fabs(b)) / width;
        }
    }
    return SW_OK;
}

/* Two widths that agree give the slope with an error of order h^4; where they do not, the point is near a kink, or
 * the step is too long for the curvature: shorter ones are tried until rounding covers what they say. */
static sw_status slope_at(check *t, int i, int64_t e, double scale, double *slope, double *noise, bool *smooth)
{
    double h = 0x1p-5 * fmin(fmax(1.0, fabs((double)t->x[i][e])), 16.0);
    *smooth = false;
    for (int shorter = 0; shorter < 5 && !*smooth; shorter++, h /= 4) {
        double near, far, noise_far;
        SW_TRY(difference(t, i, e, h, &near, noise));
        SW_TRY(difference(t, i, e, 2 * h, &far, &noise_far));
        if (*noise > 0.02 * fmax(scale, fabs(near))) return SW_OK;
        *slope = (4 * near - far) / 3;
        *smooth = fabs(near - far) <= 3e-3 * fmax(fabs(near), 0.1 * scale) + 2 * *noise;
    }
    return SW_OK;
}

enum { ELEMENTS_TRIED = 12 };

static sw_status check_element(check *t, int i, int64_t e, double scale)
{
    double want = 0, noise = 0;
    bool smooth;
    const double have = (double)t->dx[e];
    SW_TRY(slope_at(t, i, e, scale, &want, &noise, &smooth));
    t->tried++;
    if (!smooth) {
        t->rough++;
        return SW_OK;
    }
    if (fabs(have - want) <= 3e-3 * fmax(fabs(want), 0.1 * scale) + 4 * noise) return SW_OK;
    return sw__fail(SW_ERR_DATA, "op '%s' on %s: the gradient of input %d is wrong at element %lld: backward gives "
                    "%.6g, by differences of forward it is %.6g", t->c->name, t->device->info.id, i, (long long)e, have,
                    want);
}

/* The size of a gradient: that of its largest element, or of the weights where all of it is near nothing. */
static double scale_of(const float *dx, int64_t n)
{
    double most = 1e-3;
    for (int64_t e = 0; e < n; e++)
        if (isfinite(dx[e])) most = fmax(most, fabs((double)dx[e]));
    return most;
}

static sw_status check_input(check *t, int i)
{
    sw__rng rng;
    sw__rng_init(&rng, 29, (uint64_t)i);
    SW_TRY(set(t, "x", i, t->x[i], t->n_x[i])); /* the last difference left its own value */
    SW_TRY(sw_program_run(t->program));
    SW_TRY(get(t, "g", i, t->dx, t->n_x[i]));
    const double scale = scale_of(t->dx, t->n_x[i]);
    for (int64_t k = 0; k < SW_MIN(t->n_x[i], ELEMENTS_TRIED); k++) {
        const int64_t e = t->n_x[i] <= ELEMENTS_TRIED ? k : (int64_t)sw__rng_below(&rng, (uint64_t)t->n_x[i]);
        SW_TRY(check_element(t, i, e, scale));
    }
    return set(t, "x", i, t->x[i], t->n_x[i]);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static void check_free(check *t)
{
    sw_program_free(t->program);
    sw_graph_free(t->graph);
    for (int i = 0; i < SW_OP_MAX_IN; i++) sw__free(t->x[i]);
    for (int k = 0; k < SW_OP_MAX_OUT; k++) {
        sw__free(t->weight[k]);
        sw__free(t->y[0][k]);
        sw__free(t->y[1][k]);
    }
    sw__free(t->dx);
}

static sw_status run_check(check *t)
{
    SW_TRY(record(t));
    SW_TRY(sw_compile(t->graph, t->device, NULL, &t->program));
    SW_TRY(fill(t));
    for (int j = 0; j < t->c->n_dx; j++) SW_TRY(check_input(t, t->c->dx[j]));
    if (t->tried > t->rough) return SW_OK;
    return sw__fail(SW_ERR_DATA, "op '%s': its gradient cannot be checked: %s", t->c->name,
                    t->tried > 0 ? "forward is smooth at none of the elements that were tried"
                                 : "the inputs have no elements");
}

sw_status sw_op_check(sw_op_id op, sw_device *d, const sw_shape *in)
{
    const sw__custom *const c = sw__custom_of(op);
    if (!c) return sw__fail(SW_ERR_ARGUMENT, "sw_op_check: there is no op with id %d", (int)op);
    if (!d) return sw__fail(SW_ERR_ARGUMENT, "sw_op_check: the device is NULL");
    if (!c->differentiable)
        return sw__fail(SW_ERR_ARGUMENT, "sw_op_check: op '%s' has no backward, so there is nothing to check", c->name);
    if (strcmp(d->backend->name, "null") == 0)
        return sw__fail(SW_ERR_UNSUPPORTED, "sw_op_check: device null computes nothing");
    check t = {.c = c, .op = op, .device = d};
    for (int i = 0; i < c->n_in; i++)
        t.in[i] = in ? in[i] : c->has_check ? c->check[i] : (sw_shape){.rank = 2, .dim = {3, 5}};
    const sw_status st = run_check(&t);
    check_free(&t);
    return st;
}

/* What SWOOP_CHECK=1 asks for. */
static sw_status check_at_once(sw_op_id op)
{
    sw_device *cpu = NULL;
    const sw__custom *const c = sw__custom_of(op);
    if (!c->differentiable) return SW_OK;
    if (!c->forward.source.host || !c->backward.source.host) {
        sw__log(SW_LOG_WARN, "op '%s' is not checked: it has no host functions; sw_op_check does it on a device",
                c->name);
        return SW_OK;
    }
    SW_TRY(sw_device_open("cpu", NULL, &cpu));
    const sw_status st = sw_op_check(op, cpu, NULL);
    sw_device_close(cpu);
    return st;
}

sw_status sw_op_register(const sw_op_def *def, sw_op_id *out)
{
    if (!def || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_op_register: def or out is NULL");
    const char *const wish = getenv("SWOOP_CHECK");
    sw_op_id id = 0;
    SW_TRY(sw__custom_add(def, &id));
    const sw_status st = wish && strcmp(wish, "1") == 0 ? check_at_once(id) : SW_OK;
    if (st != SW_OK) {
        sw__custom_remove(id);
        return st;
    }
    *out = id;
    return SW_OK;
}
