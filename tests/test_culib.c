/* test_culib.c: what NVIDIA's libraries say without a GPU. The real cuDNN plans every convolution of five networks,
 * forward and both gradients, for GPUs from sm_75 to sm_120; that the choice is exact, repeatable and needs no
 * compiler. And the libraries that are missing, too old, or lack a function: the message says what to install. */
/* needs: CUDA */
/* timeout: 900 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cuda/cu.h"
#include "backend/cuda/dnn.h"
#include "backend/cuda/lt.h"
#include "conv_shapes.h"
#include "fakecuda/gpu_json.h"
#include "fakecuda/gpus.c" /* the table of GPUs: the fakes are not loaded here */

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a convolution as the schedule hands it over ----------------------------------------------------------------- */

typedef struct op {
    sw__gpu_plan p;
} op;

/* Images channels last, weights as the user has them: what the layout pass makes. */
static sw__desc image(sw_dtype type, int64_t n, int64_t c, int64_t h, int64_t w, bool last)
{
    return (sw__desc){ .dtype = (uint8_t)type,
                       .rank = 4,
                       .align = 16,
                       .dim = { n, c, h, w },
                       .stride = { c * h * w, last ? 1 : h * w, last ? w * c : w, last ? c : 1 } };
}

static void describe(op *o, const conv_shape *s, sw__op kind, sw_dtype type, bool bias)
{
    const int64_t q = (s->size + 2 * s->pad - s->dilation * (s->kernel - 1) - 1) / s->stride + 1;
    const sw__desc x = image(type, 8, s->c, s->size, s->size, true), y = image(type, 8, s->k, q, q, true);
    const sw__desc w = image(type, s->k, s->c / s->groups, s->kernel, s->kernel, false);
    memset(o, 0, sizeof *o);
    sw__gpu_plan *const p = &o->p;
    p->attr.conv.nd = 2;
    p->attr.conv.groups = s->groups;
    for (int i = 0; i < 2; i++) {
        p->attr.conv.stride[i] = s->stride;
        p->attr.conv.dilation[i] = s->dilation;
        p->attr.conv.pad_lo[i] = p->attr.conv.pad_hi[i] = s->pad;
    }
    p->d =
        (sw__op_desc){ .op = (uint16_t)kind, .attr = &p->attr, .name = s->net, .n_in = 2, .n_out = 1, .in = p->desc };
    const sw__desc by_role[3][3] = { { x, w, y }, { y, w, x }, { x, y, w } };
    const int role = kind == SW_OP_CONV ? 0 : kind == SW_OP_CONV_GRAD_X ? 1 : 2;
    for (int i = 0; i < 2; i++) p->desc[i] = by_role[role][i];
    if (bias)
        p->desc[p->d.n_in++] =
            (sw__desc){ .dtype = (uint8_t)type, .rank = 1, .align = 16, .dim = { s->k }, .stride = { 1 } };
    p->desc[p->d.n_in] = by_role[role][2];
    p->d.out = &p->desc[p->d.n_in];
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static const int sms[] = { 75, 80, 86, 89, 90, 100, 120 };
static const struct {
    const char *name;
    sw_dtype type;
    bool tf32;
} types[] = {
    { "f32", SW_F32, false },
    { "tf32", SW_F32, true },
    { "bf16", SW_BF16, false },
    { "f16", SW_F16, false },
};
static const struct {
    const char *name;
    sw__op op;
    bool bias;
} uses[] = {
    { "forward", SW_OP_CONV, false },
    { "forward with bias", SW_OP_CONV, true },
    { "data gradient", SW_OP_CONV_GRAD_X, false },
    { "weight gradient", SW_OP_CONV_GRAD_W, false },
};

static const sw__cudnn_api *cudnn(void)
{
    const sw__cudnn_api *api = NULL;
    char path[512];
    int version = 0;
    (void)sw__cu_open_library("libnvrtc.so.%d", 13, 12, &version, path, sizeof path); /* cuDNN would open and close it
                                                                                         again and again */
    if (sw__cudnn_load(&api) == SW_OK) return api;
    print_message("skipped: %s\n", sw_error());
    skip();
    return NULL;
}

static void *gpu(const sw__cudnn_api *api, int sm)
{
    char json[2000];
    void *device = NULL;
    fk_gpu_json(fk_gpu_of(sm), json, sizeof json);
    if (sw__cudnn_device_json(api, json, &device) != SW_OK) fail_msg("sm_%d: %s", sm, sw_error());
    return device;
}

static bool everything(void)
{
    const char *const all = getenv("SWOOP_TEST_ALL");
    return all != NULL && *all == '1';
}

#define HAS(plan, note) ((plan).notes >> SW_CUDNN_NUMERICAL_NOTE_##note & 1u)

/* bf16 came with sm_80: our kernels convert. */
static bool expected(int sm, sw_dtype type)
{
    return sm >= 80 || type != SW_BF16;
}

typedef struct tally {
    int found, none, wrong;
    size_t workspace;
} tally;

static void one(const sw__cudnn_api *api, void *device, int sm, const conv_shape *s, size_t type, size_t use, tally *t)
{
    op o;
    sw__cudnn_problem c;
    sw__cudnn_plan plan = { 0 };
    describe(&o, s, uses[use].op, types[type].type, uses[use].bias);
    assert_int_equal(sw__cudnn_describe(&o.p, types[type].tf32, &c), SW_OK);
    c.most = (int64_t)256 << 20;
    const sw_status st = sw__cudnn_choose(api, device, &c, &plan);
    bool wrong = (st == SW_OK) != expected(sm, types[type].type) || (st != SW_OK && st != SW_ERR_UNSUPPORTED);
    if (st == SW_OK) {
        const bool exact = types[type].type == SW_F32 && !types[type].tf32;
        wrong = wrong || HAS(plan, NONDETERMINISTIC) || (exact && HAS(plan, TENSOR_CORE)) ||
                plan.workspace > (size_t)c.most;
        t->workspace = SW_MAX(t->workspace, plan.workspace);
        api->cudnnBackendDestroyDescriptor(plan.plan);
    }
    *(st == SW_OK ? &t->found : &t->none) += 1;
    if (!wrong) return;
    t->wrong++;
    print_error("sm_%d %s %s, %s: %d -> %d, kernel %d, stride %d, groups %d, image %d: %s\n", sm, types[type].name,
                s->net, uses[use].name, s->c, s->k, s->kernel, s->stride, s->groups, s->size,
                st != SW_OK ? sw_error() : "an engine that should not be chosen");
}

static void networks(void **state)
{
    const sw__cudnn_api *const api = cudnn();
    const size_t step = everything() ? 1 : 41; /* no multiple of the tables' sizes: all rows come up */
    tally all = { 0 };
    size_t turn = 0;
    (void)state;
    if (api == NULL) return;
    for (size_t g = 0; g < SW_COUNT(sms); g++) {
        void *const device = gpu(api, sms[g]);
        tally t = { 0 };
        for (size_t type = 0; type < SW_COUNT(types); type++)
            for (size_t use = 0; use < SW_COUNT(uses); use++)
                for (size_t i = 0; i < SW_COUNT(conv_shapes); i++)
                    if (turn++ % step == 0) one(api, device, sms[g], &conv_shapes[i], type, use, &t);
        print_message("sm_%d: %d of %d convolutions have an engine, workspace up to %zu MiB\n", sms[g], t.found,
                      t.found + t.none, t.workspace >> 20);
        all.wrong += t.wrong;
        api->cudnnBackendDestroyDescriptor(device);
    }
    assert_int_equal(all.wrong, 0);
}

/* Other forms: 1 and 3 axes, dilation, groups that are not depthwise, f64, images channels first. */
static void forms(void **state)
{
    static const conv_shape rows[] = {
        { "dilated", 32, 32, 3, 1, 4, 1, 32, 4 },
        { "groups", 64, 128, 3, 1, 1, 4, 28, 1 },
        { "odd", 7, 13, 3, 2, 1, 1, 31, 1 },
    };
    const sw__cudnn_api *const api = cudnn();
    (void)state;
    if (api == NULL) return;
    void *const device = gpu(api, 90);
    tally t = { 0 };
    for (size_t i = 0; i < SW_COUNT(rows); i++)
        for (size_t type = 0; type < SW_COUNT(types); type++)
            for (size_t use = 0; use < SW_COUNT(uses); use++) one(api, device, 90, &rows[i], type, use, &t);
    assert_int_equal(t.wrong, 0);
    api->cudnnBackendDestroyDescriptor(device);
}

/* [N, C, L]: the axis of size 1 that is put before it must not change what lies where. */
static void one_axis(void **state)
{
    const sw__cudnn_api *const api = cudnn();
    static const sw__op kinds[] = { SW_OP_CONV, SW_OP_CONV_GRAD_X, SW_OP_CONV_GRAD_W };
    (void)state;
    if (api == NULL) return;
    void *const device = gpu(api, 80);
    for (size_t i = 0; i < SW_COUNT(kinds); i++) {
        op o;
        sw__cudnn_problem c;
        sw__cudnn_plan plan = { 0 };
        describe(&o, &(conv_shape){ "signal", 16, 32, 5, 2, 2, 1, 99, 1 }, kinds[i], SW_F32, false);
        o.p.attr.conv.nd = 1;
        for (int k = 0; k < 3; k++) {
            sw__desc *const d = &o.p.desc[k];
            d->rank = 3;
            d->stride[2] = 1;
            d->stride[1] = d->dim[2];
            d->stride[0] = d->dim[1] * d->dim[2];
        }
        o.p.desc[1].stride[2] = o.p.desc[1].dim[2] == 1 ? 0 : 1;
        assert_int_equal(sw__cudnn_describe(&o.p, false, &c), SW_OK);
        assert_int_equal(c.nd, 2);
        assert_int_equal(c.x.dim[2], 1);
        assert_int_equal(c.x.stride[2], 99);
        assert_int_equal(c.pre[0], 0);
        assert_int_equal(c.pre[1], 2);
        c.most = (int64_t)256 << 20;
        if (sw__cudnn_choose(api, device, &c, &plan) != SW_OK) fail_msg("%s", sw_error());
        api->cudnnBackendDestroyDescriptor(plan.plan);
    }
    api->cudnnBackendDestroyDescriptor(device);
}

/* Wrong sizes, strides that it cannot be told of, too little workspace: a status with the reason, no engine. */
static void refusals(void **state)
{
    const sw__cudnn_api *const api = cudnn();
    (void)state;
    if (api == NULL) return;
    void *const device = gpu(api, 90);
    op o;
    sw__cudnn_problem c;
    sw__cudnn_plan plan = { 0 };
    describe(&o, &conv_shapes[3], SW_OP_CONV, SW_F32, false);
    o.p.desc[0].stride[3] = 0;
    assert_int_equal(sw__cudnn_describe(&o.p, false, &c), SW_ERR_UNSUPPORTED);
    assert_non_null(strstr(sw_error(), "stride of 0"));
    describe(&o, &conv_shapes[3], SW_OP_CONV, SW_F32, false);
    o.p.desc[2].dim[2] = 55;
    assert_int_equal(sw__cudnn_describe(&o.p, false, &c), SW_OK);
    c.most = (int64_t)256 << 20;
    assert_int_equal(sw__cudnn_choose(api, device, &c, &plan), SW_ERR_UNSUPPORTED);
    describe(&o, &conv_shapes[3], SW_OP_CONV_GRAD_W, SW_BF16, false);
    assert_int_equal(sw__cudnn_describe(&o.p, false, &c), SW_OK);
    c.most = -1;
    assert_int_equal(sw__cudnn_choose(api, device, &c, &plan), SW_ERR_UNSUPPORTED);
    assert_non_null(strstr(sw_error(), "too much workspace"));
    describe(&o, &conv_shapes[3], SW_OP_CONV, SW_I32, false);
    assert_int_equal(sw__cudnn_describe(&o.p, false, &c), SW_OK);
    assert_int_equal(sw__cudnn_choose(api, device, &c, &plan), SW_ERR_UNSUPPORTED);
    api->cudnnBackendDestroyDescriptor(device);
}

/* ---- a library that is asked through here ------------------------------------------------------------------------ */

static const sw__cudnn_api *asked;
static int silent; /* an attribute that is not told */
static long made;

static int get_attribute(void *d, int name, int type, int64_t room, int64_t *n, void *to)
{
    return name == silent ? 3 : asked->cudnnBackendGetAttribute(d, name, type, room, n, to);
}

static int create(int type, void **d)
{
    made++;
    return asked->cudnnBackendCreateDescriptor(type, d);
}

/* An engine that does not tell how it computes is none that will do; and what was refused is not asked for again. */
static void silence(void **state)
{
    static const int all[] = { SW_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, SW_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE };
    (void)state;
    asked = cudnn();
    if (asked == NULL) return;
    sw__cudnn_api through = *asked;
    through.cudnnBackendGetAttribute = get_attribute;
    through.cudnnBackendCreateDescriptor = create;
    for (size_t i = 0; i < SW_COUNT(all); i++) {
        static sw__cu cu;
        sw__cudnn dnn = { .api = &through, .device = gpu(asked, 90) };
        op o;
        silent = all[i];
        for (int k = 0; k < 2; k++) {
            made = 0;
            describe(&o, &conv_shapes[3], SW_OP_CONV, SW_F32, false);
            assert_int_equal(sw__cudnn_plan_op(&cu, &dnn, &o.p), SW_ERR_UNSUPPORTED);
            assert_non_null(strstr(sw_error(), "engines will do"));
            assert_true((made > 0) == (k == 0));
        }
        sw__cudnn_close(&dnn);
    }
}

/* ---- libraries that are not as they should be -------------------------------------------------------------------- */

/* Opened in a process of its own, since a process looks once. Says whether the message has the words. */
static void in_child(const char *variable, const char *library, const char *words, const char *more)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const sw__cudnn_api *dnn = NULL;
        const sw__lt_api *lt = NULL;
        setenv(variable, library, 1);
        const bool is_lt = strstr(variable, "CUBLASLT") != NULL;
        const sw_status st = is_lt ? sw__lt_load(&lt) : sw__cudnn_load(&dnn);
        const bool good =
            st == SW_ERR_UNSUPPORTED && strstr(sw_error(), words) != NULL && strstr(sw_error(), more) != NULL;
        if (!good) fprintf(stderr, "%s=%s: %s\n", variable, library, st == SW_OK ? "opened" : sw_error());
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void absent(void **state)
{
    (void)state;
    in_child("SWOOP_CUDNN_LIBRARY", "libnone.so.9", "cannot be opened", "install cuDNN 9");
    in_child("SWOOP_CUBLASLT_LIBRARY", "libnone.so.13", "cannot be opened", "install cuBLAS");
    in_child("SWOOP_CUDNN_LIBRARY", "libm.so.6", "has no cudnn", "install cuDNN 9");
    in_child("SWOOP_CUBLASLT_LIBRARY", "libm.so.6", "has no cublasLt", "install cuBLAS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent), /* before the libraries are opened here */
        cmocka_unit_test(networks), cmocka_unit_test(forms), cmocka_unit_test(one_axis), cmocka_unit_test(refusals),
        cmocka_unit_test(silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
