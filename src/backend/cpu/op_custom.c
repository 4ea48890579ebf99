/* op_custom.c: a user's kernels on the CPU: their host functions, called by several threads with a range of work-items
 * each; as ops (CUSTOM, CUSTOM_GRAD) and by hand. Called by cpu.c. */
#include "backend/cpu/cpu.h"
#include "backend/source.h"

#include <stdio.h>

/* Ranges start at multiples of 64 items: of f32 elements, whole cache lines. */
static void run_host(const sw__cpu *cpu, sw_host_function *host, const sw_host_arg *arg, int n_args, int64_t items)
{
    const int64_t blocks = (items + 63) / 64;
    if (items == 0) return;
    const int threads = (int)SW_MIN((int64_t)sw__cpu_threads(cpu, 8.0 * (double)items), blocks);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < threads; i++) {
        const int64_t begin = blocks * i / threads * 64, end = SW_MIN(blocks * (i + 1) / threads * 64, items);
        if (begin < end) host(&(sw_host_call){.arg = arg, .n_args = n_args, .begin = begin, .end = end});
    }
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

static sw_status exec_custom(sw__cpu_plan *p, void *const *ptr)
{
    const sw_op_grid *const grid = p->state;
    sw_host_function *const host = sw__custom_kernel_of(p->attr.custom.op, p->d.op)->source.host;
    sw_host_arg arg[SW__SOURCE_MAX_ARGS];
    const int n = sw__source_op_args(&p->d, grid, ptr, arg);
    run_host(p->cpu, host, arg, n, grid->items);
    return SW_OK;
}

sw_status sw__cpu_custom_plan(sw__cpu_plan *p)
{
    const sw_kernel_source *const s = &sw__custom_kernel_of(p->attr.custom.op, p->d.op)->source;
    if (s->host == NULL)
        return sw__source_missing("cpu", s, p->d.op == SW_OP_CUSTOM ? "forward.host" : "backward.host");
    for (int i = 0; i < p->d.n_in + p->d.n_out; i++)
        if (!sw__desc_row_major(&p->desc[i])) return sw__fail(SW_ERR_UNSUPPORTED, "tensor %d is not dense and row-major", i + 1);
    sw_op_grid *const grid = sw__calloc(1, sizeof *grid);
    if (grid == NULL) return sw__no_memory(sizeof *grid, "a planned op");
    p->state = grid;
    p->exec = exec_custom;
    snprintf(p->note, sizeof p->note, "host:%.60s", s->name);
    return sw__source_grid(&p->d, grid);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

sw_status sw__cpu_source_build(void *dev, const sw_kernel_source *s, void **built)
{
    (void)dev;
    if (s->host == NULL) return sw__source_missing("cpu", s, "host");
    sw_host_function **const f = sw__malloc(sizeof *f);
    if (f == NULL) return sw__no_memory(sizeof *f, "a kernel");
    *f = s->host;
    *built = f;
    return SW_OK;
}

void sw__cpu_source_free(void *dev, void *built)
{
    (void)dev;
    sw__free(built);
}

sw_status sw__cpu_source_launch(void *dev, void *built, const sw__source_launch *l)
{
    sw_host_arg arg[SW_LAUNCH_MAX_ARGS];
    sw__source_launch_args(l, sw__cpu_address, arg);
    run_host(dev, *(sw_host_function **)built, arg, l->n_args, sw__source_items(l));
    return SW_OK;
}
