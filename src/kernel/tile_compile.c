/* tile_compile.c: from a kernel to a tile program, in four steps (tile_build.h); printing and freeing programs.
 * Called by backend/cpu when a program is built; tile_run.c runs the result. */
#include "kernel/tile_build.h"

#define TABLES(level)                                                                                                  \
    extern const sw__tile_table sw__tile_table_##level;                                                                \
    extern const sw__move_table sw__move_table_##level;                                                                \
    extern const sw__reduce_table sw__reduce_table_##level;
TABLES(base)
#if defined(__x86_64__)
TABLES(avx2)
TABLES(avx512)
#endif

sw__simd_tables sw__tile_tables(sw__simd level)
{
#if defined(__x86_64__)
    if (level == SW_SIMD_AVX512)
        return (sw__simd_tables){ &sw__tile_table_avx512, &sw__move_table_avx512, &sw__reduce_table_avx512 };
    if (level == SW_SIMD_AVX2)
        return (sw__simd_tables){ &sw__tile_table_avx2, &sw__move_table_avx2, &sw__reduce_table_avx2 };
#endif
    (void)level;
    return (sw__simd_tables){ &sw__tile_table_base, &sw__move_table_base, &sw__reduce_table_base };
}

void sw__tile_convert(sw__simd level, void *to, sw_dtype to_type, const void *from, sw_dtype from_type, size_t n)
{
    const sw__move_table *const move = sw__tile_tables(level).move;
    (to_type == SW_F32 ? move->load[from_type] : move->store[to_type])(to, from, 1, n, (int64_t)n, 1);
}

static sw_status write_code(sw__tile_program *p)
{
    sw__builder *const b = sw__calloc(1, sizeof *b);
    if (!b) return sw__no_memory(sizeof *b, "building a tile program");
    b->p = p;
    b->k = p->kernel;
    b->table = sw__tile_tables(p->simd);
    sw_status st = sw__tile_values(b);
    if (st == SW_OK) st = sw__tile_code(b);
    sw__free(b);
    return st;
}

/* ---- a condition for all points -------------------------------------------------------------------------------------- */

/* The load of a bool, the same for all points, that a where hangs on; -1: there is none. A trainer's "all gradients are
 * finite" is such a one: without it, its kernels would compute, select and copy. */
static int32_t find_condition(const sw__kernel *k)
{
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *const i = &k->inst[j];
        if (i->kop != SW_K_CALC || i->op != SW_OP_WHERE) continue;
        const sw__inst *const c = &k->inst[i->a];
        bool same = c->kop == SW_K_LOAD && !c->masked && k->buffer[c->buffer].dtype == SW_BOOL;
        for (int x = 0; x < k->rank; x++) same = same && (c->stride[x] == 0 || k->extent[x] == 1);
        if (same) return i->a;
    }
    return -1;
}

/* Users of a where on the condition take the side that `value` chooses. */
static void assume(sw__kernel *k, int32_t condition, bool value)
{
    for (int32_t j = 0; j < k->n_insts; j++) {
        int32_t *const arg[3] = { &k->inst[j].a, &k->inst[j].b, &k->inst[j].c };
        for (int m = 0; m < 3; m++) {
            if (*arg[m] < 0 || *arg[m] >= j) continue;
            const sw__inst *const i = &k->inst[*arg[m]];
            if (i->kop == SW_K_CALC && i->op == SW_OP_WHERE && i->a == condition) *arg[m] = value ? i->b : i->c;
        }
    }
}

static sw_status compile_plain(const sw__kernel *k, int threads, sw__tile_program **out)
{
    sw_status st;
    sw__tile_program *const p = sw__calloc(1, sizeof *p);
    if (!p) return sw__no_memory(sizeof *p, "a tile program");
    memcpy(p->name, k->name, sizeof p->name);
    p->name[sizeof p->name - 1] = '\0';
    p->simd = sw__simd_level();
    p->reduce = sw__tile_tables(p->simd).reduce;
    SW_TRY_GOTO(sw__kernel_clone(k, &p->kernel), failed);
    SW_TRY_GOTO(sw__tile_plan(p, SW_MAX(threads, 1)), failed);
    SW_TRY_GOTO(write_code(p), failed);
    SW_TRY_GOTO(sw__tile_slots(p), failed);
    *out = p;
    return SW_OK;
failed:
    sw__tile_free(p);
    return st;
}

static sw_status compile_choice(const sw__kernel *k, int32_t condition, int threads, sw__tile_program **out)
{
    sw_status st = SW_OK;
    sw__tile_program *const p = sw__calloc(1, sizeof *p);
    if (!p) return sw__no_memory(sizeof *p, "a tile program");
    p->choice_buffer = k->inst[condition].buffer;
    p->choice_offset = k->inst[condition].offset;
    for (int value = 0; value < 2 && st == SW_OK; value++) {
        sw__kernel *copy = NULL;
        st = sw__kernel_clone(k, &copy);
        if (st != SW_OK) break;
        assume(copy, condition, value);
        st = compile_plain(copy, threads, &p->choice[value]);
        sw__kernel_free(copy);
    }
    if (st != SW_OK) {
        sw__tile_free(p);
        return st;
    }
    p->workspace_bytes = SW_MAX(p->choice[0]->workspace_bytes, p->choice[1]->workspace_bytes);
    *out = p;
    return SW_OK;
}

sw_status sw__tile_compile(const sw__kernel *k, int threads, sw__tile_program **out, size_t *workspace)
{
    const int32_t condition = find_condition(k);
    if (condition >= 0) SW_TRY(compile_choice(k, condition, threads, out));
    else SW_TRY(compile_plain(k, threads, out));
    *workspace = (*out)->workspace_bytes;
    return SW_OK;
}

void sw__tile_free(sw__tile_program *p)
{
    if (!p) return;
    sw__tile_free(p->choice[0]);
    sw__tile_free(p->choice[1]);
    for (int block = 0; block < SW__BLK_MAX; block++) sw__free(p->block[block].inst);
    sw__free(p->slot);
    sw__free(p->reduction);
    sw__free(p->constants);
    sw__arena_free(&p->arena);
    sw__kernel_free(p->kernel);
    sw__free(p);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_slot(const sw__tile_program *p, uint16_t s, sw__text *out)
{
    static const char area[SW__AREAS] = { 'm', 'k', 'u', 'r', 't' }; /* memory, constant, uniform, row, tile */
    const sw__slot *const x = &p->slot[s];
    if (s == 0) return;
    sw__text_add(out, " %c%d", area[x->area], (int)s);
    if (x->area == SW__AREA_THREAD) sw__text_add(out, "@%zu", x->offset);
}

static void print_inst(const sw__tile_program *p, const sw__tinst *i, sw__text *out)
{
    static const char *const len[SW__LENS] = { "1", "rows", "tile", "cols" };
    sw__text_add(out, "    %-10s %-4s", i->name, len[i->len]);
    if (i->d != 0) {
        print_slot(p, i->d, out);
        sw__text_add(out, " =");
    }
    print_slot(p, i->a, out);
    print_slot(p, i->b, out);
    print_slot(p, i->c, out);
    print_slot(p, i->e, out);
    for (int m = 0; m < i->n_more; m++) print_slot(p, i->more[m], out);
    if (i->access && i->access->move) sw__text_add(out, " b%d%s", (int)i->access->buffer, i->access->masked ?
                                                   " masked" : "");
    sw__text_add(out, "\n");
}

void sw__tile_print(const sw__tile_program *p, sw__text *out)
{
    if (p->choice[0]) {
        for (int value = 0; value < 2; value++) {
            sw__text_add(out, "if b%d[%lld] is %s:\n", (int)p->choice_buffer, (long long)p->choice_offset,
                         value ? "true" : "false");
            sw__tile_print(p->choice[value], out);
        }
        return;
    }
    static const char *const modes[] = { "point", "rows", "long rows", "split rows", "columns" };
    sw__text_add(out,
                 "tile program %s: %s, %s, %d threads, groups %lld x %lld x %lld, tile %lld x %lld, %lld pieces%s, ",
                 p->name, modes[p->mode], sw__simd_name(p->simd), p->threads, (long long)p->points0, (long long)p->rows,
                 (long long)p->cols, (long long)p->tile_rows, (long long)p->tile_cols, (long long)p->pieces,
                 p->piece_major ? " outside" : "");
    sw__text_add(out, "%lld parts, workspace %zu\n", (long long)p->parts, p->workspace_bytes);
    for (int block = 0; block < SW__BLK_MAX; block++) {
        if (p->block[block].n == 0) continue;
        static const char *const names[] = { "once", "columns", "post" };
        if (block < SW__BLK_PHASE) sw__text_add(out, "  %s:\n", names[block]);
        else sw__text_add(out, "  phase %d, %s:\n", (block - SW__BLK_PHASE) / 2, (block - SW__BLK_PHASE) % 2 ?
                          "tile" : "row");
        for (size_t j = 0; j < p->block[block].n; j++) print_inst(p, &p->block[block].inst[j], out);
    }
}
