/* test_text.c: text files as data sets (src/data/text.c), tokens in arrays, and training on sequences that have a class for
 * each position. */
#include "io/json.h"
#include "io_test.h"
#include "swoop/swoop.h"
#include <math.h>

static const char *write_text(const char *name, const char *content, size_t n)
{
    const char *const path = scratch_path(name);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* The first and last of each length; what RFC 3629 forbids: overlong forms, surrogates, more than U+10FFFF, cut ones. */
static void decoding(void **state)
{
    (void)state;
    static const struct { const char *s; size_t n; uint32_t code; } good[] = {
        { "\0", 1, 0 },          { "\x7f", 1, 0x7f },          { "\xc2\x80", 2, 0x80 },           { "\xdf\xbf", 2, 0x7ff },
        { "\xe0\xa0\x80", 3, 0x800 }, { "\xed\x9f\xbf", 3, 0xd7ff }, { "\xee\x80\x80", 3, 0xe000 },
        { "\xef\xbf\xbf", 3, 0xffff }, { "\xf0\x90\x80\x80", 4, 0x10000 }, { "\xf4\x8f\xbf\xbf", 4, 0x10ffff },
    };
    static const char *const bad[] = { "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\xc2", "\xe0\x9f\xbf",
                                       "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                                       "\xf5\x80\x80\x80", "\xff" };
    uint32_t code = 0;
    for (size_t i = 0; i < SW_COUNT(good); i++) {
        assert_int_equal(sw__utf8_decode(good[i].s, good[i].n + 1, &code), good[i].n);
        assert_int_equal(code, good[i].code);
        if (good[i].n > 1) assert_int_equal(sw__utf8_decode(good[i].s, good[i].n - 1, &code), 0);
    }
    for (size_t i = 0; i < SW_COUNT(bad); i++) assert_int_equal(sw__utf8_decode(bad[i], strlen(bad[i]), &code), 0);
    assert_int_equal(sw__utf8_decode("", 0, &code), 0);
    assert_int_equal(sw__utf8_check("a\xc3\xa4\xff", 4), 3);
    sw__text t = { 0 };
    sw__json_string(&t, "\xffzu\xc3\xa4\xe2\"\x01\xc2\x80\xed\xa0"); /* what is none goes through */
    assert_string_equal(t.s, "\"\xffzu\xc3\xa4\xe2\\\"\\u0001\\u0080\xed\xa0\"");
    sw__text_free(&t);
}

static void characters(void **state)
{
    (void)state;
    static const char content[] = "b\xc3\xa4" "ab\xe2\x82\xac\n" "a\xf0\x9f\x90\x9f" "b"; /* b ä a b € \n a 🐟 b: 9 characters */
    const char *const path = write_text("a.txt", content, sizeof content - 1);
    sw_dataset *d;
    OK(sw_dataset_open(path, &(sw_dataset_options){ .sequence = 4 }, &d));
    const sw_dataset_info *const info = sw_dataset_about(d);
    assert_string_equal(info->format, "text");
    assert_int_equal(info->count, 2);
    assert_int_equal(info->classes, 6);
    assert_int_equal(info->x_dtype, SW_I64);
    assert_int_equal(info->y_rank, 1);
    static const char *const names[] = { "\n", "a", "b", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\x9f" };
    for (int i = 0; i < 6; i++) assert_string_equal(sw_dataset_class_name(d, i), names[i]);
    static const int64_t all[] = { 2, 3, 1, 2, 4, 0, 1, 5, 2 };
    int64_t x[4], y[4];
    for (int64_t i = 0; i < 2; i++) {
        OK(sw_dataset_get(d, &i, 1, x, y));
        assert_memory_equal(x, all + 4 * i, sizeof x);
        assert_memory_equal(y, all + 4 * i + 1, sizeof y);
    }
    sw_dataset_close(d);
    OK(sw_dataset_open(path, &(sw_dataset_options){ .sequence = 14, .format = "bytes" }, &d));
    assert_int_equal(sw_dataset_about(d)->classes, 256);
    assert_int_equal(sw_dataset_about(d)->count, 1); /* 15 bytes */
    assert_null(sw_dataset_class_name(d, 0));
    sw_dataset_close(d);
}

static void many_characters(void **state)
{
    (void)state;
    char content[3 * 300];
    for (int i = 0; i < 300; i++) { /* U+4E00 and on */
        const int c = 0x4e00 + i;
        content[3 * i] = (char)(0xe0 | c >> 12);
        content[3 * i + 1] = (char)(0x80 | (c >> 6 & 63));
        content[3 * i + 2] = (char)(0x80 | (c & 63));
    }
    sw_dataset *d;
    OK(sw_dataset_open(write_text("wide.txt", content, sizeof content), &(sw_dataset_options){ .sequence = 299 }, &d));
    assert_int_equal(sw_dataset_about(d)->classes, 300);
    int64_t x[299], y[299];
    OK(sw_dataset_get(d, &(int64_t){ 0 }, 1, x, y));
    for (int i = 0; i < 299; i++) {
        assert_int_equal(x[i], i);
        assert_int_equal(y[i], i + 1);
    }
    sw_dataset_close(d);
}

static void refusals(void **state)
{
    (void)state;
    sw_dataset *d;
    FAILS(SW_ERR_FORMAT, sw_dataset_open(write_text("latin.txt", "caf\xe9 au lait", 12), NULL, &d), "byte 3", "0xe9", "bytes");
    FAILS(SW_ERR_FORMAT, sw_dataset_open(write_text("cut.txt", "ab\xe2\x82", 4), NULL, &d), "byte 2", "0xe2");
    FAILS(SW_ERR_FORMAT, sw_dataset_open(write_text("long.txt", "\xc0\x80", 2), NULL, &d), "byte 0"); /* overlong */
    FAILS(SW_ERR_DATA, sw_dataset_open(write_text("short.txt", "abc", 3), &(sw_dataset_options){ .sequence = 3 }, &d),
          "3 tokens", "sequence of 3");
    FAILS(SW_ERR_DATA, sw_dataset_open(write_text("empty.txt", "", 0), NULL, &d), "0 tokens");
    const sw_dataset_options seven = { .num_classes = 7, .sequence = 2 };
    FAILS(SW_ERR_ARGUMENT, sw_dataset_open(write_text("ab.txt", "abab", 4), &seven, &d), "num_classes is 7", "2 diff");
    FAILS(SW_ERR_DATA, sw_dataset_open(write_text("one.txt", "abcd", 4), &(sw_dataset_options){ .split = "test" }, &d), "no test split");
    static const char *const vocabulary[] = { "a", "b" };
    const sw_dataset_options known = { .sequence = 2, .vocabulary = vocabulary, .n_vocabulary = 2 };
    FAILS(SW_ERR_FORMAT, sw_dataset_open(write_text("other.txt", "abxab", 5), &known, &d), "byte 2", "'x' (U+0078)", "none of the 2");
    OK(sw_dataset_open(write_text("known.txt", "bab", 3), &known, &d));
    int64_t x[2], y[2];
    OK(sw_dataset_get(d, &(int64_t){ 0 }, 1, x, y));
    assert_true(x[0] == 1 && x[1] == 0 && y[1] == 1);
    sw_dataset_close(d);
}

/* The end of a text is held out, whatever the seed. */
static void split(void **state)
{
    (void)state;
    char content[101];
    for (int i = 0; i < 101; i++) content[i] = (char)('a' + i / 10 % 26);
    sw_dataset *d, *rest, *held;
    OK(sw_dataset_open(write_text("s.txt", content, sizeof content), &(sw_dataset_options){ .sequence = 10 }, &d));
    OK(sw_dataset_split(d, 0.2, 99, &rest, &held));
    assert_int_equal(sw_dataset_about(rest)->count, 8);
    int64_t x[10], y[10];
    OK(sw_dataset_get(held, &(int64_t){ 0 }, 1, x, y));
    assert_int_equal(x[0], 8);
    sw_dataset_close(rest);
    sw_dataset_close(held);
    sw_dataset_close(d);
}

/* Integers of one shape, in files: tokens, and the vocabulary is that of both. */
static void arrays(void **state)
{
    (void)state;
    static const int64_t x[3][4] = { { 7, 1, 2, 3 }, { 1, 2, 3, 0 }, { 2, 3, 0, 1 } };
    static const int64_t y[3][4] = { { 1, 2, 3, 0 }, { 2, 3, 0, 1 }, { 3, 0, 1, 2 } };
    const sw_array ax = { .dtype = SW_I64, .rank = 2, .shape = { 3, 4 }, .data = (void *)(uintptr_t)x, .bytes = sizeof x };
    const sw_array ay = { .dtype = SW_I64, .rank = 2, .shape = { 3, 4 }, .data = (void *)(uintptr_t)y, .bytes = sizeof y };
    char both[1024];
    OK(sw_npy_write(scratch_path("x.npy"), &ax));
    OK(sw_npy_write(scratch_path("y.npy"), &ay));
    snprintf(both, sizeof both, "%s/x.npy:%s/y.npy", scratch, scratch);
    sw_dataset *d;
    OK(sw_dataset_open(both, NULL, &d));
    assert_int_equal(sw_dataset_about(d)->x_dtype, SW_I64);
    assert_int_equal(sw_dataset_about(d)->target, SW_TARGET_CLASS);
    assert_int_equal(sw_dataset_about(d)->classes, 8);
    int64_t counts[8];
    OK(sw_dataset_class_counts(d, counts));
    assert_true(counts[0] == 3 && counts[3] == 3 && counts[7] == 0);
    sw_dataset_close(d);
    FAILS(SW_ERR_DATA, sw_dataset_open(both, &(sw_dataset_options){ .num_classes = 3 }, &d), "label 3 of sample 0");
}

/* ---- training -------------------------------------------------------------------------------------------------------- */

static sw_t next_of_two(sw_t x) /* [N, T] -> [N, T, 4] */
{
    return sw_linear(sw_embedding(x, 16, 4, .name = "emb"), 4, .name = "out");
}

static sw_t one_answer(sw_t x)
{
    return sw_linear(sw_flatten(sw_embedding(x, 4, 4, .name = "emb")), 4, .name = "out");
}

/* abcd abcd …: what comes next is certain, so accuracy is of positions, not of samples. */
static void learns(void **state)
{
    (void)state;
    char content[8 * 40 + 1];
    for (size_t i = 0; i < sizeof content; i++) content[i] = (char)('a' + i % 4);
    sw_dataset *d;
    sw_device *cpu;
    sw_trainer *t;
    OK(sw_dataset_open(write_text("abcd.txt", content, sizeof content), &(sw_dataset_options){ .sequence = 8 }, &d));
    OK(sw_device_open("cpu", NULL, &cpu));
    OK(sw_trainer_new(cpu, &(sw_trainer_options){ .model = next_of_two, .optimizer = sw_adamw(.lr = 0.05), .batch = 10 }, &t));
    sw_fit_result r;
    OK(sw_trainer_fit(t, d, &(sw_fit_options){ .epochs = 20, .valid = d }, &r));
    sw_metrics m;
    int64_t confusion[16] = { 0 };
    OK(sw_trainer_evaluate(t, d, &m, confusion));
    assert_true(m.accuracy == 1 && m.n == 40 && m.loss < 0.1 && r.valid.accuracy == 1);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) assert_int_equal(confusion[4 * a + b], a == b ? 80 : 0);
    float out[2][8][4];
    OK(sw_trainer_predict(t, d, NULL, 2, &out[0][0][0]));
    for (int i = 0; i < 8; i++)
        for (int c = 0; c < 4; c++) assert_true(out[1][i][(i + 1) % 4] >= out[1][i][c]);
    sw_trainer_free(t);
    OK(sw_trainer_new(cpu, &(sw_trainer_options){ .model = one_answer, .optimizer = sw_adamw() }, &t));
    FAILS(SW_ERR_SHAPE, sw_trainer_prepare(t, d), "f32[40,4]", "8 positions");
    sw_trainer_free(t);
    sw_device_close(cpu);
    sw_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(decoding), cmocka_unit_test(characters), cmocka_unit_test(many_characters),
                                        cmocka_unit_test(refusals),   cmocka_unit_test(split),
                                        cmocka_unit_test(arrays),     cmocka_unit_test(learns) };
    return cmocka_run_group_tests_name("text", tests, make_scratch, remove_scratch);
}
