/* source.c: grids and arguments of a user's kernels, for all backends. See source.h. */
#include "backend/source.h"

/* ref keeps f32 in double; a user's op knows no f64. */
static sw_shape shape_of(const sw__desc *d)
{
    sw_shape s = {.type = d->dtype == SW_F64 ? SW_F32 : (sw_dtype)d->dtype, .rank = d->rank};
    memcpy(s.dim, d->dim, sizeof s.dim);
    return s;
}

sw_status sw__source_grid(const sw__op_desc *d, sw_op_grid *out)
{
    const sw__custom *const c = d->attr->custom.op;
    const sw__custom_kernel *const k = sw__custom_kernel_of(c, d->op);
    sw_shape in[SW__SOURCE_MAX_TENSORS], to[SW_OP_MAX_OUT + SW_OP_MAX_IN];
    if (d->n_in > (int)SW_COUNT(in) || d->n_out > (int)SW_COUNT(to))
        return sw__fail(SW_ERR_UNSUPPORTED, "op '%s' has %d tensors", c->name, d->n_in + d->n_out);
    for (int i = 0; i < d->n_in; i++) in[i] = shape_of(&d->in[i]);
    for (int i = 0; i < d->n_out; i++) to[i] = shape_of(&d->out[i]);
    memset(out, 0, sizeof *out);
    out->items = sw__dims_product(d->out[0].dim, d->out[0].rank);
    if (k->grid != NULL) k->grid(in, to, out);
    if (out->items < 0 || out->n_numbers < 0 || out->n_numbers > SW_OP_MAX_NUMBERS)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': the grid of its %s has %lld work-items and %d numbers: at least "
                        "0, and 0 to %d, are possible", c->name, d->op == SW_OP_CUSTOM ? "forward" : "backward",
                        (long long)out->items, out->n_numbers, SW_OP_MAX_NUMBERS);
    return SW_OK;
}

int sw__source_op_args(const sw__op_desc *d, const sw_op_grid *grid, void *const *ptr, sw_host_arg *arg)
{
    int n = 0;
    for (int i = 0; i < d->n_in + d->n_out; i++) arg[n++].data = ptr[i];
    for (int i = 0; i < grid->n_numbers; i++) arg[n++].i64 = grid->number[i];
    arg[n++].i64 = grid->items;
    return n;
}

void sw__source_launch_args(const sw__source_launch *l, void *(*address)(const sw__bind *), sw_host_arg *arg)
{
    for (int i = 0; i < l->n_args; i++) {
        const sw__source_arg *const a = &l->arg[i];
        switch ((sw_arg_kind)a->kind) {
        case SW_ARG_BUFFER: arg[i].data = address(&a->bind); break;
        case SW_ARG_I32: arg[i].i32 = a->i32; break;
        case SW_ARG_I64: arg[i].i64 = a->i64; break;
        case SW_ARG_F32: arg[i].f32 = a->f32; break;
        }
    }
}

int64_t sw__source_items(const sw__source_launch *l)
{
    int64_t n = 1;
    for (int d = 0; d < 3; d++) n *= (int64_t)l->groups[d] * l->local[d];
    return n;
}

sw_status sw__source_missing(const char *device, const sw_kernel_source *s, const char *fields)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "kernel '%s' has nothing that device %s can run: fill %s", s->name, device,
                    fields);
}
