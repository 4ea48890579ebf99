/* ref_custom.c: a user's kernels on the reference backend: their host functions, on one thread. Those take floats,
 * so what is kept in double is rounded to f32 before the call and widened after it: the oracle is as exact as the
 * user's function. Called by ref.c. */
#include "backend/ref/ref.h"
#include "backend/source.h"

/* ---- ops --------------------------------------------------------------------------------------------------------- */

static size_t narrow_bytes(const sw__desc *d)
{
    return sw__ref_is_float(d) ? ((size_t)sw__ref_count(d) * sizeof(float) + 63) & ~(size_t)63 : 0;
}

sw_status sw__ref_custom_check(const sw__op_desc *d)
{
    const sw_kernel_source *const s = &sw__custom_kernel_of(d->attr->custom.op, d->op)->source;
    sw_op_grid grid;
    if (s->host == NULL) return sw__source_missing("ref", s, d->op == SW_OP_CUSTOM ? "forward.host" : "backward.host");
    return sw__source_grid(d, &grid);
}

size_t sw__ref_custom_workspace(const sw__op_desc *d)
{
    size_t bytes = 0;
    for (int i = 0; i < d->n_in; i++) bytes += narrow_bytes(&d->in[i]);
    for (int i = 0; i < d->n_out; i++) bytes += narrow_bytes(&d->out[i]);
    return bytes;
}

sw_status sw__ref_custom(const sw__ref_call *c)
{
    const sw__op_desc *const d = c->d;
    const sw_kernel_source *const s = &sw__custom_kernel_of(c->attr->custom.op, d->op)->source;
    sw_op_grid grid;
    SW_TRY(sw__source_grid(d, &grid));
    void *ptr[SW__SOURCE_MAX_TENSORS];
    sw_host_arg arg[SW__SOURCE_MAX_ARGS];
    char *work = c->work;
    for (int i = 0; i < d->n_in + d->n_out; i++) {
        const sw__desc *const t = i < d->n_in ? &d->in[i] : &d->out[i - d->n_in];
        union { const void *in; void *out; } at = {.in = i < d->n_in ? c->in[i] : c->out[i - d->n_in]};
        const size_t n = (size_t)sw__ref_count(t);
        ptr[i] = sw__ref_is_float(t) && n > 0 ? work : at.out;
        if (i < d->n_in && sw__ref_is_float(t) && n > 0) sw__convert(work, SW_F32, at.in, SW_F64, n);
        work += narrow_bytes(t);
    }
    const int n_args = sw__source_op_args(d, &grid, ptr, arg);
    if (grid.items > 0) s->host(&(sw_host_call){.arg = arg, .n_args = n_args, .begin = 0, .end = grid.items});
    for (int i = 0; i < d->n_out; i++)
        if (sw__ref_is_float(&d->out[i]) && sw__ref_count(&d->out[i]) > 0)
            sw__convert(c->out[i], SW_F64, ptr[d->n_in + i], SW_F32, (size_t)sw__ref_count(&d->out[i]));
    return SW_OK;
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

sw_status sw__ref_source_build(void *dev, const sw_kernel_source *s, void **built)
{
    (void)dev;
    if (s->host == NULL) return sw__source_missing("ref", s, "host");
    sw_host_function **const f = sw__malloc(sizeof *f);
    if (f == NULL) return sw__no_memory(sizeof *f, "a kernel");
    *f = s->host;
    *built = f;
    return SW_OK;
}

void sw__ref_source_free(void *dev, void *built)
{
    (void)dev;
    sw__free(built);
}

static void *address(const sw__bind *b)
{
    return (char *)b->buffer + b->offset;
}

sw_status sw__ref_source_launch(void *dev, void *built, const sw__source_launch *l)
{
    (void)dev;
    sw_host_arg arg[SW_LAUNCH_MAX_ARGS];
    sw__source_launch_args(l, address, arg);
    const sw_host_call call = {.arg = arg, .n_args = l->n_args, .begin = 0, .end = sw__source_items(l)};
    (*(sw_host_function **)built)(&call);
    return SW_OK;
}
