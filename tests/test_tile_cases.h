/* test_tile_cases.h: the cases of test_tile.c and test_emit.c, which say what check, check_within, run_program,
 * free_outputs and check_bad_index do. */

/* ---- ops and types ----------------------------------------------------------------------------------------------- */

static const sw_dtype types[] = { SW_F32, SW_F64, SW_I32, SW_I64, SW_U8, SW_BOOL, SW_U32 };

static bool op_takes(int op, sw_dtype t)
{
    const bool whole = !is_float(t);
    switch (op) {
    case SW_OP_EXP: case SW_OP_LOG: case SW_OP_SQRT: case SW_OP_SIN: case SW_OP_COS: case SW_OP_ATAN: case SW_OP_TANH:
    case SW_OP_ERF: case SW_OP_FLOOR: case SW_OP_POW: return !whole;
    case SW_OP_AND: case SW_OP_OR: case SW_OP_XOR: return whole;
    case SW_OP_SHL: case SW_OP_SHR: return whole && t != SW_BOOL;
    case SW_OP_LT: case SW_OP_EQ: return true;
    default: return t != SW_BOOL;
    }
}

static const double specials_f[] = { 0.0, -0.0, 1, -1, 0.5, -0.5, 2, 3, -3, 1e-40, -1e-40, 1e-45, 1e-30, 1e30, -1e30,
                                     88.7, 89.1, -87.4,
                                     -103.5, -110, 3.4e38, -3.4e38, INFINITY, -INFINITY, NAN, 16777216, 16777217,
                                         2147483648.0,
                                     -2147483648.0, 2147483520.0, 4294967296.0, 1e19, -1e19, 255.5, 256, 0.9, 0.94999,
                                         0.95001, 4, 4.1,
                                     100000, 2e6, 1e9, 1e22, 0.7853982, 1.5707964, 3.1415927, 0.625, 0.6249, 9.5,
                                         1.0000001, 0.9999999 };
static const int64_t specials_i[] = { 0, 1, -1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 127, 128, 200, 255, -5, -128,
                                      INT32_MAX, INT32_MIN, UINT32_MAX,
                                      INT64_MAX, INT64_MIN };

/* Every special value against every other, then random ones. */
static int64_t fill_specials(maker *m, int b, bool second)
{
    const unsigned t = m->k.buffer[b].dtype;
    const int64_t n = is_float(t) ? (int64_t)SW_COUNT(specials_f) : (int64_t)SW_COUNT(specials_i);
    for (int64_t e = 0; e < m->elements[b]; e++) {
        const int64_t k = second ? e / n : e % n;
        number x;
        if (e >= n * n) {
            if (is_float(t)) x.f = (sw__rng_uniform(&rng) - 0.5) * (e % 3 == 0 ? 200 : 8);
            else x.i = e % 2 ? pick(-300, 300) : (int64_t)sw__rng_u32(&rng);
        } else if (is_float(t)) x.f = specials_f[k];
        else x.i = specials_i[k];
        if (t == SW_BOOL) x.i = x.i & 1;
        write_number(m->data[b], t, e, x);
    }
    return n * n;
}

static double op_tolerance(int op, sw_dtype t)
{
    if (t == SW_F64) return 1e-14;
    switch (op) {
    case SW_OP_EXP: case SW_OP_LOG: case SW_OP_SIN: case SW_OP_COS: case SW_OP_ATAN: case SW_OP_TANH: case SW_OP_ERF:
    case SW_OP_POW: return 3e-7;
    default: return 0;
    }
}

/* Form 0: two vectors; 1, 2: the second, the first a scalar. */
static void one_op(int op, sw_dtype t, int form)
{
    maker m;
    const int64_t n = 3200;
    begin(&m, 1, &n, 0);
    const int args = sw__op_table[op].min_in;
    const bool compares = op == SW_OP_LT || op == SW_OP_EQ;
    const int a = load_dense(&m, t, form == 2 ? 0 : ALL);
    const int b = args > 1 ? load_dense(&m, t, form == 1 ? 0 : ALL) : -1;
    const int y = calc(&m, (sw__op)op, compares ? SW_BOOL : t, a, b, -1);
    store_dense(&m, compares ? SW_BOOL : t, ALL, y);
    for (int k = 0; k < args; k++) fill_specials(&m, k, k == 1);
    if (form) write_number(m.data[form == 1 ? 1 : 0], t, 0, is_float(t) ? (number){ .f = 2.5 } : (number){ .i = 1 });
    check(&m, op_tolerance(op, t));
    finish(&m);
}

static void test_ops(void **state)
{
    (void)state;
    for (int op = SW_OP_NEG; op < SW_OP_WHERE; op++) {
        if (op == SW_OP_CAST) continue;
        for (size_t t = 0; t < SW_COUNT(types); t++) {
            for (int form = 0; form < (sw__op_table[op].min_in > 1 ? 3 : 1); form++) {
                if (op_takes(op, types[t])) one_op(op, types[t], form);
            }
        }
    }
}

static void test_casts(void **state)
{
    (void)state;
    for (size_t from = 0; from < SW_COUNT(types); from++) {
        for (size_t to = 0; to < SW_COUNT(types); to++) {
            maker m;
            const int64_t n = 3200;
            begin(&m, 1, &n, 0);
            const int a = load_dense(&m, types[from], ALL);
            store_dense(&m, types[to], ALL, calc(&m, SW_OP_CAST, types[to], a, -1, -1));
            fill_specials(&m, 0, false);
            check(&m, 0);
            finish(&m);
        }
    }
}

/* Rounding to 16 bits inside a kernel: each of the 2^16 values, the ties between them, and their neighbours in f32. */
static void test_narrow(void **state)
{
    (void)state;
    for (int to = SW_F16; to <= SW_BF16; to++) {
        maker m;
        const int64_t n = 4 * 65536;
        begin(&m, 1, &n, 0);
        const int a = load_dense(&m, SW_F32, ALL), x = narrow(&m, (sw_dtype)to, a);
        store_dense(&m, SW_F32, ALL, calc(&m, SW_OP_NEG, SW_F32, x, -1, -1));
        float *const f = m.data[0];
        for (uint32_t e = 0; e < 65536; e++) {
            const uint16_t here = (uint16_t)e;
            uint32_t bits;
            sw__convert(&f[4 * e], SW_F32, &here, (sw_dtype)to, 1);
            memcpy(&bits, &f[4 * e], sizeof bits);
            const bool small = to == SW_F16 && (bits & 0x7FFFFFFFu) < 0x38800000u;
            const uint32_t tie = to == SW_BF16 ? bits + 0x8000u : bits + 0x1000u;
            f[4 * e + 1] = small ? f[4 * e] + (signbit(f[4 * e]) ? -0x1p-25f : 0x1p-25f) : 0;
            if (!small) memcpy(&f[4 * e + 1], &tie, sizeof tie);
            memcpy(&bits, &f[4 * e + 1], sizeof bits);
            bits++;
            memcpy(&f[4 * e + 2], &bits, sizeof bits);
            bits -= 2;
            memcpy(&f[4 * e + 3], &bits, sizeof bits);
        }
        check(&m, 0);
        finish(&m);
    }
}

/* Loads and stores between every type in memory and every type in the kernel. */
static void test_memory_types(void **state)
{
    (void)state;
    for (int from = 0; from < SW_DTYPE_COUNT; from++) {
        for (int to = 0; to < SW_DTYPE_COUNT; to++) {
            maker m;
            const int64_t extent[2] = { 37, 53 };
            begin(&m, 2, extent, 0);
            const int a = load_dense(&m, (sw_dtype)from, ALL);
            const int x = calc(&m, SW_OP_CAST, wide((sw_dtype)to), a, -1, -1);
            store_dense(&m, (sw_dtype)to, ALL, x);
            fill_specials(&m, 0, false);
            check(&m, 0);
            finish(&m);
        }
    }
}

static void test_where(void **state)
{
    (void)state;
    for (size_t t = 0; t < SW_COUNT(types); t++) {
        for (int form = 0; form < 4; form++) {
            maker m;
            const int64_t n = 3001;
            begin(&m, 1, &n, 0);
            const int c = load_dense(&m, SW_BOOL, ALL);
            const int a = load_dense(&m, types[t], form & 1 ? 0 : ALL), b = load_dense(&m, types[t], form & 2 ?
                                                                                       0 : ALL);
            store_dense(&m, types[t], ALL, calc(&m, SW_OP_WHERE, types[t], c, a, b));
            fill_all(&m);
            check(&m, 0);
            finish(&m);
        }
    }
}

/* Chains that are combined: fma in all forms, axpby, where of lt, sum of products. */
static void test_combinations(void **state)
{
    (void)state;
    for (int form = 0; form < 64; form++) {
        maker m;
        const int64_t extent[2] = { 7, 431 };
        begin(&m, 2, extent, 0);
        const int a = load_dense(&m, SW_F32, form & 1 ? 0 : ALL), b = load_dense(&m, SW_F32, form & 2 ? 0 : ALL);
        const int c = load_dense(&m, SW_F32, form & 4 ? 0 : ALL), d = load_dense(&m, SW_F32, ALL);
        const int ab = calc(&m, SW_OP_MUL, SW_F32, a, b, -1);
        const int cd = calc(&m, SW_OP_MUL, SW_F32, d, c, -1);
        const sw__op op = form & 8 ? SW_OP_ADD : SW_OP_SUB;
        const int x = form & 16 ? calc(&m, op, SW_F32, ab, form & 32 ? c : cd, -1) : calc(&m, op, SW_F32, form & 32 ?
                                                                                          d : c, ab, -1);
        const int lt = calc(&m, SW_OP_LT, SW_BOOL, b, a, -1);
        const int y = calc(&m, SW_OP_WHERE, SW_F32, lt, x, d);
        store_dense(&m, SW_F32, ALL, y);
        fill_all(&m);
        check_within(&m, 1e-6, true);
        finish(&m);
    }
}

/* An optimiser's step as it is written in nn: most of its ops are combined; states are updated in place. */
static void test_adam(void **state)
{
    (void)state;
    for (int form = 0; form < 16; form++) { /* bit 2: under a condition, bit 3: that does not hold */
        maker m;
        const int64_t n = form & 1 ? 5000 : 37;
        begin(&m, 1, &n, 0);
        const int p = load_dense(&m, SW_F32, ALL), g = load_dense(&m, SW_F32, ALL), m0 = load_dense(&m, SW_F32, ALL);
        const int v0 = load_dense(&m, SW_F32, ALL), rate = load_dense(&m, SW_F32, 0), spread = load_dense(&m, SW_F32,
                                                                                                          0);
        const int a = constant(&m, SW_F32, 0.9), b = constant(&m, SW_F32, 0.1), eps = constant(&m, SW_F32, 1e-3);
        const int gg = calc(&m, SW_OP_MUL, SW_F32, g, g, -1);
        const int ma = calc(&m, SW_OP_MUL, SW_F32, m0, a, -1), gb = calc(&m, SW_OP_MUL, SW_F32, b, g, -1);
        const int va = calc(&m, SW_OP_MUL, SW_F32, v0, a, -1), ggb = calc(&m, SW_OP_MUL, SW_F32, gg, b, -1);
        const int m1 = calc(&m, SW_OP_ADD, SW_F32, ma, gb, -1);
        const int v1 = form & 2 ? calc(&m, SW_OP_ADD, SW_F32, ggb, va, -1) : calc(&m, SW_OP_ADD, SW_F32, va, ggb, -1);
        const int root = calc(&m, SW_OP_MUL, SW_F32, calc(&m, SW_OP_SQRT, SW_F32, v1, -1, -1), spread, -1);
        const int den = form & 2 ? calc(&m, SW_OP_ADD, SW_F32, eps, root, -1) : calc(&m, SW_OP_ADD, SW_F32, root, eps,
                                                                                     -1);
        const int step = calc(&m, SW_OP_DIV, SW_F32, calc(&m, SW_OP_MUL, SW_F32, m1, rate, -1), den, -1);
        const int p1 = calc(&m, SW_OP_SUB, SW_F32, p, step, -1);
        const int ok = load_dense(&m, SW_BOOL, 0);
        const bool guarded = (form & 4) != 0;
        store_dense(&m, SW_F32, ALL, guarded ? calc(&m, SW_OP_WHERE, SW_F32, ok, m1, m0) : m1);
        store_dense(&m, SW_F32, ALL, guarded ? calc(&m, SW_OP_WHERE, SW_F32, ok, v1, v0) : v1);
        store_dense(&m, SW_F32, ALL, guarded ? calc(&m, SW_OP_WHERE, SW_F32, ok, p1, p) : p1);
        fill_all(&m);
        write_number(m.data[6], SW_BOOL, 0, (number){ .i = form & 8 ? 0 : 1 });
        for (int64_t e = 0; e < n; e++) write_number(m.data[3], SW_F32, e, (number){ .f = (double)pick(0, 16) / 8 });
        write_number(m.data[5], SW_F32, 0, (number){ .f = 1.5 });
        const int taken[3] = { 2, 3, 0 };
        for (int k = 0; k < 3; k++) {
            free(m.data[7 + k]);
            m.data[7 + k] = m.data[taken[k]];
            m.alias[7 + k] = taken[k];
        }
        check_within(&m, 1e-6, true);
        finish(&m);
    }
}

/* ---- movement ---------------------------------------------------------------------------------------------------- */

static void test_transpose(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = { { 5, 7, 3 }, { 2, 33, 65 }, { 64, 6, 28 }, { 3, 600, 2 }, { 40, 70, 50 },
                                         { 1, 100, 1500 } };
    static const int orders[][3] = { { 0, 2, 1 }, { 2, 1, 0 }, { 1, 0, 2 }, { 2, 0, 1 } };
    for (size_t s = 0; s < SW_COUNT(shapes); s++) {
        for (size_t k = 0; k < SW_COUNT(orders); k++) {
            maker m;
            begin(&m, 3, shapes[s], 0);
            int64_t stride[3], n = 1;
            for (int x = 2; x >= 0; x--) {
                stride[orders[k][x]] = n;
                n *= shapes[s][orders[k][x]];
            }
            const int a = add(&m, access_inst(&m, SW_K_LOAD, buffer(&m, SW_F32, n), 0, stride));
            const int b = load_dense(&m, SW_F32, 1u << 2);
            store_dense(&m, SW_F32, ALL, calc(&m, SW_OP_ADD, SW_F32, a, b, -1));
            fill_all(&m);
            check(&m, 0);
            finish(&m);
        }
    }
}

/* A padded image: loads outside give the constant. */
static void test_pad(void **state)
{
    (void)state;
    maker m;
    const int64_t extent[4] = { 3, 2, 32, 30 };
    begin(&m, 4, extent, 0);
    const int64_t stride[4] = { 2 * 28 * 28, 28 * 28, 28, 1 };
    sw__inst i = access_inst(&m, SW_K_LOAD, buffer(&m, SW_F32, 3 * 2 * 28 * 28), -2 * 28 - 1, stride);
    i.masked = 1;
    i.value = -7;
    i.lo[2] = 2;
    i.hi[2] = 30;
    i.lo[3] = 1;
    i.hi[3] = 29;
    const int a = add(&m, i);
    store_dense(&m, SW_F32, ALL, calc(&m, SW_OP_NEG, SW_F32, a, -1, -1));
    fill_all(&m);
    check(&m, 0);
    finish(&m);
}

static int gather_rows(maker *m, sw_dtype index_type, int64_t vocabulary)
{
    const int64_t extent[2] = { 37, 65 };
    begin(m, 2, extent, 0);
    const int index = load_dense(m, index_type, 1u);
    const int64_t stride[2] = { 0, 1 };
    sw__inst i = access_inst(m, SW_K_GATHER, buffer(m, SW_F32, vocabulary * 65), 0, stride);
    i.a = index;
    i.stride_x = 65;
    i.extent_x = vocabulary;
    const int g = add(m, i);
    store_dense(m, SW_F32, ALL, g);
    fill_all(m);
    for (int64_t e = 0; e < 37; e++) write_number(m->data[0], index_type, e, (number){ .i = pick(0, vocabulary - 1) });
    return g;
}

static void test_gather(void **state)
{
    (void)state;
    static const sw_dtype index_types[] = { SW_I32, SW_I64 };
    for (int t = 0; t < 2; t++) {
        maker m;
        gather_rows(&m, index_types[t], 100);
        check(&m, 0);
        write_number(m.data[0], index_types[t], 20, (number){ .i = 100 });
        write_number(m.data[0], index_types[t], 30, (number){ .i = -1 });
        check(&m, 0);
        void *out[SW_K_MAX_BUFFERS];
        assert_int_equal(run_program(&m, 2, out), SW_ERR_DATA);
        check_bad_index();
        free_outputs(&m, out);
        finish(&m);
    }
}

/* out[i][j] = x[index[i][j]][j], and the label's logit of every row. */
static void test_gather_elements(void **state)
{
    (void)state;
    maker m;
    const int64_t extent[2] = { 61, 43 };
    begin(&m, 2, extent, 0);
    const int index = load_dense(&m, SW_I64, ALL);
    const int64_t stride[2] = { 0, 1 };
    sw__inst i = access_inst(&m, SW_K_GATHER, buffer(&m, SW_BF16, 9 * 43), 0, stride);
    i.a = index;
    i.stride_x = 43;
    i.extent_x = 9;
    const int g = add(&m, i);
    store_dense(&m, SW_F32, ALL, g);
    fill_all(&m);
    for (int64_t e = 0; e < 61 * 43; e++) write_number(m.data[0], SW_I64, e, (number){ .i = pick(0, 8) });
    check(&m, 0);
    finish(&m);
}

static void test_index_and_random(void **state)
{
    (void)state;
    maker m;
    const int64_t extent[2] = { 19, 131 };
    begin(&m, 2, extent, 0);
    sw__inst i = { .kop = SW_K_INDEX, .dtype = SW_I64, .a = -1, .b = -1, .c = -1, .offset = 3, .stride = { 131, 1 } };
    const int e = add(&m, i);
    i.dtype = SW_F32;
    i.stride[1] = 0;
    const int row = add(&m, i);
    const int count = load_dense(&m, SW_I64, 0);
    const int r = add(&m, (sw__inst){ .kop = SW_K_RANDOM, .dtype = SW_U32, .a = e, .b = count, .c = -1, .ivalue = 77,
                                      .stream = 5 });
    store_dense(&m, SW_U32, ALL, r);
    store_dense(&m, SW_F32, ALL, row);
    store_dense(&m, SW_I64, ALL, e);
    write_number(m.data[0], SW_I64, 0, (number){ .i = INT64_C(0x123456789) });
    check(&m, 0);
    finish(&m);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

typedef struct reduce_case { int rank; int64_t extent[4]; uint32_t reduced; } reduce_case;
static const reduce_case reduce_cases[] = {
    { 2, { 64, 10 }, 2 },        { 2, { 3, 1000 }, 2 },      { 2, { 5, 9001 }, 2 },       { 2, { 2, 70001 }, 2 },
    { 1, { 77 }, 1 },            { 1, { 5000 }, 1 },         { 1, { 200001 }, 1 },        { 2, { 400, 64 }, 1 },
    { 2, { 3000, 3 }, 1 },       { 2, { 70, 1500 }, 1 },     { 2, { 9000, 16 }, 1 },      { 3, { 4, 49, 32 }, 2 },
    { 3, { 4, 49, 1 }, 2 },      { 3, { 6, 8, 25 }, 5 },     { 3, { 6, 8, 25 }, 6 },      { 4, { 3, 4, 5, 6 }, 9 },
    { 4, { 3, 4, 5, 6 }, 6 },    { 2, { 1, 8 }, 1 },         { 2, { 8, 1 }, 2 },          { 2, { 0, 8 }, 1 },
    { 2, { 8, 0 }, 2 },          { 1, { 0 }, 1 },            { 2, { 20000, 10 }, 1 },     { 2, { 17, 300 }, 2 },
};

static bool accepted(const maker *m)
{
    sw__kernel *copy;
    assert_int_equal(sw__kernel_clone(&m->k, &copy), SW_OK);
    const bool ok = sw__kernel_analyse(copy) == SW_OK;
    sw__kernel_free(copy);
    return ok;
}

static void one_reduction(const reduce_case *c, sw__op op, sw_dtype t)
{
    maker m;
    begin(&m, c->rank, c->extent, c->reduced);
    const int x = load_dense(&m, t, ALL);
    const int y = load_dense(&m, t, ALL & ~c->reduced);
    const int s = reduce(&m, op, x);
    store_dense(&m, t, ALL & ~c->reduced, s);
    store_dense(&m, t, ALL & ~c->reduced, calc(&m, SW_OP_SUB, t, s, y, -1));
    fill_all(&m);
    for (int64_t e = 0; op == SW_OP_REDUCE_PROD && is_float(t) && e < m.elements[0]; e++)
        write_number(m.data[0], t, e, (number){ .f = pick(0, 1) ? 1 : -1 });
    if (accepted(&m)) check_within(&m, 2e-6, true);
    finish(&m);
}

static void test_reductions(void **state)
{
    (void)state;
    static const sw_dtype t[] = { SW_F32, SW_F64, SW_I32, SW_I64, SW_U8, SW_U32 };
    for (size_t c = 0; c < SW_COUNT(reduce_cases); c++) {
        for (int op = SW_OP_REDUCE_SUM; op <= SW_OP_REDUCE_PROD; op++) {
            for (size_t k = 0; k < SW_COUNT(t); k++) one_reduction(&reduce_cases[c], (sw__op)op, t[k]);
        }
    }
}

static void test_softmax(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 64, 10 }, { 5, 100 }, { 3, 1000 }, { 3, 5000 }, { 2, 70000 }, { 1,
                                        100000 }, { 7, 1 }, { 20, 5000 } };
    for (size_t s = 0; s < SW_COUNT(shapes); s++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            maker m;
            begin(&m, 2, shapes[s], 2);
            const int x = load_dense(&m, SW_F32, ALL);
            const int top = reduce(&m, SW_OP_REDUCE_MAX, x);
            const int e = calc(&m, SW_OP_EXP, SW_F32, calc(&m, SW_OP_SUB, SW_F32, x, top, -1), -1, -1);
            const int sum = reduce(&m, SW_OP_REDUCE_SUM, e);
            store_dense(&m, SW_F32, ALL, calc(&m, SW_OP_DIV, SW_F32, e, sum, -1));
            store_dense(&m, SW_F32, 1, calc(&m, SW_OP_LOG, SW_F32, sum, -1, -1));
            fill_all(&m);
            if (in_place) {
                free(m.data[1]);
                m.data[1] = m.data[0];
                m.alias[1] = 0;
            }
            check_within(&m, 2e-6, true);
            finish(&m);
        }
    }
}

/* Layer norm with weight and bias, the loss of a row with its label, mean of all in one more kernel shape. */
static void test_layer_norm(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 9, 24 }, { 40, 768 }, { 5, 6000 }, { 1, 300 } };
    for (size_t s = 0; s < SW_COUNT(shapes); s++) {
        maker m;
        begin(&m, 2, shapes[s], 2);
        const int x = load_dense(&m, SW_F32, ALL), w = load_dense(&m, SW_F32, 2), bias = load_dense(&m, SW_F32, 2);
        const int n = constant(&m, SW_F32, 1.0 / (double)shapes[s][1]), eps = constant(&m, SW_F32, 1e-5),
            one = constant(&m, SW_F32, 1);
        const int mean = calc(&m, SW_OP_MUL, SW_F32, reduce(&m, SW_OP_REDUCE_SUM, x), n, -1);
        const int d = calc(&m, SW_OP_SUB, SW_F32, x, mean, -1);
        const int var = calc(&m, SW_OP_MUL, SW_F32, reduce(&m, SW_OP_REDUCE_SUM, calc(&m, SW_OP_MUL, SW_F32, d, d,
                                                                                      -1)), n, -1);
        const int rstd = calc(&m, SW_OP_DIV, SW_F32, one, calc(&m, SW_OP_SQRT, SW_F32, calc(&m, SW_OP_ADD, SW_F32,
                                                                                            var, eps, -1), -1, -1), -1);
        const int y = calc(&m, SW_OP_MUL, SW_F32, calc(&m, SW_OP_MUL, SW_F32, d, rstd, -1), w, -1);
        store_dense(&m, SW_F32, ALL, calc(&m, SW_OP_ADD, SW_F32, y, bias, -1));
        store_dense(&m, SW_F32, 1, mean);
        store_dense(&m, SW_F32, 1, rstd);
        fill_all(&m);
        check_within(&m, 2e-6, true);
        finish(&m);
    }
}

/* The three sums of a batch norm's backward over channels-last rows, and what follows from them. */
static void test_column_sums(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1000, 64 }, { 5000, 10 }, { 333, 1030 }, { 70000, 3 }, { 6, 5 }, { 2000,
                                        100 } };
    for (size_t s = 0; s < SW_COUNT(shapes); s++) {
        maker m;
        begin(&m, 2, shapes[s], 1);
        const int x = load_dense(&m, SW_F32, ALL), dy = load_dense(&m, SW_F32, ALL), mean = load_dense(&m, SW_F32, 2);
        const int n = constant(&m, SW_F32, 1.0 / (double)shapes[s][0]);
        const int d = calc(&m, SW_OP_SUB, SW_F32, x, mean, -1);
        const int s1 = reduce(&m, SW_OP_REDUCE_SUM, dy), s2 = reduce(&m, SW_OP_REDUCE_SUM, calc(&m, SW_OP_MUL, SW_F32,
                                                                                                dy, d, -1));
        const int s3 = reduce(&m, SW_OP_REDUCE_MAX, x);
        store_dense(&m, SW_F32, 2, s1);
        store_dense(&m, SW_F32, 2, calc(&m, SW_OP_MUL, SW_F32, s2, n, -1));
        store_dense(&m, SW_F32, 2, calc(&m, SW_OP_ADD, SW_F32, s3, mean, -1));
        fill_all(&m);
        check_within(&m, 2e-6, true);
        finish(&m);
    }
}

/* The error of a sum does not grow with its length, in any of the skeletons. */
static void long_sum(int64_t rows, int64_t cols, uint32_t reduced)
{
    maker m;
    const int64_t extent[2] = { rows, cols };
    begin(&m, 2, extent, reduced);
    store_dense(&m, SW_F32, ALL & ~reduced, reduce(&m, SW_OP_REDUCE_SUM, load_dense(&m, SW_F32, ALL)));
    float *const x = m.data[0];
    for (int64_t e = 0; e < rows * cols; e++) x[e] = (float)sw__rng_uniform(&rng) + 0.1f;
    void *out[2][SW_K_MAX_BUFFERS];
    for (int threads = 1; threads <= 2; threads++) assert_int_equal(run_program(&m, threads, out[threads - 1]), SW_OK);
    const int64_t kept = reduced == 3 ? 1 : reduced == 1 ? cols : rows;
    assert_memory_equal(out[0][1], out[1][1], (size_t)kept * sizeof(float));
    for (int64_t k = 0; k < kept; k++) {
        double want = 0;
        for (int64_t e = 0; e < rows * cols / kept; e++) want += (double)x[reduced == 1 ?
                                                                           e * cols + k : k * (rows * cols / kept) + e];
        const double got = (double)((float *)out[0][1])[k];
        if (fabs(got - want) > 5e-7 * want) fail_msg("sum of %lld: %.9g, not %.9g", (long long)(rows * cols), got,
                                                     want);
    }
    free_outputs(&m, out[0]);
    free_outputs(&m, out[1]);
    finish(&m);
}

static void test_long_sums(void **state)
{
    (void)state;
    long_sum(1, 10000000, 3);
    long_sum(2, 5000000, 2);
    long_sum(32, 300000, 2);
    long_sum(2500000, 4, 1);
    long_sum(40000, 250, 1);
}

/* ---- random kernels ---------------------------------------------------------------------------------------------- */

/* A load of an even mix: dense, permuted, broadcast, padded, masked, of any type; cast to f32 or kept. */
static int random_load(maker *m, uint32_t axes)
{
    static const sw_dtype t[] = { SW_F32, SW_F32, SW_F32, SW_F32, SW_F64, SW_F16, SW_BF16, SW_I32, SW_I64, SW_U8,
                                  SW_U32 };
    const int rank = m->k.rank;
    int order[SW_MAX_RANK] = { 0 };
    int64_t stride[SW_MAX_RANK] = { 0 }, n = 1, offset = 0;
    for (int x = 0; x < rank; x++) order[x] = x;
    if (chance(30)) {
        for (int x = rank - 1; x > 0; x--) {
            const int y = (int)pick(0, x), was = order[x];
            order[x] = order[y];
            order[y] = was;
        }
    }
    const uint32_t used = chance(35) ? axes & (uint32_t)pick(0, 255) : axes;
    const bool masked = chance(20);
    int64_t lo[SW_MAX_RANK], hi[SW_MAX_RANK];
    for (int k = rank - 1; k >= 0; k--) {
        const int x = order[k];
        const int64_t extent = m->k.extent[x];
        lo[x] = 0;
        hi[x] = extent;
        if (!(used >> x & 1u)) continue;
        if (masked && chance(60)) {
            lo[x] = pick(0, extent);
            hi[x] = pick(lo[x], extent);
        }
        stride[x] = n;
        if (chance(10)) stride[x] = n * 2;
        n = stride[x] * (extent > 0 ? extent : 1) + (chance(10) ? pick(0, 3) : 0);
    }
    if (chance(20)) offset = pick(0, 5);
    sw__inst i = access_inst(m, SW_K_LOAD, buffer(m, t[pick(0, (int64_t)SW_COUNT(t) - 1)], n + offset + 1), offset,
                             stride);
    i.masked = masked;
    i.value = (double)pick(0, 9);
    memcpy(i.lo, lo, sizeof lo);
    memcpy(i.hi, hi, sizeof hi);
    const int v = add(m, i);
    return i.dtype == SW_F32 || chance(20) ? v : calc(m, SW_OP_CAST, SW_F32, v, -1, -1);
}

static int random_calc(maker *m, int a, int b)
{
    static const sw__op both[] = { SW_OP_ADD, SW_OP_SUB, SW_OP_MUL, SW_OP_MAX, SW_OP_MIN };
    /* A computed float is not cast to an integer: an ulp could become a whole. */
    if (m->inst[a].dtype != m->inst[b].dtype && is_float(m->inst[b].dtype)) a = calc(m, SW_OP_CAST,
                                                                                     (sw_dtype)m->inst[b].dtype, a,
                                                                                         -1, -1);
    const sw_dtype t = (sw_dtype)m->inst[a].dtype;
    if (m->inst[b].dtype != t) b = calc(m, SW_OP_CAST, t, b, -1, -1);
    if (t == SW_BOOL) return calc(m, SW_OP_AND, t, a, b, -1);
    if (chance(15) && is_float(t)) return calc(m, SW_OP_TANH, t, a, -1, -1);
    if (chance(10)) return calc(m, SW_OP_NEG, t, a, -1, -1);
    if (chance(8) && t == SW_F32 && m->inst[a].kop == SW_K_LOAD) return narrow(m, chance(50) ? SW_F16 : SW_BF16, a);
    return calc(m, both[pick(0, (int64_t)SW_COUNT(both) - 1)], t, a, b, -1);
}

static int random_leaf(maker *m, uint32_t axes)
{
    if (chance(10)) return constant(m, SW_F32, (double)pick(-16, 16) / 8);
    if (chance(10)) {
        sw__inst i = { .kop = SW_K_INDEX, .dtype = SW_F32, .a = -1, .b = -1, .c = -1, .offset = pick(0, 3) };
        for (int x = 0; x < m->k.rank; x++) i.stride[x] = axes >> x & 1u ? pick(0, 2) : 0;
        const int v = add(m, i);
        return calc(m, SW_OP_MUL, SW_F32, v, constant(m, SW_F32, 0.015625), -1);
    }
    if (chance(8)) {
        sw__inst g = { .kop = SW_K_INDEX, .dtype = chance(50) ? SW_I32 : SW_I64, .a = -1, .b = -1, .c = -1 };
        for (int x = 0; x < m->k.rank; x++) g.stride[x] = axes >> x & 1u ? pick(0, 1) : 0;
        const int index = add(m, g);
        int64_t reach = 1;
        for (int x = 0; x < m->k.rank; x++) reach += g.stride[x] * m->k.extent[x];
        int64_t stride[SW_MAX_RANK] = { 0 };
        for (int x = 0; x < m->k.rank; x++) stride[x] = axes >> x & 1u ? pick(0, 1) : 0;
        int64_t n = 4 * reach + 8;
        for (int x = 0; x < m->k.rank; x++) n += stride[x] * m->k.extent[x];
        sw__inst i = access_inst(m, SW_K_GATHER, buffer(m, SW_F32, n), 0, stride);
        i.a = index;
        i.stride_x = pick(1, 4);
        i.extent_x = reach;
        return add(m, i);
    }
    return random_load(m, axes);
}

static void random_kernel(maker *m)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 7, 10, 14, 16, 28, 33, 64, 100, 130 };
    int64_t extent[SW_MAX_RANK], points = 1;
    const int rank = (int)pick(1, 4);
    for (int x = 0; x < rank; x++) {
        extent[x] = sizes[pick(0, (int64_t)SW_COUNT(sizes) - 1)];
        if (chance(10)) extent[x] = pick(500, 9000);
        while (points * extent[x] > 30000) extent[x] = extent[x] / 2 + (extent[x] == 1);
        points *= extent[x];
    }
    const uint32_t all = (1u << rank) - 1;
    const uint32_t trailing = all & ~((1u << pick(0, rank - 1)) - 1);
    const uint32_t reduced = chance(35) ? 0 : chance(60) ? trailing : (uint32_t)pick(1, (int64_t)all);
    begin(m, rank, extent, reduced);
    int value[64] = { 0 }, n = 0;
    const int leaves = (int)pick(1, 5), ops = (int)pick(1, 8);
    for (int k = 0; k < leaves; k++) value[n++] = random_leaf(m, reduced && chance(25) ? all & ~reduced : all);
    for (int k = 0; k < ops; k++) {
        value[n] = random_calc(m, value[pick(0, n - 1)], value[pick(0, n - 1)]);
        n++;
    }
    int row[8] = { 0 }, n_rows = 0;
    for (int k = 0; reduced && k < 2; k++) {
        row[n_rows++] = reduce(m, (sw__op)pick(SW_OP_REDUCE_SUM, SW_OP_REDUCE_MIN), value[pick(0, n - 1)]);
        if (chance(50)) break;
    }
    if (reduced) row[n_rows] = calc(m, SW_OP_NEG, (sw_dtype)m->inst[row[0]].dtype, row[0], -1, -1), n_rows++;
    if (reduced && chance(40)) value[n] = random_calc(m, value[n - 1], row[n_rows - 1]), n++;
    for (int k = 0; k < n_rows; k++) {
        if (chance(60) || k == 0) store_dense(m, (sw_dtype)m->inst[row[k]].dtype, all & ~reduced, row[k]);
    }
    if (!reduced || chance(60)) store_dense(m, chance(80) ? (sw_dtype)m->inst[value[n - 1]].dtype : SW_BF16, all,
                                            value[n - 1]);
    if (!reduced && chance(30)) store_dense(m, (sw_dtype)m->inst[value[0]].dtype, all, value[0]);
    fill_all(m);
}

/* Lets an output take over the memory of a dense input that it has the strides and the type of. */
static void share_memory(maker *m)
{
    for (int j = 0; j < m->k.n_insts; j++) {
        const sw__inst *const s = &m->inst[j];
        if (s->kop != SW_K_STORE || m->alias[s->buffer] >= 0) continue;
        for (int l = 0; l < m->k.n_insts; l++) {
            const sw__inst *const i = &m->inst[l];
            bool taken = i->kop != SW_K_LOAD || i->masked || i->offset != 0;
            for (int b = 0; b < m->k.n_buffers; b++) taken |= m->alias[b] == i->buffer;
            if (taken || memcmp(i->stride, s->stride, sizeof i->stride) != 0) continue;
            const sw_dtype from = (sw_dtype)m->k.buffer[i->buffer].dtype, to = (sw_dtype)m->k.buffer[s->buffer].dtype;
            if (sw_dtype_size(from) != sw_dtype_size(to)) continue;
            free(m->data[s->buffer]);
            m->data[s->buffer] = m->data[i->buffer];
            m->alias[s->buffer] = i->buffer;
            m->elements[s->buffer] = SW_MIN(m->elements[s->buffer], m->elements[i->buffer]);
            break;
        }
    }
}

static void test_random_kernels(void **state)
{
    (void)state;
    const char *const seed = getenv("SWOOP_TILE_SEED"), *const count = getenv("SWOOP_TILE_COUNT");
    const long n = count ? strtol(count, NULL, 10) : 1500, first = seed ? strtol(seed, NULL, 10) : 0;
    long run = 0;
    for (long k = first; k < first + n; k++) {
        maker m;
        sw__rng_init(&rng, 99, (uint64_t)k);
        random_kernel(&m);
        if (accepted(&m)) {
            if (chance(40)) share_memory(&m);
            if (getenv("SWOOP_TILE_SEED")) fprintf(stderr, "kernel %ld\n", k);
            check_within(&m, 5e-6, true);
            run++;
        }
        finish(&m);
    }
    if (run < n / 3) fail_msg("only %ld of %ld random kernels are legal", run, n);
}
