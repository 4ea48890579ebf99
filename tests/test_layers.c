/* test_layers.c: networks as lists of layers (src/io/layers.c): the same graph as the calls they stand for, messages that
 * say which line, and `layers:` in run files, to the trained model and back. */
#include "io_test.h"
#include "swoop/swoop.h"

static sw_t input(sw_graph **g, int rank, const int64_t *shape)
{
    OK(sw_graph_new(g));
    return sw_input(*g, "x", SW_F32, rank, shape);
}

static const int64_t image[4] = { 2, 1, 28, 28 }, small[4] = { 2, 4, 6, 6 };

/* Prints both graphs and compares the text: all nodes, attributes and names of parameters. */
static void same(const char *json, const char *model, sw_t (*build)(sw_t), const int64_t shape[4])
{
    sw_graph *a, *b;
    char *of_list, *of_calls;
    sw_model_layers(json, input(&a, 4, shape), 10);
    OK(sw_graph_status(a));
    const sw_t x = input(&b, 4, shape);
    if (model != NULL)
        sw_model_build(model, x, 10);
    else
        build(x);
    OK(sw_graph_status(b));
    OK(sw_graph_print(a, SW_PRINT_TEXT, &of_list));
    OK(sw_graph_print(b, SW_PRINT_TEXT, &of_calls));
    assert_string_equal(of_list, of_calls);
    sw_string_free(of_list);
    sw_string_free(of_calls);
    sw_graph_free(a);
    sw_graph_free(b);
}

static const char lenet[] =
    "[{\"conv2d\": {\"channels\": 6, \"kernel\": 5, \"pad\": 2, \"name\": \"conv1\"}}, \"relu\", \"avg_pool2d\","
    " {\"conv2d\": {\"channels\": 16, \"kernel\": 5, \"name\": \"conv2\"}}, \"relu\", {\"avg_pool2d\": 2}, \"flatten\","
    " {\"linear\": {\"features\": 120, \"name\": \"fc1\"}}, \"relu\", {\"linear\": {\"features\": 84, \"name\": \"fc2\"}}, \"relu\","
    " {\"linear\": {\"features\": \"outputs\", \"name\": \"fc3\"}}]";

static const char mixed[] =
    "[{\"scope\": {\"name\": \"stem\", \"layers\": [{\"conv_transpose2d\": {\"channels\": 8, \"stride\": 2, \"output_padding\": 1}},"
    " {\"group_norm\": 2}, {\"leaky_relu\": 0.2}]}},"
    " {\"residual\": {\"layers\": [{\"conv2d\": {\"channels\": 8, \"pad\": 1, \"bias\": false}}, \"batch_norm\", {\"dropout\": 0.25}]}},"
    " {\"concat\": [[\"tanh\"], [{\"conv2d\": {\"channels\": 2, \"kernel\": 1}}, \"sigmoid\"]]},"
    " {\"max_pool2d\": {\"kernel\": 3, \"stride\": 2, \"pad\": 1}}, {\"reshape\": [10, -1]}, {\"transpose\": [1, 2]}, \"layer_norm\","
    " {\"mean\": 1}, {\"linear\": \"outputs\"}, \"softmax\"]";

static sw_t mixed_calls(sw_t x)
{
    sw_graph *const g = x.graph;
    sw_scope_push(g, "stem");
    x = sw_conv_transpose2d(x, 8, .kernel = 3, .stride = 2, .output_padding = 1);
    x = sw_leaky_relu(sw_group_norm(x, 2), 0.2);
    sw_scope_pop(g);
    const sw_t y = sw_dropout(sw_batch_norm(sw_conv2d(x, 8, .kernel = 3, .pad = 1, .no_bias = true), .name = NULL), 0.25);
    x = sw_add(y, x);
    const sw_t left = sw_tanh(x), right = sw_sigmoid(sw_conv2d(x, 2, .kernel = 1)), parts[2] = { left, right };
    x = sw_max_pool2d(sw_concat(parts, 2, 1), .kernel = 3, .stride = 2, .pad = 1);
    x = sw_layer_norm(sw_transpose(sw_reshape(x, 3, (int64_t[]){ 2, 10, -1 }), 1, 2), .name = NULL);
    return sw_softmax(sw_linear(sw_mean(x, SW_AXIS(1), false), 10), -1);
}

static void graphs(void **state)
{
    (void)state;
    same(lenet, "lenet", NULL, image);
    same(mixed, NULL, mixed_calls, small);
}

static void messages(void **state)
{
    (void)state;
    static const struct {
        const char *json, *parts[3];
    } cases[] = {
        { "", { "layers: " } },
        { "[", { "layers: " } },
        { "{\"linear\": 3}", { "layers must be a list" } },
        { "[]", { "layers must be a list" } },
        { "[\"relu\", 3]", { "layer 2 (?)", "a name with its options" } },
        { "[\"rleu\"]", { "layer 1 (rleu)", "did you mean 'relu'" } },
        { "[\"relu\", {\"linear\": {\"feature\": 3}}]", { "layer 2 (linear)", "no option 'feature'", "features bias name" } },
        { "[{\"relu\": 3}]", { "layer 1 (relu)", "takes no value" } },
        { "[{\"linear\": 2.5}]", { "features must be a whole number", "outputs" } },
        { "[{\"conv2d\": {\"channels\": 2, \"stride\": 0}}]", { "layer 1 (conv2d)", "stride is 0, and must be" } },
        { "[{\"max_pool2d\": 0}]", { "layer 1 (max_pool2d)", "kernel is 0" } },
        { "[{\"batch_norm\": {\"momentum\": 5}}]", { "layer 1 (batch_norm)", "momentum is 5, and must" } },
        { "[{\"batch_norm\": {\"eps\": -1}}]", { "layer 1 (batch_norm)", "eps is -1, and must be above 0" } },
        { "[{\"linear\": {\"features\": 2, \"bias\": 1}}]", { "bias must be true or false" } },
        { "[{\"dropout\": \"much\"}]", { "layer 1 (dropout)", "p must be a number" } },
        { "[{\"dropout\": 2}]", { "layer 1 (dropout)", "probability 2 is not in" } },
        { "[\"linear\"]", { "layer 1 (linear)", "0 features" } },
        { "[\"flatten\", {\"conv2d\": 8}]", { "layer 2 (conv2d)", "[N, C, H, W]", "[2,144]" } },
        { "[{\"residual\": [\"relu\", {\"conv2d\": 3}]}]", { "layer 1 (residual)", "[2,3,4,4]", "[2,4,6,6]" } },
        { "[{\"residual\": [\"relu\", \"rule\"]}]", { "layer 1 (residual), layers: layer 2 (rule)", "no such layer" } },
        { "[{\"residual\": 3}]", { "layers must be a list of layers" } },
        { "[{\"concat\": []}]", { "branches must be a list" } },
        { "[{\"scope\": {\"layers\": [\"relu\"]}}]", { "name is missing" } },
        { "[{\"reshape\": [\"all\"]}]", { "list of whole numbers" } },
        { "[{\"transpose\": [1]}]", { "the two to be swapped" } },
        { "[{\"mean\": 7}]", { "there is no axis 7 of 4" } },
        { "[{\"linear\": {\"features\": 3, \"features\": 4}}]", { "layers: ", "duplicate" } },
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_graph *g;
        const sw_t y = sw_model_layers(cases[i].json, input(&g, 4, small), 10);
        assert_false(sw_valid(y));
        if (sw_graph_status(g) == SW_OK) fail_msg("%s: no error", cases[i].json);
        for (int k = 0; k < 3 && cases[i].parts[k]; k++)
            if (!strstr(sw_error(), cases[i].parts[k])) fail_msg("%s: '%s' is not in: %s", cases[i].json, cases[i].parts[k], sw_error());
        sw_graph_free(g);
    }
}

static void too_deep(void **state)
{
    (void)state;
    char json[4096] = "";
    for (int i = 0; i < 40; i++) strcat(json, "[{\"residual\": ");
    strcat(json, "[\"relu\"]");
    for (int i = 0; i < 40; i++) strcat(json, "}]");
    sw_graph *g;
    assert_false(sw_valid(sw_model_layers(json, input(&g, 4, small), 10)));
    assert_non_null(strstr(sw_error(), "deep"));
    sw_graph_free(g);
}

/* ---- run files ----------------------------------------------------------------------------------------------------- */

static const char run_file[] = "data: digits\nepochs: 2\nlr: 0.01\nval: test\n"
                               "layers:\n"
                               "  - conv2d: {channels: 8, kernel: 3, pad: 1, name: conv}\n"
                               "  - relu\n"
                               "  - max_pool2d: 2\n"
                               "  - flatten\n"
                               "  - dropout: 0.1\n"
                               "  - linear:\n"
                               "      features: outputs\n"
                               "      name: 'head'\n";

static void parsing(void **state)
{
    (void)state;
    sw_config *c, *again;
    const char *yaml;
    OK(sw_config_new(&c));
    OK(sw_config_parse(c, "run.yaml", run_file, strlen(run_file)));
    assert_string_equal(sw_config_text(c, SW_KEY_MODEL),
                        "layers:[{\"conv2d\": {\"channels\": 8, \"kernel\": 3, \"pad\": 1, \"name\": \"conv\"}}, \"relu\", "
                        "{\"max_pool2d\": 2}, \"flatten\", {\"dropout\": 0.1}, {\"linear\": {\"features\": \"outputs\", \"name\": \"head\"}}]");
    OK(sw_config_yaml(c, &yaml));
    assert_non_null(strstr(yaml, "\nlayers: [{\"conv2d\""));
    assert_null(strstr(yaml, "\nmodel:"));
    OK(sw_config_new(&again));
    OK(sw_config_parse(again, "printed", yaml, strlen(yaml)));
    assert_string_equal(sw_config_text(c, SW_KEY_MODEL), sw_config_text(again, SW_KEY_MODEL));
    sw_config_free(again);
    static const struct {
        const char *yaml, *message;
    } bad[] = {
        { "model: lenet\nlayers: [relu]\n", "bad:2: layers is a model of its own, and model or layers stands in line 1" },
        { "layers: [relu]\nmodel: lenet\n", "bad:2: model is given a second time" },
        { "layers: relu\n", "bad:1: layers takes a list" },
        { "layers:\n  - &a relu\n  - *a\n", "bad:3: aliases" },
        { "layers:\n  - linear: {[1]: 2}\n", "bad:2: the name of an option" },
    };
    for (size_t i = 0; i < SW_COUNT(bad); i++) {
        OK(sw_config_new(&again));
        FAILS(SW_ERR_FORMAT, sw_config_parse(again, "bad", bad[i].yaml, strlen(bad[i].yaml)), bad[i].message);
        sw_config_free(again);
    }
    sw_config_free(c);
}

static int command(const char *arguments)
{
    char line[2048];
    snprintf(line, sizeof line, "cd '%s' && '%s' %s > out 2>&1", scratch, SWOOP_COMMAND, arguments);
    const int rc = system(line);
    return rc;
}

static const char *said(void)
{
    static char *content;
    size_t n;
    free(content);
    content = NULL;
    char *bytes;
    OK(sw__file_read(scratch_path("out"), 1 << 20, &bytes, &n));
    content = strdup(bytes);
    sw__free(bytes);
    return content;
}

static void by_command(void **state)
{
    (void)state;
    write_scratch("run.yaml", run_file, strlen(run_file));
    if (command("train --config run.yaml --device cpu") != 0) fail_msg("%s", said());
    assert_non_null(strstr(said(), "layers, 1370 parameters")); /* 8*9 + 8 + 10*128 + 10 */
    if (command("eval runs/train --device cpu") != 0) fail_msg("%s", said());
    if (command("train --config runs/train/config.yaml --epochs 1 --device cpu -q") != 0) fail_msg("%s", said());
    if (command("plan --config run.yaml --device cpu") != 0) fail_msg("%s", said());
    assert_non_null(strstr(said(), "layers: "));
    static const char wrong[] = "data: digits\nlayers:\n  - flatten\n  - liner: 3\n";
    write_scratch("wrong.yaml", wrong, strlen(wrong));
    assert_int_not_equal(command("train --config wrong.yaml --device cpu"), 0);
    assert_non_null(strstr(said(), "layer 2 (liner): there is no such layer; did you mean 'linear'?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(graphs), cmocka_unit_test(messages), cmocka_unit_test(too_deep),
                                        cmocka_unit_test(parsing), cmocka_unit_test(by_command) };
    return cmocka_run_group_tests_name("layers", tests, make_scratch, remove_scratch);
}
