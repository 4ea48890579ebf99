/* test_tasks.c: what is more than one class a sample, learnt by the trainer as PyTorch learns it (tests/golden/make_tasks.py):
 * masks of images, with class weights too; sequences by CTC; classes of texts. On ref, on the cpu, on opencl and on
 * SWOOP_TEST_DEVICE. And what data, models and losses refuse. */
#include "base/base.h"
#include "golden_fill.h"
#include "io_test.h"
#include "swoop/swoop.h"

#define GOLDEN SWOOP_TEST_DATA "/data/tasks.safetensors"
#define STEPS 5

static const double weights[] = { 0.5, 2, 1.25 };

static const struct task {
    const char *name, *input, *model;
    int rank;
    int64_t shape[4];
    bool tokens;
    const char *labels; /* made from this name; NULL: y */
    int y_rank;
    int64_t y_shape[3];
    int64_t y[12];
    sw_target target;
    bool weighted;
} tasks[] = {
    { "masks", "masks", "unet:4,2", 4, { 2, 2, 8, 12 }, .labels = "mask labels", .y_rank = 3, .y_shape = { 2, 8, 12 } },
    { "weighted", "masks", "unet:4,2", 4, { 2, 2, 8, 12 }, .labels = "mask labels", .y_rank = 3, .y_shape = { 2, 8, 12 },
      .weighted = true },
    { "ctc", "ctc", "crnn:3,4", 4, { 3, 1, 32, 40 }, .y_rank = 2, .y_shape = { 3, 4 },
      .y = { 1, 2, 2, -1, 4, -1, -1, -1, 3, 1, 2, 4 }, .target = SW_TARGET_SEQUENCE },
    { "texts", "texts", "transformer:2x2x8", 2, { 4, 10 }, .tokens = true, .y_rank = 1, .y_shape = { 4 }, .y = { 2, 0, 1, 2 } },
};

static sw_safetensors *file;

static const double *stored(const char *task, const char *what, int64_t n)
{
    char name[160];
    sw_array a;
    snprintf(name, sizeof name, "%s.%s", task, what);
    OK(sw_safetensors_array(file, name, &a));
    assert_int_equal(sw_array_count(&a), n);
    return a.data;
}

/* x and y of a task as arrays of its own. */
static void make_batch(const struct task *k, sw_array *x, sw_array *y)
{
    *x = (sw_array){ .dtype = k->tokens ? SW_I64 : SW_F32, .rank = k->rank };
    *y = (sw_array){ .dtype = SW_I64, .rank = k->y_rank };
    memcpy(x->shape, k->shape, sizeof k->shape);
    memcpy(y->shape, k->y_shape, sizeof k->y_shape);
    OK(sw__array_alloc(x, "x"));
    OK(sw__array_alloc(y, "y"));
    for (int64_t i = 0; i < sw_array_count(x); i++) {
        const double u = noise(key_of(k->input), i);
        if (k->tokens) ((int64_t *)x->data)[i] = (int64_t)floor((u + 0.5) * 256);
        else ((float *)x->data)[i] = (float)(4 * u);
    }
    for (int64_t i = 0; i < sw_array_count(y); i++)
        ((int64_t *)y->data)[i] = k->labels ? (int64_t)floor((noise(key_of(k->labels), i) + 0.5) * 3) : k->y[i];
}

/* Each parameter's sum and sum of magnitudes after the last step. */
static void check_final(const struct task *k, sw_params *p, double bound)
{
    for (int i = 0; i < sw_params_count(p); i++) {
        sw_var_info v;
        char name[128];
        double sum = 0, magnitude = 0;
        OK(sw_params_info(p, i, &v));
        if (v.kind != SW_VAR_PARAM) continue;
        snprintf(name, sizeof name, "final.%.100s", v.name);
        const double *const want = stored(k->name, name, 2);
        double *const have = test_malloc((size_t)v.elements * sizeof *have);
        OK(sw_params_get(p, i, SW_F64, have, v.elements));
        for (int64_t e = 0; e < v.elements; e++) {
            sum += have[e];
            magnitude += fabs(have[e]);
        }
        test_free(have);
        if (!(fabs(sum - want[0]) <= bound * want[1] && fabs(magnitude - want[1]) <= bound * want[1]))
            fail_msg("%s, %s: sums %.12g and %.12g instead of %.12g and %.12g", k->name, v.name, sum, magnitude, want[0], want[1]);
    }
}

static void learn(const struct task *k, const char *device, double bound)
{
    sw_device *d = NULL;
    sw_dataset *data = NULL;
    sw_trainer *t = NULL;
    sw_array x, y;
    make_batch(k, &x, &y);
    OK(sw_device_open(device, NULL, &d));
    OK(sw_dataset_from_memory(&x, &y, &(sw_dataset_options){ .target = k->target, .tokens = k->tokens }, &data));
    OK(sw_trainer_new(d, &(sw_trainer_options){ .model_name = k->model, .optimizer = sw_sgd(.lr = 0.05), .batch = k->shape[0],
                                                .class_weights = k->weighted ? weights : NULL,
                                                .n_class_weights = k->weighted ? 3 : 0 }, &t));
    OK(sw_trainer_prepare(t, data));
    for (int i = 0; i < sw_params_count(sw_trainer_params(t)); i++) {
        sw_var_info v;
        OK(sw_params_info(sw_trainer_params(t), i, &v));
        if (v.kind != SW_VAR_STATE) fill(sw_trainer_params(t), i);
    }
    const double *const want = stored(k->name, "losses", STEPS);
    for (int s = 0; s < STEPS; s++) {
        double loss = 0;
        OK(sw_trainer_step(t, x.data, y.data, k->shape[0], &loss));
        if (!(fabs(loss - want[s]) <= bound * (1 + fabs(want[s]))))
            fail_msg("%s on %s, step %d: loss %.12g instead of %.12g", k->name, device, s, loss, want[s]);
    }
    check_final(k, sw_trainer_params(t), bound);
    sw_trainer_free(t);
    sw_dataset_close(data);
    sw_device_close(d);
    sw_array_free(&x);
    sw_array_free(&y);
}

static void test_learn(void **state)
{
    (void)state;
    const char *const id = getenv("SWOOP_TEST_DEVICE");
    sw_device *opencl = NULL;
    const bool has_opencl = sw_device_open("opencl:0", NULL, &opencl) == SW_OK;
    sw_device_close(opencl);
    for (size_t i = 0; i < SW_COUNT(tasks); i++) {
        if (id) {
            learn(&tasks[i], id, 1e-3);
            continue;
        }
        learn(&tasks[i], "ref", 2e-6); /* inputs and parameters are stored in single precision between steps */
        learn(&tasks[i], "cpu", 1e-3);
        if (has_opencl) learn(&tasks[i], "opencl:0", 1e-3);
    }
}

/* ---- masks --------------------------------------------------------------------------------------------------------- */

static sw_array floats(float *data, size_t bytes, int rank, const int64_t *shape)
{
    sw_array a = { .dtype = SW_F32, .rank = rank, .data = data, .bytes = bytes };
    memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    return a;
}

static sw_array labels(int64_t *data, size_t bytes, int rank, const int64_t *shape)
{
    sw_array a = { .dtype = SW_I64, .rank = rank, .data = data, .bytes = bytes };
    memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    return a;
}

static const sw_dataset_info *about(const sw_array *x, const sw_array *y, sw_target target, sw_dataset **d)
{
    sw_dataset_close(*d);
    *d = NULL;
    OK(sw_dataset_from_memory(x, y, &(sw_dataset_options){ .target = target }, d));
    return sw_dataset_about(*d);
}

/* Whole numbers over the places of an image are classes; others stay values. */
static void test_mask_data(void **state)
{
    (void)state;
    static float x[2 * 3 * 4 * 5];
    static int64_t y[2 * 4 * 5] = { 6 };
    sw_dataset *d = NULL;
    const sw_array images = floats(x, sizeof x, 4, (int64_t[]){ 2, 3, 4, 5 });
    const sw_array plain = labels(y, sizeof y, 3, (int64_t[]){ 2, 4, 5 }), channel = labels(y, sizeof y, 4, (int64_t[]){ 2, 1, 4, 5 }),
                   other = labels(y, sizeof y, 3, (int64_t[]){ 2, 5, 4 });
    const sw_dataset_info *i = about(&images, &plain, SW_TARGET_AUTO, &d);
    assert_true(i->target == SW_TARGET_CLASS && i->classes == 7 && i->y_rank == 2 && i->y_shape[0] == 4 && i->y_shape[1] == 5);
    int64_t counts[7];
    OK(sw_dataset_class_counts(d, counts));
    assert_true(counts[0] == 39 && counts[6] == 1);
    i = about(&images, &channel, SW_TARGET_AUTO, &d);
    assert_true(i->target == SW_TARGET_CLASS && i->y_rank == 2 && i->y_shape[0] == 4 && i->y_shape[1] == 5);
    i = about(&images, &other, SW_TARGET_AUTO, &d);
    assert_true(i->target == SW_TARGET_VALUE && i->y_rank == 2);
    i = about(&images, &plain, SW_TARGET_VALUE, &d);
    assert_int_equal(i->target, SW_TARGET_VALUE);
    sw_dataset_close(d);
    y[7] = -1;
    FAILS(SW_ERR_DATA, sw_dataset_from_memory(&images, &plain, NULL, &d), "label -1 of sample 0");
    y[7] = 0;
    FAILS(SW_ERR_DATA, sw_dataset_from_memory(&images, &plain, &(sw_dataset_options){ .num_classes = 6 }, &d), "there are 6 classes");
    y[0] = 0;
}

static void fails_to_prepare(const sw_dataset *d, const sw_trainer_options *o, sw_status status, const char *why)
{
    sw_device *cpu = NULL;
    sw_trainer *t = NULL;
    OK(sw_device_open("cpu", NULL, &cpu));
    OK(sw_trainer_new(cpu, o, &t));
    FAILS(status, sw_trainer_prepare(t, d), why);
    sw_trainer_free(t);
    sw_device_close(cpu);
}

static sw_t two_axes(sw_t x) { return sw_linear(sw_flatten(x), 3); }

static void test_mask_errors(void **state)
{
    (void)state;
    static float x[2 * 3 * 4 * 8];
    static int64_t y[2 * 4 * 8] = { 2 };
    sw_dataset *d = NULL;
    const sw_array images = floats(x, sizeof x, 4, (int64_t[]){ 2, 3, 4, 8 }), masks = labels(y, sizeof y, 3, (int64_t[]){ 2, 4, 8 });
    OK(sw_dataset_from_memory(&images, &masks, NULL, &d));
    fails_to_prepare(d, &(sw_trainer_options){ .model = two_axes }, SW_ERR_SHAPE, "masks are what model unet learns");
    fails_to_prepare(d, &(sw_trainer_options){ .model_name = "unet:4,2", .outputs = 2 }, SW_ERR_DATA, "3 classes but the model only 2");
    fails_to_prepare(d, &(sw_trainer_options){ .model_name = "unet:4,2", .loss = sw_ctc }, SW_ERR_ARGUMENT, "loss ctc needs sequences");
    sw_dataset_close(d);
}

/* ---- sequences ----------------------------------------------------------------------------------------------------- */

static void test_sequence_data(void **state)
{
    (void)state;
    static float x[3 * 2];
    static int64_t y[3 * 3] = { 1, 1, 4, 2, -1, -1, 3, 3, 3 };
    sw_dataset *d = NULL;
    const sw_array in = floats(x, sizeof x, 2, (int64_t[]){ 3, 2 }), answers = labels(y, sizeof y, 2, (int64_t[]){ 3, 3 });
    const sw_dataset_info *const i = about(&in, &answers, SW_TARGET_SEQUENCE, &d);
    assert_true(i->target == SW_TARGET_SEQUENCE && i->classes == 5 && i->y_rank == 1 && i->y_shape[0] == 3);
    assert_int_equal(i->longest, 5); /* 3 blank 3 blank 3 */
    assert_int_equal(i->y_dtype, SW_I64);
    sw_dataset_close(d);
    const sw_dataset_options o = { .target = SW_TARGET_SEQUENCE };
    y[1] = 0;
    FAILS(SW_ERR_DATA, sw_dataset_from_memory(&in, &answers, &o, &d), "label 1 of sample 0 is 0", "the blank");
    y[1] = 1;
    y[5] = 2;
    FAILS(SW_ERR_DATA, sw_dataset_from_memory(&in, &answers, &o, &d), "sample 1 has label 2 after a negative one");
    y[5] = -1;
    FAILS(SW_ERR_DATA, sw_dataset_from_memory(&in, &answers, &(sw_dataset_options){ .target = SW_TARGET_SEQUENCE, .num_classes = 4 }, &d),
          "label 4 is out of range");
    const sw_array values = floats(x, sizeof x, 2, (int64_t[]){ 3, 2 });
    FAILS(SW_ERR_DATA, sw_dataset_from_memory(&in, &values, &o, &d), "sequences are integers");
}

/* Lengths beside y, in an archive: what comes after them is not read. */
static void test_lengths(void **state)
{
    (void)state;
    static float x[2 * 4];
    static int64_t y[2 * 3] = { 5, 9, 0, 2, 2, 1 }, n[2] = { 1, 2 };
    sw_dataset *d = NULL;
    const sw_array arrays[] = { floats(x, sizeof x, 2, (int64_t[]){ 2, 4 }), labels(y, sizeof y, 2, (int64_t[]){ 2, 3 }),
                                labels(n, sizeof n, 1, (int64_t[]){ 2 }) };
    const sw_named_array named[] = { { "x", arrays[0] }, { "y", arrays[1] }, { "y_lengths", arrays[2] } };
    OK(sw_safetensors_write("sequences.safetensors", named, 3, NULL, 0));
    OK(sw_dataset_open("sequences.safetensors", &(sw_dataset_options){ .target = SW_TARGET_SEQUENCE }, &d));
    float sample[2 * 4];
    int64_t read[2 * 3];
    OK(sw_dataset_get(d, (int64_t[]){ 0, 1 }, 2, sample, read));
    assert_memory_equal(read, ((int64_t[]){ 5, -1, -1, 2, 2, -1 }), sizeof read);
    assert_int_equal(sw_dataset_about(d)->classes, 6);
    assert_int_equal(sw_dataset_about(d)->longest, 3);
    sw_dataset_close(d);
    n[1] = 4;
    OK(sw_safetensors_write("sequences.safetensors", named, 3, NULL, 0));
    FAILS(SW_ERR_DATA, sw_dataset_open("sequences.safetensors", &(sw_dataset_options){ .target = SW_TARGET_SEQUENCE }, &d),
          "the length of sample 1 is 4");
}

/* The likeliest class of each step, without blanks and repetitions; and the distance to the answer. */
static void test_greedy(void **state)
{
    (void)state;
    static const float logits[6][3] = { { 1, 0, 0 }, { 0, 2, 1 }, { 0, 2, 1 }, { 3, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } };
    int64_t read[6];
    assert_int_equal(sw_ctc_greedy(&logits[0][0], 6, 3, read), 3);
    assert_true(read[0] == 1 && read[1] == 1 && read[2] == 2);
    assert_int_equal(sw_ctc_greedy(&logits[0][0], 1, 3, read), 0);
}

/* A model that reads "12" wherever it looks, against answers that are so many edits away. */
static sw_t reads_12(sw_t x)
{
    static const double table[2][3] = { { 0, 5, 0 }, { 0, 0, 5 } };
    const sw_t rows = sw_cast(sw_literal(x.graph, SW_F64, 2, (int64_t[]){ 2, 3 }, table), SW_F32);
    const sw_t zero = sw_mul_scalar(sw_linear(x, 6, .name = "fc"), 0); /* there has to be something to learn */
    const sw_t wide = sw_reshape(zero, 3, (int64_t[]){ sw_dim(x, 0), 2, 3 });
    return sw_add(wide, sw_expand(sw_reshape(rows, 3, (int64_t[]){ 1, 2, 3 }), 3, (int64_t[]){ sw_dim(x, 0), 2, 3 }));
}

static void test_label_errors(void **state)
{
    (void)state;
    static float x[4 * 2];
    static int64_t y[4 * 2] = { 1, 2, 2, -1, 2, 1, -1, -1 }; /* 0, 1, 2 and 2 edits; 5 labels */
    sw_dataset *d = NULL;
    sw_device *cpu = NULL;
    sw_trainer *t = NULL;
    sw_metrics m;
    const sw_array in = floats(x, sizeof x, 2, (int64_t[]){ 4, 2 }), answers = labels(y, sizeof y, 2, (int64_t[]){ 4, 2 });
    OK(sw_dataset_from_memory(&in, &answers, &(sw_dataset_options){ .target = SW_TARGET_SEQUENCE }, &d));
    OK(sw_device_open("cpu", NULL, &cpu));
    OK(sw_trainer_new(cpu, &(sw_trainer_options){ .model = reads_12, .batch = 3 }, &t));
    OK(sw_trainer_evaluate(t, d, &m, NULL));
    assert_int_equal(m.n, 4);
    assert_true(fabs(m.accuracy - 0.25) < 1e-12 && fabs(m.label_errors - 1) < 1e-12);
    sw_trainer_free(t);
    sw_device_close(cpu);
    sw_dataset_close(d);
}

static void test_sequence_errors(void **state)
{
    (void)state;
    static float x[1 * 32 * 8];
    static int64_t y[4] = { 1, 1, 1, 2 };
    sw_dataset *d = NULL;
    const sw_array in = floats(x, sizeof x, 4, (int64_t[]){ 1, 1, 32, 8 }), answers = labels(y, sizeof y, 2, (int64_t[]){ 1, 4 });
    OK(sw_dataset_from_memory(&in, &answers, &(sw_dataset_options){ .target = SW_TARGET_SEQUENCE }, &d));
    fails_to_prepare(d, &(sw_trainer_options){ .model_name = "crnn:2,2" }, SW_ERR_DATA, "the longest answer needs 6 steps");
    fails_to_prepare(d, &(sw_trainer_options){ .model_name = "mlp:4" }, SW_ERR_SHAPE, "[batch, steps, classes]");
    fails_to_prepare(d, &(sw_trainer_options){ .model_name = "crnn:2,2", .loss = sw_cross_entropy }, SW_ERR_ARGUMENT,
                     "the answers are sequences, for loss ctc");
    sw_dataset_close(d);
}

/* ---- texts --------------------------------------------------------------------------------------------------------- */

static void write_file(const char *name, const char *text)
{
    FILE *const f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_lines(void **state)
{
    (void)state;
    sw_dataset *d = NULL;
    write_file("reviews.tsv", "good\tnice\r\nbad\tno\tgood\n\nbad\t\xc3\xa4\ngood\tlong enough to be cut");
    OK(sw_dataset_open("reviews.tsv", &(sw_dataset_options){ .sequence = 6 }, &d));
    const sw_dataset_info *const i = sw_dataset_about(d);
    assert_true(i->count == 4 && i->classes == 2 && i->x_rank == 1 && i->x_shape[0] == 6 && i->x_dtype == SW_I64);
    assert_true(i->target == SW_TARGET_CLASS && i->y_rank == 0 && i->vocabulary == 0xc3 + 1);
    assert_string_equal(sw_dataset_class_name(d, 0), "bad");
    assert_string_equal(sw_dataset_class_name(d, 1), "good");
    int64_t x[4 * 6], y[4];
    OK(sw_dataset_get(d, (int64_t[]){ 0, 1, 2, 3 }, 4, x, y));
    const int64_t want[4 * 6] = { 'n', 'i', 'c', 'e', 0, 0, 'n', 'o', '\t', 'g', 'o', 'o', 0xc3, 0xa4, 0, 0, 0, 0, 'l', 'o', 'n',
                                  'g', ' ', 'e' };
    assert_memory_equal(x, want, sizeof want);
    assert_memory_equal(y, ((int64_t[]){ 1, 0, 0, 1 }), sizeof y);
    sw_dataset_close(d);
    const char *const names[] = { "good", "bad" }; /* as a model has them */
    OK(sw_dataset_open("reviews.tsv", &(sw_dataset_options){ .vocabulary = names, .n_vocabulary = 2 }, &d));
    OK(sw_dataset_get(d, (int64_t[]){ 1 }, 1, (int64_t[128]){ 0 }, y));
    assert_int_equal(y[0], 1);
    sw_dataset_close(d);
    write_file("plain.tsv", "a text without a label\n");
    FAILS(SW_ERR_DATA, sw_dataset_open("plain.tsv", NULL, &d), "line 1", "has no label");
    OK(sw_dataset_open("plain.tsv", &(sw_dataset_options){ .target = SW_TARGET_NONE }, &d));
    assert_int_equal(sw_dataset_about(d)->count, 1);
    sw_dataset_close(d);
    write_file("other.tsv", "ugly\ttext\n");
    FAILS(SW_ERR_DATA, sw_dataset_open("other.tsv", &(sw_dataset_options){ .vocabulary = names, .n_vocabulary = 2 }, &d), "'ugly'",
          "none of the 2");
    write_file("empty.tsv", "\n\n");
    FAILS(SW_ERR_DATA, sw_dataset_open("empty.tsv", NULL, &d), "no lines");
    write_file("latin.tsv", "caf\xe9\ttext\n");
    FAILS(SW_ERR_DATA, sw_dataset_open("latin.tsv", NULL, &d), "caf\\xe9", "UTF-8");
}

/* Integers for a model that reads tokens; and tokens that it has no row for. */
static void test_tokens(void **state)
{
    (void)state;
    static int64_t x[3 * 4] = { 1, 2, 3, 4, 300 }, y[3] = { 0, 1, 1 };
    sw_dataset *d = NULL;
    const sw_array in = labels(x, sizeof x, 2, (int64_t[]){ 3, 4 }), answers = labels(y, sizeof y, 1, (int64_t[]){ 3 });
    OK(sw_dataset_from_memory(&in, &answers, &(sw_dataset_options){ .integers_are_tokens = true }, &d));
    assert_true(sw_dataset_about(d)->x_dtype == SW_I64 && sw_dataset_about(d)->vocabulary == 301);
    fails_to_prepare(d, &(sw_trainer_options){ .model_name = "transformer:1x2x8" }, SW_ERR_DATA, "transformer:2x4x64x301");
    sw_dataset_close(d);
}

static int set_up(void **state)
{
    (void)state;
    OK(sw_safetensors_open(GOLDEN, &file));
    if (make_scratch(state) != 0) return -1;
    return chdir(scratch);
}

static int tear_down(void **state)
{
    sw_safetensors_close(file);
    return chdir("/") != 0 ? -1 : remove_scratch(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learn),           cmocka_unit_test(test_mask_data),    cmocka_unit_test(test_mask_errors),
        cmocka_unit_test(test_sequence_data),   cmocka_unit_test(test_lengths),      cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_label_errors),    cmocka_unit_test(test_sequence_errors), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
