/* test_kernel.c: the kernel IR: levels, phases and skeletons (golden text), what is refused, collapsing, equality,
 * cost. */
#include "kernel/kir.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

static sw__kernel *new_kernel(int rank, const int64_t *extent, uint32_t reduced, int buffers)
{
    sw__kernel *k = sw__calloc(1, sizeof *k);
    k->inst = sw__calloc(32, sizeof *k->inst);
    k->rank = rank;
    for (int i = 0; i < rank; i++) k->extent[i] = extent[i];
    k->reduced = reduced;
    k->n_buffers = buffers;
    memcpy(k->name, "k", 2);
    return k;
}

static sw__inst *add(sw__kernel *k, sw__kop kop, int a, int b)
{
    sw__inst *i = &k->inst[k->n_insts++];
    i->kop = (uint8_t)kop;
    i->a = a;
    i->b = b;
    i->c = -1;
    return i;
}

static int access(sw__kernel *k, sw__kop kop, int a, int buffer, int64_t s0, int64_t s1, int64_t s2)
{
    sw__inst *i = add(k, kop, a, -1);
    i->buffer = buffer;
    i->stride[0] = s0;
    i->stride[1] = s1;
    i->stride[2] = s2;
    return k->n_insts - 1;
}

static int load(sw__kernel *k, int b, int64_t s0, int64_t s1, int64_t s2)
{
    return access(k, SW_K_LOAD, -1, b, s0, s1, s2);
}

static int store(sw__kernel *k, int a, int b, int64_t s0, int64_t s1, int64_t s2)
{
    return access(k, SW_K_STORE, a, b, s0, s1, s2);
}

static int calc(sw__kernel *k, sw__op op, int a, int b)
{
    add(k, SW_K_CALC, a, b)->op = (uint16_t)op;
    return k->n_insts - 1;
}

static int reduce(sw__kernel *k, sw__op op, int a)
{
    add(k, SW_K_REDUCE, a, -1)->op = (uint16_t)op;
    return k->n_insts - 1;
}

static void expect(sw__kernel *k, const char *want)
{
    sw__text t = {0};
    sw__kernel_collapse(k);
    assert_int_equal(sw__kernel_analyse(k), SW_OK);
    sw__kernel_print(k, &t);
    assert_string_equal(t.s, want);
    sw__text_free(&t);
    sw__kernel_free(k);
}

/* ---- the four skeletons ------------------------------------------------------------------------------------------ */

static void test_pointwise(void **state)
{
    (void)state;
    sw__kernel *k = new_kernel(3, (int64_t[]){2, 3, 4}, 0, 2);
    const int x = load(k, 0, 12, 4, 1);
    add(k, SW_K_CONST, -1, -1)->value = 0.5;
    store(k, calc(k, SW_OP_MUL, x, 1), 1, 12, 4, 1);
    expect(k, "kernel k: pointwise, 1 phase, domain [24]\n"
              "  b0: f32 read\n"
              "  b1: f32 written\n"
              "  0r %0 = f32 load b0[d0]\n"
              "  0r %1 = f32 const 0.5\n"
              "  0r %2 = f32 mul %0, %1\n"
              "  0r store b1[d0] = %2\n");
}

static sw__kernel *softmax(int64_t rows, int64_t columns)
{
    sw__kernel *k = new_kernel(2, (int64_t[]){rows, columns}, 2, 2);
    const int x = load(k, 0, columns, 1, 0);
    const int top = reduce(k, SW_OP_REDUCE_MAX, x);
    const int e = calc(k, SW_OP_EXP, calc(k, SW_OP_SUB, x, top), -1);
    const int sum = reduce(k, SW_OP_REDUCE_SUM, e);
    store(k, calc(k, SW_OP_DIV, e, sum), 1, columns, 1, 0);
    return k;
}

static void test_row(void **state)
{
    (void)state;
    expect(softmax(64, 10), "kernel k: row, 3 phases, domain [64, *10]\n"
                            "  b0: f32 read\n"
                            "  b1: f32 written\n"
                            "  0f %0 = f32 load b0[10*d0 + d1]\n"
                            "  0r %1 = f32 reduce_max %0\n"
                            "  1f %2 = f32 sub %0, %1\n"
                            "  1f %3 = f32 exp %2\n"
                            "  1r %4 = f32 reduce_sum %3\n"
                            "  2f %5 = f32 div %3, %4\n"
                            "  2f store b1[10*d0 + d1] = %5\n");
    expect(softmax(1, 3), "kernel k: row, 3 phases, domain [*3]\n" /* one row, several phases: not "full" */
                          "  b0: f32 read\n"
                          "  b1: f32 written\n"
                          "  0f %0 = f32 load b0[d0]\n"
                          "  0r %1 = f32 reduce_max %0\n"
                          "  1f %2 = f32 sub %0, %1\n"
                          "  1f %3 = f32 exp %2\n"
                          "  1r %4 = f32 reduce_sum %3\n"
                          "  2f %5 = f32 div %3, %4\n"
                          "  2f store b1[d0] = %5\n");
}

static void test_column(void **state)
{
    (void)state;
    sw__kernel *k = new_kernel(3, (int64_t[]){8, 5, 16}, 3, 2); /* two reduced axes become one */
    const int x = load(k, 0, 80, 16, 1);
    store(k, calc(k, SW_OP_NEG, reduce(k, SW_OP_REDUCE_SUM, x), -1), 1, 0, 0, 1);
    expect(k, "kernel k: column, 2 phases, domain [*40, 16]\n"
              "  b0: f32 read\n"
              "  b1: f32 written\n"
              "  0f %0 = f32 load b0[16*d0 + d1]\n"
              "  0r %1 = f32 reduce_sum %0\n"
              "  1r %2 = f32 neg %1\n"
              "  1r store b1[d1] = %2\n");
}

static void test_full(void **state)
{
    (void)state;
    sw__kernel *k = new_kernel(2, (int64_t[]){8, 5}, 3, 3);
    const int x = load(k, 0, 5, 1, 0), y = calc(k, SW_OP_MUL, x, x);
    const int sum = reduce(k, SW_OP_REDUCE_SUM, y);
    store(k, y, 1, 5, 1, 0);
    store(k, sum, 2, 0, 0, 0);
    expect(k, "kernel k: full, 2 phases, domain [*40]\n"
              "  b0: f32 read\n"
              "  b1: f32 written\n"
              "  b2: f32 written\n"
              "  0f %0 = f32 load b0[d0]\n"
              "  0f %1 = f32 mul %0, %0\n"
              "  0r %2 = f32 reduce_sum %1\n"
              "  0f store b1[d0] = %1\n"
              "  1r store b2[0] = %2\n");
}

/* ---- accesses of all kinds --------------------------------------------------------------------------------------- */

static void test_accesses(void **state)
{
    (void)state;
    sw__kernel *k = new_kernel(2, (int64_t[]){4, 6}, 0, 4);
    sw__inst *i = add(k, SW_K_LOAD, -1, -1); /* a padded, permuted load */
    i->offset = -1;
    i->stride[0] = 1;
    i->stride[1] = 4;
    i->masked = 1;
    i->value = 2;
    i->lo[0] = 1;
    i->hi[0] = 4;
    i->hi[1] = 6;
    load(k, 1, 6, 1, 0);
    k->inst[1].dtype = SW_I64;
    k->buffer[1].dtype = SW_I64;
    i = add(k, SW_K_GATHER, 1, -1);
    i->buffer = 2;
    i->stride[1] = 1;
    i->stride_x = 6;
    i->extent_x = 9;
    i = add(k, SW_K_INDEX, -1, -1);
    i->dtype = SW_I64;
    i->stride[0] = 6;
    i->stride[1] = 1;
    i = add(k, SW_K_RANDOM, 3, -1);
    i->dtype = SW_U32;
    i->ivalue = 7;
    i->stream = 3;
    i = add(k, SW_K_CALC, 4, -1);
    i->op = SW_OP_CAST;
    const int a = calc(k, SW_OP_ADD, 0, 2);
    store(k, calc(k, SW_OP_MUL, a, 5), 3, 6, 1, 0);
    expect(k, "kernel k: pointwise, 1 phase, domain [4, 6]\n"
              "  b0: f32 read\n"
              "  b1: i64 read\n"
              "  b2: f32 read\n"
              "  b3: f32 written\n"
              "  0r %0 = f32 load b0[-1 + d0 + 4*d1] if 1 <= d0 < 4 else 2\n"
              "  0r %1 = i64 load b1[6*d0 + d1]\n"
              "  0r %2 = f32 gather b2[d1 + 6*%1 < 9]\n"
              "  0r %3 = i64 index 6*d0 + d1\n"
              "  0r %4 = u32 random %3 seed=7 stream=3\n"
              "  0r %5 = f32 cast %4\n"
              "  0r %6 = f32 add %0, %2\n"
              "  0r %7 = f32 mul %6, %5\n"
              "  0r store b3[6*d0 + d1] = %7\n");
}

/* ---- collapsing -------------------------------------------------------------------------------------------------- */

static void test_collapse(void **state)
{
    (void)state;
    /* a mask on the slower axis merges with the axis behind it, one on the faster axis forbids it */
    for (int axis = 0; axis < 2; axis++) {
        sw__kernel *k = new_kernel(3, (int64_t[]){4, 6, 1}, 0, 2);
        load(k, 0, 6, 1, 9);
        k->inst[0].masked = 1;
        for (int x = 0; x < 3; x++) k->inst[0].hi[x] = k->extent[x];
        k->inst[0].lo[axis] = 2;
        store(k, 0, 1, 6, 1, 9);
        sw__kernel_collapse(k);
        assert_int_equal(k->rank, axis == 0 ? 1 : 2);
        assert_int_equal(k->extent[0], axis == 0 ? 24 : 4);
        assert_int_equal(k->inst[0].lo[axis], axis == 0 ? 12 : 2);
        sw__kernel_free(k);
    }
    /* an axis of size 1 whose point is masked out stays; the last axis stays; a reduced one stays if it is the only one
     * */
    sw__kernel *k = new_kernel(2, (int64_t[]){1, 1}, 1, 2);
    store(k, reduce(k, SW_OP_REDUCE_SUM, load(k, 0, 0, 0, 0)), 1, 0, 0, 0);
    sw__kernel_collapse(k);
    assert_int_equal(k->rank, 1);
    assert_int_equal(k->reduced, 1);
    assert_int_equal(sw__kernel_analyse(k), SW_OK);
    sw__kernel_free(k);
    /* kept and reduced axes never merge */
    k = new_kernel(2, (int64_t[]){3, 4}, 2, 2);
    store(k, reduce(k, SW_OP_REDUCE_SUM, load(k, 0, 4, 1, 0)), 1, 1, 0, 0);
    sw__kernel_collapse(k);
    assert_int_equal(k->rank, 2);
    sw__kernel_free(k);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void refuse(sw__kernel *k, const char *why)
{
    assert_int_equal(sw__kernel_analyse(k), SW_ERR_UNSUPPORTED);
    if (!strstr(sw_error(), why)) fail_msg("'%s' does not say '%s'", sw_error(), why);
    sw__kernel_free(k);
}

static void test_refused(void **state)
{
    (void)state;
    sw__kernel *k = new_kernel(2, (int64_t[]){3, 4}, 1, 2); /* a column kernel that goes back to its columns */
    const int x = load(k, 0, 4, 1, 0);
    store(k, calc(k, SW_OP_SUB, x, reduce(k, SW_OP_REDUCE_SUM, x)), 1, 4, 1, 0);
    refuse(k, "once");
    k = new_kernel(3, (int64_t[]){3, 4, 5}, 5, 2); /* reduced axes first and last */
    store(k, reduce(k, SW_OP_REDUCE_SUM, load(k, 0, 20, 5, 1)), 1, 0, 1, 0);
    refuse(k, "reduced axes");
    k = new_kernel(2, (int64_t[]){3, 4}, 2, 2); /* a value of every point into one place a row */
    const int y = load(k, 0, 4, 1, 0);
    reduce(k, SW_OP_REDUCE_SUM, y);
    store(k, y, 1, 1, 0, 0);
    refuse(k, "one place");
    k = new_kernel(2, (int64_t[]){3, 4}, 2, 2); /* a sum of a sum */
    store(k, reduce(k, SW_OP_REDUCE_SUM, reduce(k, SW_OP_REDUCE_SUM, load(k, 0, 4, 1, 0))), 1, 1, 0, 0);
    refuse(k, "reduction of a reduction");
    k = new_kernel(1, (int64_t[]){3}, 0, 1);
    calc(k, SW_OP_NEG, 0, -1); /* its own operand */
    refuse(k, "before its use");
    k = new_kernel(1, (int64_t[]){3}, 0, 1);
    load(k, 1, 1, 0, 0);
    refuse(k, "no such buffer");
    k = new_kernel(1, (int64_t[]){3}, 0, 1);
    load(k, 0, 1, 0, 0);
    k->inst[0].dtype = SW_F16;
    refuse(k, "f16");
    k = new_kernel(1, (int64_t[]){3}, 0, 1);
    load(k, 0, 1, 0, 0);
    calc(k, SW_OP_CONV, 0, -1);
    refuse(k, "cannot stand");
}

/* ---- equality, copies, cost -------------------------------------------------------------------------------------- */

static void test_equal(void **state)
{
    (void)state;
    sw__kernel *a = softmax(64, 10), *b = softmax(64, 10), *c = softmax(64, 11), *d = NULL;
    memcpy(b->name, "other", 6);
    b->inst[1].value = 3; /* means nothing for a reduction */
    assert_int_equal(sw__kernel_analyse(a), SW_OK);
    assert_int_equal(sw__kernel_analyse(b), SW_OK);
    assert_int_equal(sw__kernel_analyse(c), SW_OK);
    assert_true(sw__kernel_equal(a, b));
    assert_true(a->hash == b->hash);
    assert_false(sw__kernel_equal(a, c));
    assert_true(a->hash != c->hash);
    assert_int_equal(sw__kernel_clone(a, &d), SW_OK);
    assert_true(sw__kernel_equal(a, d));
    d->inst[2].op = SW_OP_ADD;
    assert_false(sw__kernel_equal(a, d));
    sw__kernel_free(a);
    sw__kernel_free(b);
    sw__kernel_free(c);
    sw__kernel_free(d);
    sw__kernel_free(NULL);
}

static void test_cost(void **state)
{
    double bytes, flops;
    (void)state;
    sw__kernel *k = softmax(64, 10);
    assert_int_equal(sw__kernel_analyse(k), SW_OK);
    sw__kernel_cost(k, &bytes, &flops);
    assert_true(bytes == 2 * 64 * 10 * 4);
    assert_true(flops == 5 * 64 * 10); /* max, sub, exp, sum, div */
    sw__kernel_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise), cmocka_unit_test(test_row),      cmocka_unit_test(test_column),
        cmocka_unit_test(test_full),      cmocka_unit_test(test_accesses), cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_equal),    cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
