/* loss_scale.c: dynamic loss scaling, for gradients in f16, whose smallest number is 6e-8 (Micikevicius et al. 2018; the
 * constants and the rule are torch.amp.GradScaler's). The whole of it is graph: scale and count are state variables, so
 * checkpoints hold them and no step waits for the host. Called by optim.c. */
#include "graph/build.h"
#include "nn/optim.h"

#define MOST 0x1p127 /* a scale that doubles no more: it would be infinite */

/* The seed of the gradient: the loss counts `scale` times. */
sw_t sw__scale_of(sw_t loss, const sw_optimizer *o, sw__loss_scale *s)
{
    sw_graph *const g = loss.graph;
    const sw_init init = {.kind = SW_INIT_CONSTANT, .a = o->loss_scale}, zero = {0};
    s->scale = sw_variable(g, "loss_scale", SW_VAR_STATE, SW_F32, 0, NULL, init);
    s->count = sw_variable(g, "loss_scale.good_steps", SW_VAR_STATE, SW_I64, 0, NULL, zero);
    return sw_mul(sw__const_like(loss, 1), sw_cast(s->scale, sw_type(loss)));
}

/* Gradients as they are without the scale, in f32; and whether all of them are finite: x - x is 0, or NaN. */
static sw_t unscale(sw_graph *g, const sw__loss_scale *s, sw__flat *f, int n)
{
    const sw_t inverse = sw_div(sw_const(g, SW_F32, 1), s->scale);
    sw_t sum = SW_NONE;
    for (int i = 0; i < n; i++) {
        f[i].grad = sw_mul(f[i].grad, inverse);
        const sw_t zeros = sw_sum(sw_sub(f[i].grad, f[i].grad), SW_ALL_AXES, false);
        sum = i ? sw_add(sum, zeros) : zeros;
    }
    return sw_eq(sum, sw_const(g, SW_F32, 0));
}

/* After `growth_interval` finite steps one after another the scale doubles; after one that is not it halves. */
sw_t sw__scale_step(sw_graph *g, const sw_optimizer *o, const sw__loss_scale *s, sw__flat *f, int n)
{
    const sw_t finite = unscale(g, s, f, n);
    const int64_t interval = o->growth_interval > 0 ? o->growth_interval : 2000;
    const sw_t next = sw_add(s->count, sw_const(g, SW_I64, 1)), zero = sw_const(g, SW_I64, 0);
    const sw_t grows = sw_eq(next, sw_const(g, SW_I64, (double)interval));
    const sw_t grown = sw_where(grows, sw_min(sw_mul_scalar(s->scale, 2), sw_const(g, SW_F32, MOST)), s->scale);
    sw_assign(s->count, sw_where(sw_and(finite, sw_not(grows)), next, zero));
    sw_assign(s->scale, sw_where(finite, grown, sw_mul_scalar(s->scale, 0.5)));
    sw_output(sw_mul_scalar(s->scale, 1), SW_OUTPUT_SCALE); /* what this step used, also once the variable is the next one's */
    sw_output(sw_cast(finite, SW_F32), SW_OUTPUT_FINITE);
    return finite;
}
