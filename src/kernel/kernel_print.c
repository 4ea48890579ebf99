/* kernel_print.c: the text form of a kernel, as docs/kernel-ir.md describes it; for dumps, golden tests and messages.
 * Beside kernel.c; reads only. */
#include "kernel/kir.h"
#include <inttypes.h>

static const char *const skeleton_name[] = {"pointwise", "row", "column", "full"};

/* " 12 + 784*d0 + d1", without a leading blank; "0" if there is nothing. */
static void print_affine(const sw__kernel *k, const sw__inst *i, sw__text *out)
{
    bool first = true;
    if (i->offset != 0) {
        sw__text_add(out, "%" PRId64, i->offset);
        first = false;
    }
    for (int x = 0; x < k->rank; x++) {
        if (i->stride[x] == 0) continue;
        sw__text_add(out, "%s", first ? "" : " + ");
        if (i->stride[x] != 1) sw__text_add(out, "%" PRId64 "*", i->stride[x]);
        sw__text_add(out, "d%d", x);
        first = false;
    }
    if (first) sw__text_add(out, "0");
}

static void print_mask(const sw__kernel *k, const sw__inst *i, sw__text *out)
{
    if (!i->masked) return;
    const char *sep = " if ";
    for (int x = 0; x < k->rank; x++) {
        if (i->lo[x] <= 0 && i->hi[x] >= k->extent[x]) continue;
        sw__text_add(out, "%s%" PRId64 " <= d%d < %" PRId64, sep, i->lo[x], x, i->hi[x]);
        sep = ", ";
    }
    sw__text_add(out, " else %.9g", i->value);
}

static void print_args(const sw__inst *i, sw__text *out)
{
    const int32_t arg[3] = {i->a, i->b, i->c};
    for (int j = 0; j < 3 && arg[j] >= 0; j++) sw__text_add(out, "%s%%%d", j ? ", " : " ", (int)arg[j]);
}

static void print_value(const sw__kernel *k, const sw__inst *i, sw__text *out)
{
    switch (i->kop) {
    case SW_K_LOAD:
        sw__text_add(out, "load b%d[", (int)i->buffer);
        print_affine(k, i, out);
        sw__text_add(out, "]");
        print_mask(k, i, out);
        break;
    case SW_K_GATHER:
        sw__text_add(out, "gather b%d[", (int)i->buffer);
        print_affine(k, i, out);
        sw__text_add(out, " + %" PRId64 "*%%%d < %" PRId64 "]", i->stride_x, (int)i->a, i->extent_x);
        print_mask(k, i, out);
        break;
    case SW_K_CONST:
        if (sw__dtype_is_float((sw_dtype)i->dtype)) sw__text_add(out, "const %.9g", i->value);
        else sw__text_add(out, "const %" PRId64, i->ivalue);
        break;
    case SW_K_INDEX:
        sw__text_add(out, "index ");
        print_affine(k, i, out);
        break;
    case SW_K_RANDOM:
        sw__text_add(out, "random");
        print_args(i, out);
        sw__text_add(out, " seed=%" PRIu64 " stream=%" PRIu32, (uint64_t)i->ivalue, i->stream);
        break;
    default:
        sw__text_add(out, "%s", sw__op_table[i->op].name);
        print_args(i, out);
        if (i->narrow) sw__text_add(out, " to %s", sw_dtype_name((sw_dtype)i->narrow));
    }
}

void sw__kernel_print(const sw__kernel *k, sw__text *out)
{
    sw__text_add(out, "kernel %s: %s, %d phase%s, domain [", k->name[0] ? k->name : "?", skeleton_name[k->skeleton & 3],
                 (int)k->phases, k->phases == 1 ? "" : "s");
    for (int x = 0; x < k->rank; x++)
        sw__text_add(out, "%s%s%" PRId64, x ? ", " : "", k->reduced >> x & 1u ? "*" : "", k->extent[x]);
    sw__text_add(out, "]\n");
    for (int b = 0; b < k->n_buffers; b++) {
        const sw__kbuffer *f = &k->buffer[b];
        sw__text_add(out, "  b%d: %s%s%s\n", b, sw_dtype_name((sw_dtype)f->dtype), f->read ? " read" : "",
                     f->written ? " written" : "");
    }
    for (int32_t j = 0; j < k->n_insts; j++) {
        const sw__inst *i = &k->inst[j];
        sw__text_add(out, "  %d%c ", (int)i->phase, i->full ? 'f' : 'r');
        if (i->kop == SW_K_STORE) {
            sw__text_add(out, "store b%d[", (int)i->buffer);
            print_affine(k, i, out);
            sw__text_add(out, "] = %%%d\n", (int)i->a);
            continue;
        }
        sw__text_add(out, "%%%d = %s ", (int)j, sw_dtype_name((sw_dtype)i->dtype));
        print_value(k, i, out);
        sw__text_add(out, "\n");
    }
}
