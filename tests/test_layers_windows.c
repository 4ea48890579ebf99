/* test_layers_windows.c: layers that slide windows and norms: names and shapes of their parameters, what they refuse, running
 * statistics; and the shape of unet. Values and gradients are in test_golden_windows.c, against PyTorch's. */
#include "base/base.h"
#include "swoop/swoop.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static sw_graph *graph(void)
{
    sw_graph *g = NULL;
    assert_int_equal(sw_graph_new(&g), SW_OK);
    return g;
}

#define X(g, ...) sw_input(g, "x", SW_F32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* "[2,3]" */
static void shape_text(sw_t t, char *buf, size_t size)
{
    size_t at = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < sw_rank(t); i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? "," : "", (long long)sw_dim(t, i));
    snprintf(buf + at, size - at, "]");
}

/* The result's shape, then each parameter's and buffer's name and shape; and the graph goes. */
static void has(sw_t y, const char *want)
{
    char text[1024] = "", shape[96];
    sw_t vars[16];
    if (!sw_valid(y)) fail_msg("%s", sw_error());
    shape_text(y, text, sizeof text);
    for (int kind = SW_VAR_PARAM; kind <= SW_VAR_BUFFER; kind++) {
        const int n = sw_graph_variables(y.graph, (sw_var_kind)kind, vars, 16);
        for (int i = 0; i < n; i++) {
            shape_text(vars[i], shape, sizeof shape);
            const size_t at = strlen(text);
            snprintf(text + at, sizeof text - at, " %s%s", sw_name(vars[i]), shape);
        }
    }
    assert_string_equal(text, want);
    sw_graph_free(y.graph);
}

static void test_parameters(void **state)
{
    (void)state;
    has(sw_conv1d(X(graph(), 2, 4, 9), 6, .kernel = 3, .stride = 2, .groups = 2, .name = "c"), "[2,6,4] c.weight[6,2,3] c.bias[6]");
    has(sw_conv2d(X(graph(), 2, 4, 9, 8), 4, .kernel_h = 3, .kernel_w = 2, .groups = 4, .no_bias = true),
        "[2,4,7,7] conv1.weight[4,1,3,2]");
    has(sw_conv3d(X(graph(), 1, 4, 2, 5, 5), 6, .kernels = {1, 3, 2}, .pads = {0, 1, 0}, .strides = {0, 2, 0}),
        "[1,6,2,3,4] conv1.weight[6,4,1,3,2] conv1.bias[6]");
    has(sw_conv_transpose1d(X(graph(), 1, 3, 4), 2, .kernel = 3, .dilation = 2, .name = "up"),
        "[1,2,8] up.weight[3,2,3] up.bias[2]");
    has(sw_conv_transpose2d(X(graph(), 1, 6, 5, 5), 4, .kernels = {3, 2}, .stride = 2, .pad = 1, .output_paddings = {1},
                            .groups = 2),
        "[1,4,10,8] conv_transpose1.weight[6,2,3,2] conv_transpose1.bias[4]");
    has(sw_conv_transpose3d(X(graph(), 1, 2, 2, 2, 2), 1, .kernel = 2, .stride = 2, .no_bias = true),
        "[1,1,4,4,4] conv_transpose1.weight[2,1,2,2,2]");
    has(sw_group_norm(X(graph(), 2, 6, 3), 3, .name = "n"), "[2,6,3] n.weight[6] n.bias[6]");
    has(sw_group_norm(X(graph(), 2, 6, 3), 3, .no_affine = true), "[2,6,3]");
    has(sw_instance_norm(X(graph(), 2, 6, 3), .eps = 1e-3), "[2,6,3]");
    has(sw_instance_norm(X(graph(), 2, 6, 3), .affine = true, .track_running_stats = true, .name = "i"),
        "[2,6,3] i.weight[6] i.bias[6] i.num_batches_tracked[] i.running_mean[6] i.running_var[6]");
    has(sw_rms_norm(X(graph(), 2, 6, 3), .name = "r"), "[2,6,3] r.weight[3]");
    has(sw_max_pool1d(X(graph(), 2, 6, 7), .kernel = 3), "[2,6,2]");
    has(sw_max_pool2d(X(graph(), 2, 6, 7, 5), .kernels = {3, 2}, .ceil_mode = true), "[2,6,3,3]");
    has(sw_max_pool3d(X(graph(), 2, 6, 7, 5, 4), .kernel = 3, .stride = 1, .pads = {0, 1, 1}), "[2,6,5,5,4]");
    has(sw_avg_pool1d(X(graph(), 2, 6, 7), .stride = 1), "[2,6,6]");
    has(sw_avg_pool3d(X(graph(), 2, 6, 7, 5, 4), .strides = {1, 2, 3}), "[2,6,6,2,1]");
    has(sw_lp_pool(X(graph(), 2, 6, 7), .power = 2), "[2,6,3]");
}

static void refuses(sw_t result, sw_graph *g, const char *part)
{
    assert_false(sw_valid(result));
    assert_int_not_equal(sw_graph_status(g), SW_OK);
    const char *at = sw_error(); /* the parts of `part` between '*', in this order */
    char text[256], *rest = text;
    snprintf(text, sizeof text, "%s", part);
    for (char *piece; at && (piece = strsep(&rest, "*")) != NULL;) at = strstr(at, piece);
    if (!at) fail_msg("no '%s' in: %s", part, sw_error());
    sw_graph_free(g);
}

#define REFUSES(part, call)                                                                                            \
    do {                                                                                                               \
        sw_graph *const g = graph();                                                                                   \
        refuses(call, g, part);                                                                                        \
    } while (0)

static void test_refused(void **state)
{
    (void)state;
    REFUSES("conv1d 'c'*: x is*f32[2,4,9,9], but it takes [N, C, L]", sw_conv1d(X(g, 2, 4, 9, 9), 6, .kernel = 3, .name = "c"));
    REFUSES("conv3d ''*: 6 channels, kernel 0: both must be given", sw_conv3d(X(g, 2, 4, 9, 9, 9), 6, .stride = 3));
    REFUSES("conv2d ''*: 3 groups must divide the 4 channels of x*f32[2,4,9,9] and the 6", sw_conv2d(X(g, 2, 4, 9, 9), 6, .kernel = 1,
                                                                                                  .groups = 3));
    REFUSES("layer 'up'*: conv_grad_x: transposed convolution", sw_conv_transpose1d(X(g, 2, 4, 3), 6, .kernel = 2, .stride = 2,
                                                                                  .output_padding = 2, .name = "up"));
    REFUSES("conv_transpose2d 'up'*: x is*f32[2,4,3]", sw_conv_transpose2d(X(g, 2, 4, 3), 6, .kernel = 2, .name = "up"));
    REFUSES("group_norm 'n'*: 4 groups of x*f32[2,6,3]", sw_group_norm(X(g, 2, 6, 3), 4, .name = "n"));
    REFUSES("instance_norm 'i'*: x is*f32[2,6,1]", sw_instance_norm(X(g, 2, 6, 1), .name = "i"));
    REFUSES("rms_norm 'r'", sw_rms_norm(sw_const(g, SW_F32, 1), .name = "r"));
    REFUSES("max_pool1d: x is*f32[2,6,7,7], but it takes [N, C, L]", sw_max_pool1d(X(g, 2, 6, 7, 7), .kernel = 2));
    REFUSES("avg_pool3d: x is*f32[2,6,7], but it takes [N, C, D, H, W]", sw_avg_pool3d(X(g, 2, 6, 7), .kernel = 2));
    REFUSES("global_avg_pool2d: x is*f32[2,6,7]", sw_global_avg_pool2d(X(g, 2, 6, 7)));
    REFUSES("halves images twice: height and width must be multiples of 4, not 6 x 8", sw_model_build("unet", X(g, 1, 1, 6, 8), 1));
    REFUSES("which divide it, like unet:16,4", sw_model_build("unet:6,4", X(g, 1, 1, 8, 8), 1));
    REFUSES("up to 2 positive numbers", sw_model_build("unet:8,4,2", X(g, 1, 1, 8, 8), 1));
}

static void get(sw_params *p, const char *name, double *out)
{
    assert_int_equal(sw_params_get(p, sw_params_find(p, name), SW_F64, out, 1), SW_OK);
}

/* Two samples of one channel: PyTorch's InstanceNorm1d(1, track_running_stats=True), once in training and then not. */
static void test_instance_running(void **state)
{
    (void)state;
    static const float x[4] = {1, 3, 2, 8};
    static const double want[4] = {0.4716, 1.9225, 1.1970, 5.5499};
    double y[4], mean, var;
    sw_device *d = NULL;
    sw_params *params = NULL;
    assert_int_equal(sw_device_open("ref", NULL, &d), SW_OK);
    for (int training = 1; training >= 0; training--) {
        sw_graph *g = graph();
        sw_program *p = NULL;
        sw_graph_set_training(g, training);
        sw_output(sw_instance_norm(X(g, 2, 1, 2), .track_running_stats = true, .name = "n"), "y");
        if (!params) assert_int_equal(sw_params_new(d, g, 0, &params), SW_OK);
        assert_int_equal(sw_compile(g, d, &(sw_compile_options){.params = params}, &p), SW_OK);
        assert_int_equal(sw_program_set(p, sw_program_input(p, "x"), SW_F32, x, 4), SW_OK);
        assert_int_equal(sw_program_run(p), SW_OK);
        assert_int_equal(sw_program_get(p, sw_program_output(p, "y"), SW_F64, y, 4), SW_OK);
        for (int i = 0; i < 4; i++) assert_true(fabs(y[i] - (training ? (i % 2 ? 1 : -1) : want[i])) < 1e-4);
        get(params, "n.running_mean", &mean);
        get(params, "n.running_var", &var);
        assert_true(fabs(mean - 0.35) < 1e-7 && fabs(var - 1.9) < 1e-6);
        sw_program_free(p);
        sw_graph_free(g);
    }
    sw_params_free(params);
    sw_device_close(d);
}

/* 117,073 parameters, as PyTorch's; and an output for each pixel. */
static void test_unet(void **state)
{
    (void)state;
    sw_graph *g = graph();
    sw_t vars[64];
    int64_t count = 0;
    const sw_t y = sw_model_build("unet:16", X(g, 2, 1, 64, 64), 1);
    const int n = sw_graph_variables(g, SW_VAR_PARAM, vars, 64);
    for (int i = 0; i < n; i++) count += sw_elements(vars[i]);
    assert_int_equal(count, 117073);
    assert_int_equal(n, 36);
    assert_int_equal(sw_dim(y, 1), 1);
    assert_int_equal(sw_dim(y, 2), 64);
    assert_int_equal(sw_dim(y, 3), 64);
    sw_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_instance_running), cmocka_unit_test(test_unet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
