/* recurrent.c: plans lstm, gru, rnn and their gradients: weights are packed, then a launch a step of
 * portable/recurrent.k (two with a projection). Called by gpu_op.c. */
#include "backend/gpu/ops/big.h"
#include "backend/gpu/ops/columns.h"
#include "graph/recurrent.h"

#include <stdio.h>

typedef struct plan {
    sw__gpu_plan *p;
    sw__recurrent r;
    int units, samples, items;
    int work;               /* the workspace among the plan's buffers */
    int64_t gates_at, proj_at, raw_at; /* in the workspace: packed weights, and what is to be projected */
} plan;

enum { PACK, GATES, PROJECT, STATE_BACK, GATES_BACK };

static int64_t padded(const plan *x, int64_t n)
{
    return sw__div_up(n, x->units) * x->units;
}

static sw__ask ask(const plan *x, int phase, int64_t pad)
{
    const sw__recurrent *const r = &x->r;
    const bool f64 = x->p->d.out[0].dtype == SW_F64;
    sw__ask a = sw__ask_for(x->p, "recurrent");
    sw__ask_type(&a, (sw_dtype)x->p->d.out[0].dtype);
    sw__ask_text(&a, "EXP", f64 ? "exp" : "sw_exp");
    sw__ask_text(&a, "TANH", f64 ? "tanh" : "sw_tanh");
    sw__ask_macro(&a, "PHASE", phase);
    sw__ask_macro(&a, "ITEMS", x->items);
    sw__ask_macro(&a, "UNITS", x->units);
    sw__ask_macro(&a, "SAMPLES", x->samples);
    sw__ask_macro(&a, "PAD", pad);
    sw__ask_macro(&a, "HIDDEN", r->hidden);
    sw__ask_macro(&a, "STATE", r->state);
    if (phase == PACK) return a;
    sw__ask_macro(&a, "CELL", r->cell);
    sw__ask_macro(&a, "G", r->n_gates);
    sw__ask_macro(&a, "PROJ", r->proj >= 0);
    sw__ask_macro(&a, "REVERSE", r->reverse);
    sw__ask_macro(&a, "RELU", r->relu);
    sw__ask_macro(&a, "LENGTHS", r->lengths >= 0);
    if (r->lengths >= 0) sw__ask_text(&a, "LENGTH", x->p->d.in[r->lengths].dtype == SW_I64 ? "i64" : "i32");
    return a;
}

/* An operand, a result, or nothing (any buffer that is there: it is not looked at). */
static void in_(sw__ask *a, int place)
{
    sw__ask_buffer(a, place < 0 ? 0 : place, 0);
}

static void out_(sw__ask *a, int place)
{
    sw__ask_buffer(a, a->p->d.n_in + (place < 0 ? 0 : place), 0);
}

static sw_status launch(const plan *x, sw__ask *a, int64_t width, int64_t s)
{
    const sw__recurrent *const r = &x->r;
    const int64_t items = padded(x, width) / x->units * sw__div_up(r->batch, x->samples);
    sw__ask_i32(a, 3, (const int64_t[]){r->batch, r->steps, s});
    if (r->lengths >= 0) {
        sw__ask_buffer(a, r->lengths, 0);
        sw__ask_errors(a);
    }
    return sw__ask_launch(a, sw__div_up(items, x->items), 1, 1, x->items);
}

/* Weights [k, groups x columns] with these strides, as recurrent.k reads them; at_: where in the workspace. */
static sw_status pack(plan *x, int in, int64_t k, int groups, int64_t columns, int64_t k_stride, int64_t n_stride,
                      int64_t *at)
{
    const int64_t pad = padded(x, columns), count = k * groups * pad;
    if (count > INT32_MAX) return sw__fail(SW_ERR_UNSUPPORTED, "too large: weights of %lld elements", (long long)count);
    *at = sw__big_workspace(x->p, count * (int64_t)sw_dtype_size((sw_dtype)x->p->d.out[0].dtype));
    sw__ask a = ask(x, PACK, pad);
    sw__ask_macro(&a, "G", groups);
    sw__ask_macro(&a, "COLUMNS", columns);
    sw__ask_macro(&a, "K_STRIDE", k_stride);
    sw__ask_macro(&a, "N_STRIDE", n_stride);
    sw__ask_buffer(&a, in, 0);
    sw__ask_buffer(&a, x->work, *at);
    sw__ask_i32(&a, 1, &count);
    return sw__ask_launch(&a, sw__div_up(count, x->items), 1, 1, x->items);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static sw_status forward_step(const plan *x, int64_t s)
{
    const sw__recurrent *const r = &x->r;
    sw__ask a = ask(x, GATES, padded(x, r->hidden));
    in_(&a, r->gates);
    sw__ask_buffer(&a, x->work, x->gates_at);
    in_(&a, r->bias);
    in_(&a, r->h0);
    in_(&a, r->c0);
    out_(&a, 0);
    out_(&a, r->out_h);
    out_(&a, r->out_c);
    out_(&a, r->out_saved);
    sw__ask_buffer(&a, x->work, x->raw_at);
    SW_TRY(launch(x, &a, r->hidden, s));
    if (r->proj < 0) return SW_OK;
    a = ask(x, PROJECT, padded(x, r->state));
    sw__ask_buffer(&a, x->work, x->raw_at);
    sw__ask_buffer(&a, x->work, x->proj_at);
    in_(&a, r->h0);
    out_(&a, 0);
    out_(&a, r->out_h);
    return launch(x, &a, r->state, s);
}

static sw_status forward(plan *x)
{
    const sw__recurrent *const r = &x->r;
    SW_TRY(pack(x, r->weight, r->state, r->n_gates, r->hidden, 1, r->state, &x->gates_at));
    if (r->proj >= 0) {
        SW_TRY(pack(x, r->proj, r->hidden, 1, r->state, 1, r->hidden, &x->proj_at));
        x->raw_at =
            sw__big_workspace(x->p, r->batch * r->hidden * (int64_t)sw_dtype_size((sw_dtype)x->p->d.out[0].dtype));
    }
    for (int64_t s = 0; s < SW_MAX(r->steps, 1); s++) SW_TRY(forward_step(x, s)); /* without steps: the last states */
    return SW_OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static sw_status state_back(const plan *x, int64_t s)
{
    const sw__recurrent *const r = &x->r;
    sw__ask a = ask(x, STATE_BACK, padded(x, r->state));
    in_(&a, r->dy);
    in_(&a, r->dh);
    sw__ask_buffer(&a, x->work, x->gates_at);
    out_(&a, r->out_dstate);
    out_(&a, r->proj >= 0 ? r->out_dproj : -1);
    out_(&a, r->out_dh0);
    in_(&a, r->dc);
    out_(&a, r->out_dc0);
    return launch(x, &a, r->state, s);
}

static sw_status gates_back(const plan *x, int64_t s)
{
    const sw__recurrent *const r = &x->r;
    sw__ask a = ask(x, GATES_BACK, padded(x, r->hidden));
    in_(&a, r->dy);
    in_(&a, r->dh);
    in_(&a, r->dc);
    in_(&a, r->saved);
    in_(&a, r->y);
    in_(&a, r->c0 >= 0 ? r->c0 : r->h0);
    sw__ask_buffer(&a, x->work, r->proj >= 0 ? x->proj_at : x->gates_at);
    out_(&a, r->proj >= 0 ? r->out_dproj : -1);
    out_(&a, 0);
    out_(&a, r->out_dstate);
    out_(&a, r->out_dh0);
    out_(&a, r->out_dc0);
    return launch(x, &a, r->hidden, s);
}

static sw_status backward(plan *x)
{
    const sw__recurrent *const r = &x->r;
    SW_TRY(pack(x, r->weight, r->rows, 1, r->state, r->state, 1, &x->gates_at));
    if (r->proj >= 0) SW_TRY(pack(x, r->proj, r->state, 1, r->hidden, r->hidden, 1, &x->proj_at));
    for (int64_t s = r->steps; s-- > 0;) {
        if (r->proj >= 0) SW_TRY(state_back(x, s));
        SW_TRY(gates_back(x, s));
    }
    return state_back(x, -1);
}

/* A CPU takes a vector of units at a time; a GPU one, and reads weights for several samples. */
sw_status sw__gpu_recurrent_plan(sw__gpu_plan *p)
{
    const sw__target *const t = &p->gpu->target;
    plan x = {.p = p, .r = sw__recurrent_of(p->d.op, &p->attr, p->d.out[0].dim), .work = p->n_bind};
    const sw__recurrent *const r = &x.r;
    SW_TRY(sw__gpu_can_add(p, (sw_dtype)p->d.out[0].dtype));
    if (r->batch > INT32_MAX || r->steps > INT32_MAX || r->rows > INT32_MAX / 2)
        return sw__fail(SW_ERR_UNSUPPORTED, "too large: %lld samples, %lld steps, %lld units", (long long)r->batch,
                        (long long)r->steps, (long long)r->hidden);
    x.units = t->serial ? SW_MAX(1, SW_MIN(t->width, 16)) : 1;
    x.samples = t->serial ? (t->width >= 16 ? 4 : 2) : r->batch >= 64 ? 4 : r->batch >= 16 ? 2 : 1;
    x.items = t->serial ? 1 : SW_MIN(128, SW_MIN(t->max_group, t->max_local[0]));
    snprintf(p->note, sizeof p->note, "a launch a step:%s", sw_dtype_name((sw_dtype)p->d.out[0].dtype));
    if (r->batch == 0) return SW_OK;
    return r->backward ? backward(&x) : forward(&x);
}
