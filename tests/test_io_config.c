/* test_io_config.c: run files and flags: precedence, types, unknown keys, printing that reads back the same.
 * Tests of src/io/config*.c. */
#include "io_test.h"
#include "io/config.h"
#include <locale.h>

static sw_config *config(void)
{
    sw_config *c;
    OK(sw_config_new(&c));
    return c;
}

static sw_status parse(sw_config *c, const char *yaml)
{
    return sw_config_parse(c, "run.yaml", yaml, strlen(yaml));
}

static void table(void **state)
{
    (void)state;
    sw_config *const c = config();
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        const sw_key_info *const info = sw_config_about((sw_key)k);
        sw_key found;
        if (info->name == NULL || info->help == NULL || info->group == NULL) fail_msg("key %d has no row", k);
        assert_true(sw_config_find(info->name, &found));
        assert_int_equal(found, k);
        assert_false(sw__config_key_is_later(info->name));
        assert_true((info->type == SW_KEY_CHOICE) == (info->choices != NULL));
        assert_string_equal(sw_config_text(c, (sw_key)k), info->fallback);
        assert_int_equal(sw_config_origin(c, (sw_key)k), SW_FROM_DEFAULT);
    }
    assert_null(sw_config_about(SW_KEY_COUNT));
    sw_config_free(c);
    sw_config_free(NULL);
}

static void defaults(void **state)
{
    (void)state;
    sw_config *const c = config();
    assert_int_equal(sw_config_int(c, SW_KEY_EPOCHS), 20);
    assert_true(sw_config_number(c, SW_KEY_VAL_SPLIT) == 0.1);
    assert_true(sw_config_bool(c, SW_KEY_SHUFFLE));
    assert_true(sw_config_is_auto(c, SW_KEY_BETAS));
    assert_true(sw_config_is_auto(c, SW_KEY_LR));
    assert_true(sw_config_number(c, SW_KEY_LR) == 0);
    assert_int_equal(sw_config_int(c, SW_KEY_LR), 0); /* another type */
    assert_string_equal(sw_config_text(c, SW_KEY_LR), "auto");
    OK(sw_config_choose(c, SW_KEY_LR, "0.05"));
    assert_true(sw_config_number(c, SW_KEY_LR) == 0.05);
    OK(sw_config_choose(c, SW_KEY_LR, "0.06"));
    OK(sw_config_set(c, "lr", "0.5"));
    FAILS(SW_ERR_ARGUMENT, sw_config_choose(c, SW_KEY_LR, "0.05"), "lr was given as '0.5'", "not changed");
    sw_config_free(c);
}

static void files(void **state)
{
    (void)state;
    sw_config *const c = config();
    OK(parse(c, ""));
    OK(parse(c, "# nothing\n"));
    OK(parse(c, "---\n"));
    OK(parse(c, "---\nepochs: 5   # five\nbatch-size: 32\nlr: 1e-3\nbetas: [0.8, 0.99]\n\"model\": 'mlp:64'\n"
                "shuffle: No\nname: \"with \\\"quotes\\\"\"\ndata: a:b\n...\n"));
    assert_int_equal(sw_config_int(c, SW_KEY_EPOCHS), 5);
    assert_int_equal(sw_config_int(c, SW_KEY_BATCH_SIZE), 32);
    assert_true(sw_config_number(c, SW_KEY_LR) == 1e-3);
    assert_true(sw_config_pair(c, SW_KEY_BETAS, 0) == 0.8);
    assert_string_equal(sw_config_text(c, SW_KEY_MODEL), "mlp:64");
    assert_string_equal(sw_config_text(c, SW_KEY_NAME), "with \"quotes\"");
    assert_string_equal(sw_config_text(c, SW_KEY_DATA), "a:b");
    assert_false(sw_config_bool(c, SW_KEY_SHUFFLE));
    assert_int_equal(sw_config_origin(c, SW_KEY_EPOCHS), SW_FROM_FILE);
    assert_int_equal(sw_config_origin(c, SW_KEY_SEED), SW_FROM_DEFAULT);
    write_scratch("run.yaml", "precision: tf32\n", 16);
    OK(sw_config_load(c, scratch_path("run.yaml")));
    assert_string_equal(sw_config_text(c, SW_KEY_PRECISION), "tf32");
    write_scratch("run.yaml", "epochs: 7\n", 10);
    OK(sw_config_load(c, scratch_path("run.yaml")));
    assert_int_equal(sw_config_int(c, SW_KEY_EPOCHS), 7);
    FAILS(SW_ERR_IO, sw_config_load(c, scratch_path("none.yaml")), "none.yaml");
    sw_config_free(c);
}

static void bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *says[3];
    } cases[] = {
        { "epochs: 3\nmodle: lenet\n", { "run.yaml:2: ", "unknown key 'modle'", "'model'" } },
        { "batchsize: 3\n", { "run.yaml:1: ", "'batchsize'", "'batch_size'" } },
        { "xyzzy: 3\n", { "run.yaml:1: unknown key 'xyzzy'" } },
        { "augment: flip\n", { "run.yaml:1: 'augment' is not in this version" } },
        { "precision: f8\n", { "run.yaml:1: ", "'f8'", "f32" } },
        { "lr: find\n", { "'find' is not in this version" } },
        { "\n\nepochs: many\n", { "run.yaml:3: ", "'many'", "a whole number" } },
        { "epochs: 5.0\n", { "a whole number" } },
        { "epochs: 0\n", { "epochs is 0, and must be at least 1" } },
        { "epochs: 99999999999999999999\n", { "a whole number" } },
        { "val_split: 1\n", { "must be below 1" } },
        { "eps: 0\n", { "must be above 0" } },
        { "lr: -1\n", { "must be above 0" } },
        { "lr: nan\n", { "a number or auto" } },
        { "lr: 1e999\n", { "a number" } },
        { "lr: 0x10\n", { "a number" } },
        { "lr: 1 2\n", { "a number" } },
        { "lr: [1]\n", { "lr takes one value, not a list" } },
        { "betas: 0.9\n", { "two numbers" } },
        { "betas: [0.9, 0.99, 0.999]\n", { "two numbers" } },
        { "betas: [0.9, 1]\n", { "betas is 1, and must be below 1" } },
        { "betas: [[1]]\n", { "a single word or number" } },
        { "shuffle: maybe\n", { "true or false" } },
        { "optimizer: adma\n", { "'adma'", "adamw|adam|sgd" } },
        { "epochs:\n", { "run.yaml:1: epochs has no value" } },
        { "epochs: ~\n", { "has no value" } },
        { "model:\n  layers: []\n", { "run.yaml:2: model takes one value; nested maps" } },
        { "epochs: 3\nepochs: 4\n", { "run.yaml:2: epochs is given a second time", "line 1" } },
        { "- epochs\n", { "run.yaml:1: a run file is a map" } },
        { "epochs\n", { "a run file is a map" } },
        { "epochs: 3\n---\nepochs: 4\n", { "run.yaml:2: a second document" } },
        { "epochs: &a 3\nsteps: *a\n", { "run.yaml:2: aliases" } },
        { "epochs: 3\n  steps: 4\n", { "run.yaml:1: epochs is '3 steps'" } },
        { "name: \"a\\0b\"\n", { "NUL" } },
        { "name: \"unfinished\n", { "run.yaml:" } },
        { "name: \xFF\n", { "run.yaml: byte 6" } },
        { "{epochs: 3, *b : 4}\n", { "aliases" } },
        { "? [a]\n: 3\n", { "a key should be a single word" } },
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_config *const c = config();
        FAILS(SW_ERR_FORMAT, parse(c, cases[i].yaml), cases[i].says[0], cases[i].says[1], cases[i].says[2]);
        sw_config_free(c);
    }
}

static void flags(void **state)
{
    (void)state;
    char *argv[] = {
        "swoop", "--batch-size", "32", "--exist_ok",  "run.yaml", "--betas=0.8,0.9", "--resume", "--dry-run", "no",
        "--lr",  "-1",           "-q", "--drop-last", "--",       "--nesterov=off",  "--resume", "runs/x",    "--no-shuffle",
        "--no_tune", "no", NULL
    };
    sw_config *const c = config();
    const int argc = (int)SW_COUNT(argv) - 1;
    int i = 1;
    bool taken;
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 3);
    assert_int_equal(sw_config_int(c, SW_KEY_BATCH_SIZE), 32);
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 4); /* run.yaml is no boolean, so it is not the flag's */
    assert_true(sw_config_bool(c, SW_KEY_EXIST_OK));
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(!taken && i == 4);
    i = 5;
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 6);
    assert_true(sw_config_pair(c, SW_KEY_BETAS, 0) == 0.8);
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 7);
    assert_string_equal(sw_config_text(c, SW_KEY_RESUME), "last");
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 9);
    assert_false(sw_config_bool(c, SW_KEY_DRY_RUN));
    FAILS(SW_ERR_ARGUMENT, sw_config_argument(c, argc, argv, &i, NULL, &taken),
          "--lr: lr is -1, and must be above 0");
    assert_int_equal(i, 9);
    i = 11;
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_false(taken); /* -q is the caller's */
    i = 12;
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 13);
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_false(taken); /* -- ends options: the caller's */
    i = 14;
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 15);
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 17);
    assert_string_equal(sw_config_text(c, SW_KEY_RESUME), "runs/x");
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken));
    assert_true(taken && i == 18 && !sw_config_bool(c, SW_KEY_SHUFFLE));
    OK(sw_config_argument(c, argc, argv, &i, NULL, &taken)); /* a key of that name comes first */
    assert_true(taken && i == 20 && !sw_config_bool(c, SW_KEY_NO_TUNE));
    sw_config_free(c);
}

static void bad_flags(void **state)
{
    (void)state;
    static const char *const extra[] = { "help", "print-config", NULL };
    static const struct {
        const char *argument, *next, *says[2];
    } cases[] = {
        { "--epoch", "3", { "--epoch: unknown key 'epoch'", "'epochs'" } },
        { "--hepl", NULL, { "--hepl", "'help'" } },
        { "--print_confg", NULL, { "'print-config'" } },
        { "--augment=flip", NULL, { "--augment=flip: 'augment' is not in this version" } },
        { "--epochs", NULL, { "--epochs needs a value: a whole number" } },
        { "--epochs", "--lr", { "--epochs needs a value" } },
        { "--optimizer", "adma", { "--optimizer: optimizer is 'adma'", "adamw|adam|sgd" } },
        { "--epochs=", NULL, { "a whole number" } },
        { "--epochs= 3", NULL, { "a whole number" } },
        { "--name=\xFF", NULL, { "name is not UTF-8" } },
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_config *const c = config();
        char argument[64], value[64];
        snprintf(argument, sizeof argument, "%s", cases[i].argument);
        snprintf(value, sizeof value, "%s", cases[i].next != NULL ? cases[i].next : "");
        char *const argv[] = { argument, value, NULL };
        int at = 0;
        bool taken;
        FAILS(SW_ERR_ARGUMENT, sw_config_argument(c, cases[i].next != NULL ? 2 : 1, argv, &at, extra, &taken),
              cases[i].says[0], cases[i].says[1]);
        sw_config_free(c);
    }
}

/* Command line before file before default, in whatever order they are read; and what was given is not overruled. */
static void precedence(void **state)
{
    (void)state;
    sw_config *const c = config();
    OK(sw_config_set(c, "epochs", "3"));
    OK(parse(c, "epochs: 5\nseed: 4\n"));
    assert_int_equal(sw_config_int(c, SW_KEY_EPOCHS), 3);
    assert_int_equal(sw_config_origin(c, SW_KEY_EPOCHS), SW_FROM_ARGUMENT);
    assert_int_equal(sw_config_int(c, SW_KEY_SEED), 4);
    OK(sw_config_set(c, "seed", "6"));
    assert_int_equal(sw_config_int(c, SW_KEY_SEED), 6);
    FAILS(SW_ERR_FORMAT, parse(c, "epochs: x\n"), "run.yaml:1"); /* wrong, even if it would not count */
    sw_config_free(c);
}

static void check_same(const sw_config *a, const sw_config *b)
{
    for (int k = 0; k < SW_KEY_COUNT; k++) {
        if (sw__keys[k].how) continue;
        assert_string_equal(sw_config_text(a, (sw_key)k), sw_config_text(b, (sw_key)k));
        assert_int_equal(sw_config_is_auto(a, (sw_key)k), sw_config_is_auto(b, (sw_key)k));
    }
}

static void printing(void **state)
{
    (void)state;
    static const char *const names[] = {
        "plain",       "",       "true",      "12",         "- x",
        "a: b",        "\"",     "tab\there", "Größe 数字", "x # y",
        "line\nbreak", "'",      "null",      "~",          "\xC2\x85 \xE2\x80\xA8 \xEF\xBB\xBF \x7F",
        " lead",       "trail ", "{a}",       "*b",         "C:\\x"
    };
    for (size_t i = 0; i < SW_COUNT(names); i++) {
        sw_config *const a = config(), *const b = config();
        OK(sw_config_set(a, "name", names[i]));
        OK(sw_config_set(a, "betas", "0.5,0.25"));
        OK(sw_config_set(a, "lr", "3e-4"));
        const char *yaml;
        OK(sw_config_yaml(a, &yaml));
        OK(parse(b, yaml));
        check_same(a, b);
        sw_config_free(a);
        sw_config_free(b);
    }
}

static void json(void **state)
{
    (void)state;
    sw_config *const c = config();
    OK(sw_config_set(c, "name", "a \"b\""));
    OK(sw_config_set(c, "lr", "0.05"));
    OK(sw_config_set(c, "betas", "0.9,0.99"));
    OK(sw_config_set(c, "eps", "1e-8"));
    const char *text;
    OK(sw_config_json(c, &text));
    static const char *const holds[] = { "\"epochs\":20",         "\"lr\":0.05",      "\"name\":\"a \\\"b\\\"\"",
                                         "\"betas\":[0.9,0.99]", "\"shuffle\":true", "\"threads\":\"auto\"",
                                         "\"eps\":1e-08" };
    for (size_t i = 0; i < SW_COUNT(holds); i++) {
        if (strstr(text, holds[i]) == NULL) fail_msg("%s is not in %s", holds[i], text);
    }
    sw_config_free(c);
}

/* Numbers are read and written with a point in a locale that has a comma. */
static void locales(void **state)
{
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) skip();
    json(state);
    printing(state);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table), cmocka_unit_test(defaults),  cmocka_unit_test(files),      cmocka_unit_test(bad_files),
        cmocka_unit_test(flags), cmocka_unit_test(bad_flags), cmocka_unit_test(precedence), cmocka_unit_test(printing),
        cmocka_unit_test(json),  cmocka_unit_test(locales),
    };
    return cmocka_run_group_tests_name("io_config", tests, make_scratch, remove_scratch);
}
