/* test_data_sets.c: opening by name, folder, pair, archive; labels, shapes, normalisation, splits; memory, callbacks.
 * Tests of src/data/{open,arrange,dataset,get,storage}.c. */
#include "io_test.h"
#include "swoop/data.h"
#include <sys/stat.h>

static sw_array array_of(sw_dtype t, const void *data, int rank, const int64_t *shape)
{
    sw_array a = { .dtype = t, .rank = rank, .data = (void *)(uintptr_t)data };
    memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    a.bytes = (size_t)sw_array_count(&a) * sw_dtype_size(t);
    return a;
}
#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[])                                           \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void write_npy(const char *name, sw_dtype t, const void *data, int rank, const int64_t *shape)
{
    const sw_array a = array_of(t, data, rank, shape);
    OK(sw_npy_write(scratch_path(name), &a));
}

/* ---- what ships -------------------------------------------------------------------------------------------------- */

static void digits(void **state)
{
    (void)state;
    sw_dataset *train, *test;
    OK(sw_dataset_open("digits", NULL, &train));
    OK(sw_dataset_open("digits", &(sw_dataset_options){ .split = "test" }, &test));
    const sw_dataset_info *const info = sw_dataset_about(train);
    assert_string_equal(info->name, "digits");
    assert_string_equal(info->format, "IDX");
    assert_int_equal(info->count, 1442);
    assert_int_equal(sw_dataset_about(test)->count, 355);
    assert_int_equal(info->classes, 10);
    assert_int_equal(info->target, SW_TARGET_CLASS);
    assert_int_equal(info->x_rank, 3);
    assert_int_equal(info->x_shape[0], 1);
    assert_int_equal(info->x_shape[2], 8);
    assert_int_equal(info->x_dtype, SW_F32);
    assert_int_equal(info->x_storage, SW_U8);
    assert_string_equal(sw_dataset_class_name(train, 7), "7");
    assert_null(sw_dataset_class_name(train, 10));
    assert_true(sw_dataset_has_split("digits", NULL, "test"));
    OK(sw_dataset_ready(train));

    /* The first sample, as scikit-learn shows it: a zero with values 0 5 13 9 1 in its first row. */
    float x[64];
    int64_t y;
    OK(sw_dataset_get(train, &(int64_t){ 0 }, 1, x, &y));
    assert_int_equal(y, 0);
    assert_true(x[0] == 0 && x[2] == 5 / 255.0f && x[3] == 13 / 255.0f && x[4] == 9 / 255.0f && x[5] == 1 / 255.0f);
    sw_dataset_close(train);
    sw_dataset_close(test);
    sw_dataset_close(NULL);
}

/* ---- where and what ---------------------------------------------------------------------------------------------- */

static void names(void **state)
{
    (void)state;
    sw_dataset *d;
    FAILS(SW_ERR_DATA, sw_dataset_open("digtis", NULL, &d), "'digtis' is neither a file", "did you mean 'digits'");
    FAILS(SW_ERR_DATA, sw_dataset_open("/no/such/path", NULL, &d), "/no/such/path");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_open("digits", &(sw_dataset_options){ .split = "val" }, &d), "split 'val'");
    FAILS(SW_ERR_DATA, sw_dataset_open("digits", &(sw_dataset_options){ .format = "npz" }, &d), "is IDX, not npz");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_open("digits", &(sw_dataset_options){ .format = "cvs" }, &d), "'cvs'");
    FAILS(SW_ERR_DATA, sw_dataset_open(scratch, NULL, &d), "no train-images*", "x_train.npy");
    setenv("SWOOP_DATA", scratch, 1);
    mkdir(scratch_path("digits"), 0755);
    FAILS(SW_ERR_DATA, sw_dataset_open("digits", NULL, &d), "/digits has no train-images*");
    rmdir(scratch_path("digits"));
    unsetenv("SWOOP_DATA");
}

static const uint8_t pixels[12] = { 0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6 };
static const int64_t labels[3] = { 2, 0, 1 };

static void check_small(sw_dataset *d)
{
    const sw_dataset_info *const info = sw_dataset_about(d);
    float x[12];
    int64_t y[3];
    assert_int_equal(info->count, 3);
    assert_int_equal(info->classes, 3);
    OK(sw_dataset_get(d, (int64_t[]){ 2, 0, 1 }, 3, x, y));
    for (int i = 0; i < 12; i++) assert_true(x[i] == (float)pixels[(i + 8) % 12] / 255.0f);
    assert_int_equal(y[0], 1);
    assert_int_equal(y[1], 2);
    FAILS(SW_ERR_ARGUMENT, sw_dataset_get(d, (int64_t[]){ 3 }, 1, x, y), "no sample 3 among 3");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_get(d, (int64_t[]){ -1 }, 1, x, y), "no sample -1");
    sw_dataset_close(d);
}

static void pairs_and_folders(void **state)
{
    (void)state;
    sw_dataset *d;
    char both[600];
    write_npy("x.npy", SW_U8, pixels, SHAPE(3, 4));
    write_npy("y.npy", SW_I64, labels, SHAPE(3));
    snprintf(both, sizeof both, "%s:%s", scratch_path("x.npy"), scratch_path("y.npy"));
    OK(sw_dataset_open(both, NULL, &d));
    assert_string_equal(sw_dataset_about(d)->format, "NPY");
    check_small(d);
    OK(sw_dataset_open(scratch, NULL, &d));
    check_small(d);
    FAILS(SW_ERR_DATA, sw_dataset_open(both, &(sw_dataset_options){ .split = "test" }, &d), "no test split");
    assert_false(sw_dataset_has_split(both, NULL, "test"));
    assert_false(sw_dataset_has_split(scratch, NULL, "test"));
    write_npy("x_test.npy", SW_U8, pixels, SHAPE(3, 4));
    write_npy("y_test.npy", SW_I64, labels, SHAPE(3));
    assert_true(sw_dataset_has_split(scratch, NULL, "test"));
    OK(sw_dataset_open(scratch, &(sw_dataset_options){ .split = "test" }, &d));
    check_small(d);

    FAILS(SW_ERR_DATA, sw_dataset_open(scratch_path("x.npy"), NULL, &d), "x.npy comes without y");
    OK(sw_dataset_open(scratch_path("x.npy"), &(sw_dataset_options){ .target = SW_TARGET_NONE }, &d));
    assert_int_equal(sw_dataset_about(d)->target, SW_TARGET_NONE);
    float x[4];
    OK(sw_dataset_get(d, &(int64_t){ 1 }, 1, x, NULL));
    assert_true(x[1] == 1);
    sw_dataset_close(d);
}

static void archives(void **state)
{
    (void)state;
    sw_dataset *d;
    float x[3];
    int64_t y;
    OK(sw_dataset_open(sample_path("numpy.npz"), NULL, &d));
    assert_string_equal(sw_dataset_about(d)->format, "NPZ");
    OK(sw_dataset_get(d, &(int64_t){ 4 }, 1, x, &y));
    assert_true(x[0] == (12 - 5) / 4.0f);
    assert_int_equal(y, 1);
    sw_dataset_close(d);
    FAILS(SW_ERR_DATA, sw_dataset_open(sample_path("numpy.npz"), &(sw_dataset_options){ .split = "test" }, &d),
          "'x_test'");
    assert_false(sw_dataset_has_split(sample_path("numpy.npz"), NULL, "test"));

    const float values[6] = { 1, 2, 3, 4, 5, 6 };
    const sw_named_array t[] = { { "x", array_of(SW_F32, values, SHAPE(3, 2)) },
                                 { "y", array_of(SW_I64, labels, SHAPE(3)) },
                                 { "x_test", array_of(SW_F32, values, SHAPE(1, 6)) },
                                 { "y_test", array_of(SW_I64, labels, SHAPE(1)) } };
    OK(sw_safetensors_write(scratch_path("d.safetensors"), t, 4, NULL, 0));
    OK(sw_dataset_open(scratch_path("d.safetensors"), NULL, &d));
    assert_string_equal(sw_dataset_about(d)->format, "safetensors");
    assert_int_equal(sw_dataset_about(d)->x_shape[0], 2);
    OK(sw_dataset_get(d, &(int64_t){ 2 }, 1, x, &y));
    assert_true(x[0] == 5 && y == 1);
    sw_dataset_close(d);
    OK(sw_dataset_open(scratch_path("d.safetensors"), &(sw_dataset_options){ .split = "test" }, &d));
    assert_int_equal(sw_dataset_about(d)->x_shape[0], 6);
    sw_dataset_close(d);
    assert_true(sw_dataset_has_split(scratch_path("d.safetensors"), NULL, "test"));
}

static void batches(void **state)
{
    (void)state;
    float x[2 * 3 * 4];
    int64_t y[6];
    for (int i = 0; i < 24; i++) x[i] = (float)i;
    for (int i = 0; i < 6; i++) y[i] = i % 3;
    const sw_named_array t[] = { { "x", array_of(SW_F32, x, SHAPE(2, 3, 4)) },
                                 { "y", array_of(SW_I64, y, SHAPE(2, 3)) } };
    OK(sw_safetensors_write(scratch_path("b.safetensors"), t, 2, NULL, 0));
    sw_dataset *d;
    OK(sw_dataset_open(scratch_path("b.safetensors"), &(sw_dataset_options){ .format = "batches" }, &d));
    assert_int_equal(sw_dataset_about(d)->count, 6);
    assert_int_equal(sw_dataset_about(d)->x_rank, 1);
    assert_int_equal(sw_dataset_about(d)->classes, 3);
    float one[4];
    int64_t label;
    OK(sw_dataset_get(d, &(int64_t){ 5 }, 1, one, &label));
    assert_true(one[0] == 20 && label == 2);
    sw_dataset_close(d);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static sw_status from_memory(sw_array x, sw_array y, sw_dataset_options o)
{
    sw_dataset *d;
    SW_TRY(sw_dataset_from_memory(&x, &y, &o, &d));
    sw_dataset_close(d);
    return SW_OK;
}

static void bad_data(void **state)
{
    (void)state;
    const int32_t y[4] = { 0, 1, 12, -1 };
    const float x[4] = { 0, NAN, 1, INFINITY };
    const sw_array good_x = array_of(SW_U8, pixels, SHAPE(3, 4)), none = array_of(SW_U8, pixels, SHAPE(0, 4));
    const sw_array flat = array_of(SW_U8, pixels, SHAPE(3, 0)), y3 = array_of(SW_I32, y, SHAPE(3));
    const sw_dataset_options ten = { .num_classes = 10 }, any = { 0 };
    OK(from_memory(good_x, y3, any));
    OK(from_memory(good_x, y3, (sw_dataset_options){ .num_classes = 13 }));
    FAILS(SW_ERR_DATA, from_memory(good_x, y3, ten), "y: label 12 of sample 2 is out of range", "10 classes, 0 to 9");
    FAILS(SW_ERR_DATA, from_memory(array_of(SW_U8, pixels, SHAPE(4, 3)), array_of(SW_I32, y, SHAPE(4)), any),
          "label -1 of sample 3 is negative");
    FAILS(SW_ERR_DATA, from_memory(good_x, array_of(SW_I32, y, SHAPE(4)), any), "x has 3 samples, but y has 4");
    FAILS(SW_ERR_DATA, from_memory(none, array_of(SW_I32, y, SHAPE(0)), any), "x holds no samples");
    FAILS(SW_ERR_DATA, from_memory(flat, y3, any), "samples of shape 0 are empty");
    FAILS(SW_ERR_DATA, from_memory(array_of(SW_F32, x, SHAPE(2, 2)), array_of(SW_I32, y, SHAPE(2)), any),
          "x: value 1 of sample 0 is NaN");
    FAILS(SW_ERR_DATA, from_memory(array_of(SW_F32, x + 2, SHAPE(2, 1)), array_of(SW_I32, y, SHAPE(2)), any),
          "value 0 of sample 1 is infinite");
    FAILS(SW_ERR_DATA, from_memory(good_x, array_of(SW_F32, x, SHAPE(3)), any), "y: y of sample 1 is not finite");
    const float half[3] = { 0, 0.5f, 1 };
    FAILS(SW_ERR_DATA,
          from_memory(good_x, array_of(SW_F32, half, SHAPE(3)), (sw_dataset_options){ .target = SW_TARGET_CLASS }),
          "label 0.5 of sample 1 is no class number");
    FAILS(SW_ERR_DATA,
          from_memory(good_x, array_of(SW_I32, y, SHAPE(3, 0)), (sw_dataset_options){ .target = SW_TARGET_CLASS }),
          "samples without labels");
    const int64_t huge[3] = { 0, 1, INT64_MAX };
    FAILS(SW_ERR_DATA, from_memory(good_x, array_of(SW_I64, huge, SHAPE(3)), any),
          "label 9223372036854775807 of sample 2");
    sw_array broken = good_x;
    broken.bytes--;
    FAILS(SW_ERR_ARGUMENT, from_memory(broken, y3, any), "do not agree");
    FAILS(SW_ERR_DATA, from_memory(array_of(SW_F32, half, SHAPE(3)), y3, (sw_dataset_options){ .tokens = true }),
          "tokens");
    FAILS(SW_ERR_DATA, from_memory(good_x, y3, (sw_dataset_options){ .shape_rank = 2, .shape = { 3, 2 } }),
          "samples of shape 4 cannot be taken for 3x2");

    /* From a file, the message names it. */
    const uint8_t idx[] = { 0, 0, 8, 1, 0, 0, 0, 3, 0, 11, 1 };
    write_scratch("labels.idx", idx, sizeof idx);
    write_npy("images.npy", SW_U8, pixels, SHAPE(3, 4));
    char both[600];
    snprintf(both, sizeof both, "%s:%s", scratch_path("images.npy"), scratch_path("labels.idx"));
    sw_dataset *d;
    FAILS(SW_ERR_DATA, sw_dataset_open(both, &ten, &d), "labels.idx: label 11 of sample 1");
}

/* ---- shapes and types -------------------------------------------------------------------------------------------- */

static sw_dataset *open_npy(sw_dtype t, const void *data, int rank, const int64_t *shape, sw_dataset_options o)
{
    write_npy("only_x.npy", t, data, rank, shape);
    sw_dataset *d;
    o.target = SW_TARGET_NONE;
    OK(sw_dataset_open(scratch_path("only_x.npy"), &o, &d));
    return d;
}

static void check_shape(sw_dataset *d, int rank, const int64_t *shape)
{
    const sw_dataset_info *const info = sw_dataset_about(d);
    assert_int_equal(info->x_rank, rank);
    assert_memory_equal(info->x_shape, shape, (size_t)rank * sizeof *shape);
    sw_dataset_close(d);
}

static void shapes(void **state)
{
    (void)state;
    const sw_dataset_options any = { 0 };
    float values[24] = { 0 };
    check_shape(open_npy(SW_U8, pixels, SHAPE(12), any), SHAPE(1));
    check_shape(open_npy(SW_U8, pixels, SHAPE(3, 4), any), SHAPE(4));
    check_shape(open_npy(SW_U8, pixels, SHAPE(3, 2, 2), any), SHAPE(1, 2, 2));
    check_shape(open_npy(SW_F32, values, SHAPE(3, 4, 2), any), SHAPE(1, 4, 2));
    check_shape(open_npy(SW_U8, pixels, SHAPE(2, 3, 2, 1), any), SHAPE(3, 2, 1));  /* channels are first already */
    check_shape(open_npy(SW_U8, pixels, SHAPE(2, 2, 1, 3), any), SHAPE(3, 2, 1));  /* last: moved */
    check_shape(open_npy(SW_F32, values, SHAPE(2, 2, 2, 3), any), SHAPE(2, 2, 3)); /* not images */
    check_shape(open_npy(SW_U8, pixels, SHAPE(3, 4), (sw_dataset_options){ .shape_rank = 3, .shape = { 1, 2, 2 } }),
                SHAPE(1, 2, 2));
    const int64_t codes[6] = { 5, 4, 3, 2, 1, 0 };
    sw_dataset *d = open_npy(SW_I64, codes, SHAPE(1, 2, 3), (sw_dataset_options){ .tokens = true });
    int64_t got[6];
    assert_int_equal(sw_dataset_about(d)->x_dtype, SW_I64);
    OK(sw_dataset_get(d, &(int64_t){ 0 }, 1, got, NULL));
    assert_memory_equal(codes, got, sizeof codes);
    sw_normalization n;
    FAILS(SW_ERR_ARGUMENT, sw_dataset_measure(d, &n), "tokens");
    check_shape(d, SHAPE(2, 3));
}

/* 8-bit images with channels last are delivered channels first. */
static void channels_last(void **state)
{
    (void)state;
    sw_dataset *d = open_npy(SW_U8, pixels, SHAPE(1, 2, 2, 3), (sw_dataset_options){ 0 });
    float x[12];
    OK(sw_dataset_get(d, &(int64_t){ 0 }, 1, x, NULL));
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 4; i++) assert_true(x[c * 4 + i] == (float)pixels[i * 3 + c] / 255.0f);
    }
    sw_normalization n;
    OK(sw_dataset_measure(d, &n));
    assert_int_equal(n.channels, 3);
    assert_true(fabsf(n.mean[1] - (51 + 204 + 2 + 5) / 4.0f / 255) < 1e-6f);
    OK(sw_dataset_normalize(d, &n));
    OK(sw_dataset_get(d, &(int64_t){ 0 }, 1, x, NULL));
    for (int c = 0; c < 3; c++) {
        float sum = 0;
        for (int i = 0; i < 4; i++) sum += x[c * 4 + i];
        assert_true(fabsf(sum) < 1e-5f);
    }
    sw_normalization_free(&n);
    sw_dataset_close(d);
}

/* Every storage type arrives as f32, and every kind of y as i64 or f32. */
static void types(void **state)
{
    (void)state;
    const double v[4] = { 0, 1, 2, 100 };
    for (int t = 0; t < SW_DTYPE_COUNT; t++) {
        uint8_t raw[4 * 8], raw_y[4 * 8];
        sw__convert(raw, (sw_dtype)t, v, SW_F64, 4);
        sw__convert(raw_y, (sw_dtype)t, v, SW_F64, 4);
        const sw_array x = array_of((sw_dtype)t, raw, SHAPE(4)), y = array_of((sw_dtype)t, raw_y, SHAPE(4));
        sw_dataset *d;
        OK(sw_dataset_from_memory(&x, &y, NULL, &d));
        const bool classes = !sw__dtype_is_float((sw_dtype)t);
        assert_int_equal(sw_dataset_about(d)->target, classes ? SW_TARGET_CLASS : SW_TARGET_VALUE);
        float got;
        union {
            int64_t i;
            float f;
        } label;
        OK(sw_dataset_get(d, &(int64_t){ 3 }, 1, &got, &label));
        const double want = t == SW_BOOL ? 1 : 100;
        assert_true((double)got == (t == SW_U8 ? (double)(100 / 255.0f) : want));
        assert_true(classes ? label.i == (int64_t)want : label.f == (float)want);
        sw_dataset_close(d);
    }
    float masks[12] = { 0 };
    int64_t next[12] = { 0 };
    const sw_array x = array_of(SW_U8, pixels, SHAPE(3, 4));
    sw_array y = array_of(SW_F32, masks, SHAPE(3, 2, 2));
    sw_dataset *d;
    OK(sw_dataset_from_memory(&x, &y, NULL, &d));
    assert_int_equal(sw_dataset_about(d)->y_rank, 2);
    assert_int_equal(sw_dataset_about(d)->y_dtype, SW_F32);
    sw_dataset_close(d);
    y = array_of(SW_I64, next, SHAPE(3, 4));
    OK(sw_dataset_from_memory(&x, &y, NULL, &d));
    assert_int_equal(sw_dataset_about(d)->y_dtype, SW_I64);
    sw_dataset_close(d);
    y = array_of(SW_I64, labels, SHAPE(3, 1));
    OK(sw_dataset_from_memory(&x, &y, &(sw_dataset_options){ .target = SW_TARGET_VALUE }, &d));
    assert_int_equal(sw_dataset_about(d)->y_dtype, SW_F32);
    assert_int_equal(sw_dataset_about(d)->y_rank, 0);
    sw_dataset_close(d);
}

/* ---- normalisation ----------------------------------------------------------------------------------------------- */

static void normalization(void **state)
{
    (void)state;
    sw_dataset *d;
    sw_normalization n, other;
    const float x[8] = { 1, 10, 7, 2, 20, 7, 3, 30 };
    const sw_array a = array_of(SW_F32, x, SHAPE(2, 4));
    OK(sw_dataset_from_memory(&a, NULL, NULL, &d));
    OK(sw_dataset_measure(d, &n));
    assert_int_equal(n.channels, 4);
    assert_true(n.mean[0] == 10.5f && n.std[0] == 9.5f);
    OK(sw_dataset_normalize(d, &n));
    float got[4];
    OK(sw_dataset_get(d, &(int64_t){ 1 }, 1, got, NULL));
    assert_true(got[0] == 1 && got[3] == 1);
    OK(sw_dataset_measure(d, &other)); /* of the raw values, whatever is set */
    assert_true(other.mean[0] == 10.5f);
    sw_normalization_free(&other);
    assert_true(sw_dataset_normalization(d)->std[0] == 9.5f);
    OK(sw_dataset_normalize(d, NULL));
    assert_null(sw_dataset_normalization(d));
    n.std[2] = 0;
    FAILS(SW_ERR_ARGUMENT, sw_dataset_normalize(d, &n), "channel 2", "above 0");
    n.channels = 3;
    FAILS(SW_ERR_SHAPE, sw_dataset_normalize(d, &n), "3 channels", "have 4");
    sw_normalization_free(&n);
    sw_normalization_free(NULL);
    sw_dataset_close(d);

    /* A feature without spread keeps its scale. */
    const float constant[4] = { 1, 5, 2, 5 };
    const sw_array b = array_of(SW_F32, constant, SHAPE(2, 2));
    OK(sw_dataset_from_memory(&b, NULL, NULL, &d));
    OK(sw_dataset_measure(d, &n));
    assert_true(n.mean[1] == 5 && n.std[1] == 1);
    sw_normalization_free(&n);
    sw_dataset_close(d);

    /* 8-bit vectors share one pair; many 8-bit channels go without the table. */
    OK(sw_dataset_open("digits", &(sw_dataset_options){ .shape_rank = 1, .shape = { 64 } }, &d));
    OK(sw_dataset_measure(d, &n));
    assert_int_equal(n.channels, 1);
    float flat[64], image[64];
    OK(sw_dataset_normalize(d, &n));
    OK(sw_dataset_get(d, &(int64_t){ 9 }, 1, flat, NULL));
    sw_dataset_close(d);
    OK(sw_dataset_open("digits", NULL, &d));
    OK(sw_dataset_normalize(d, &n));
    OK(sw_dataset_get(d, &(int64_t){ 9 }, 1, image, NULL));
    assert_memory_equal(flat, image, sizeof flat); /* table and arithmetic agree to the bit */
    sw_dataset_close(d);
    sw_normalization_free(&n);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void splits(void **state)
{
    (void)state;
    sw_dataset *d, *rest, *held, *again_rest, *again;
    OK(sw_dataset_open("digits", NULL, &d));
    OK(sw_dataset_split(d, 0.1, 7, &rest, &held));
    OK(sw_dataset_split(d, 0.1, 7, &again_rest, &again));
    assert_int_equal(sw_dataset_about(held)->count, 144);
    assert_int_equal(sw_dataset_about(rest)->count, 1298);
    int64_t all[10], part[10];
    OK(sw_dataset_class_counts(d, all));
    OK(sw_dataset_class_counts(held, part));
    for (int c = 0; c < 10; c++) assert_true(fabs((double)part[c] - 0.1 * (double)all[c]) < 1);

    /* Every sample is in one of the parts: the sum of all pixels says so, and equal sums sample by sample repeat. */
    double sums[3] = { 0 };
    sw_dataset *const sets[] = { d, rest, held };
    for (int s = 0; s < 3; s++) {
        for (int64_t i = 0; i < sw_dataset_about(sets[s])->count; i++) {
            float x[64];
            OK(sw_dataset_get(sets[s], &i, 1, x, NULL));
            for (int k = 0; k < 64; k++) sums[s] += (double)x[k] * (double)(k + 1);
        }
    }
    assert_true(fabs(sums[0] - sums[1] - sums[2]) < 1e-6 * sums[0]);
    for (int64_t i = 0; i < 144; i++) {
        float a[64], b[64];
        OK(sw_dataset_get(held, &i, 1, a, NULL));
        OK(sw_dataset_get(again, &i, 1, b, NULL));
        assert_memory_equal(a, b, sizeof a);
    }
    assert_string_equal(sw_dataset_class_name(held, 3), "3");
    sw_dataset_close(d); /* the parts live on */
    sw_dataset_close(again_rest);
    sw_dataset_close(again);
    sw_dataset *nested, *deeper;
    OK(sw_dataset_split(rest, 0.5, 1, &nested, &deeper));
    assert_int_equal(sw_dataset_about(nested)->count + sw_dataset_about(deeper)->count, 1298);
    FAILS(SW_ERR_ARGUMENT, sw_dataset_split(rest, 1, 1, &nested, &deeper), "held out");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_split(rest, NAN, 1, &nested, &deeper), "held out");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_subset(rest, &(int64_t){ 1298 }, 1, &nested), "no sample 1298");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_subset(rest, NULL, 0, &nested), "at least one");
    sw_dataset *one;
    OK(sw_dataset_subset(rest, &(int64_t){ 3 }, 1, &one));
    FAILS(SW_ERR_DATA, sw_dataset_split(one, 0.5, 1, &nested, &deeper), "one sample");
    sw_dataset_close(rest);
    sw_dataset_close(held);
    sw_dataset_close(one);
    sw_dataset_close(nested);
    sw_dataset_close(deeper);
}

static void class_names(void **state)
{
    (void)state;
    const sw_array x = array_of(SW_U8, pixels, SHAPE(3, 4)), y = array_of(SW_I64, labels, SHAPE(3));
    sw_dataset *d, *part;
    OK(sw_dataset_from_memory(&x, &y, NULL, &d));
    assert_null(sw_dataset_class_name(d, 0));
    FAILS(SW_ERR_ARGUMENT, sw_dataset_set_class_names(d, (const char *[]){ "a" }, 1), "1 names for 3 classes");
    OK(sw_dataset_set_class_names(d, (const char *[]){ "cat", NULL, "dog" }, 3));
    OK(sw_dataset_subset(d, (int64_t[]){ 2 }, 1, &part));
    sw_dataset_close(d);
    assert_string_equal(sw_dataset_class_name(part, 2), "dog");
    assert_null(sw_dataset_class_name(part, 1));
    sw_dataset_close(part);
}

/* ---- background reading ------------------------------------------------------------------------------------------ */

static void background(void **state)
{
    (void)state;
    sw_dataset *a, *b, *rest, *held;
    OK(sw_dataset_open("digits", &(sw_dataset_options){ .background = true }, &a));
    OK(sw_dataset_split(a, 0.1, 0, &rest, &held)); /* labels are there at once */
    sw_dataset_close(a);
    sw_normalization n, m;
    OK(sw_dataset_measure(rest, &n));
    OK(sw_dataset_ready(held));
    sw_dataset_close(rest);
    sw_dataset_close(held);
    OK(sw_dataset_open("digits", NULL, &b));
    OK(sw_dataset_split(b, 0.1, 0, &rest, &held));
    OK(sw_dataset_measure(rest, &m));
    assert_true(n.mean[0] == m.mean[0] && n.std[0] == m.std[0]);
    sw_normalization_free(&n);
    sw_normalization_free(&m);
    sw_dataset_close(b);
    sw_dataset_close(rest);
    sw_dataset_close(held);

    /* A file that is cut short is told by whoever needs the data; closing without looking is fine too. */
    size_t size;
    char *bytes;
    OK(sw__file_read(SWOOP_TEST_DATA "/../data/digits/train-images-idx3-ubyte.gz", 1 << 20, &bytes, &size));
    mkdir(scratch_path("cut"), 0755);
    write_scratch("cut/train-images.gz", bytes, size / 2);
    sw__free(bytes);
    OK(sw__file_read(SWOOP_TEST_DATA "/../data/digits/train-labels-idx1-ubyte.gz", 1 << 20, &bytes, &size));
    write_scratch("cut/train-labels.gz", bytes, size);
    sw__free(bytes);
    float x[64];
    OK(sw_dataset_open(scratch_path("cut"), &(sw_dataset_options){ .background = true }, &a));
    FAILS(SW_ERR_FORMAT, sw_dataset_get(a, &(int64_t){ 0 }, 1, x, NULL), "train-images.gz: byte", "cut short");
    FAILS(SW_ERR_FORMAT, sw_dataset_ready(a), "train-images.gz: byte");
    FAILS(SW_ERR_FORMAT, sw_dataset_measure(a, &n), "train-images.gz: byte");
    sw_dataset_close(a);
    OK(sw_dataset_open(scratch_path("cut"), &(sw_dataset_options){ .background = true }, &a));
    sw_dataset_close(a);
    FAILS(SW_ERR_FORMAT, sw_dataset_open(scratch_path("cut"), NULL, &a), "train-images.gz: byte");
}

/* ---- callbacks --------------------------------------------------------------------------------------------------- */

static int released;

static sw_status count_up(void *context, int64_t index, void *x, void *y)
{
    if (index == 5) return sw_dataset_error(SW_ERR_IO, "camera 2 is gone");
    for (int i = 0; i < 4; i++) ((float *)x)[i] = (float)(index * 4 + i);
    *(int64_t *)y = index == 4 ? 9 : index % *(int *)context;
    return SW_OK;
}

static void release(void *context)
{
    (void)context;
    released++;
}

static void callbacks(void **state)
{
    (void)state;
    int classes = 3;
    sw_dataset_callback c = { .name = "camera",
                              .count = 6,
                              .x_rank = 2,
                              .x_shape = { 2, 2 },
                              .target = SW_TARGET_CLASS,
                              .num_classes = 3,
                              .get = count_up,
                              .release = release,
                              .context = &classes };
    sw_dataset *d, *part;
    float x[8];
    int64_t y[2];
    OK(sw_dataset_from_callback(&c, &d));
    OK(sw_dataset_get(d, (int64_t[]){ 2, 1 }, 2, x, y));
    assert_true(x[0] == 8 && x[7] == 7 && y[0] == 2 && y[1] == 1);
    FAILS(SW_ERR_DATA, sw_dataset_get(d, (int64_t[]){ 4 }, 1, x, y), "camera: label 9 of sample 4");
    FAILS(SW_ERR_IO, sw_dataset_get(d, (int64_t[]){ 5 }, 1, x, y), "camera 2 is gone");
    FAILS(SW_ERR_ARGUMENT, sw_dataset_get(d, (int64_t[]){ 1 }, 1, x, NULL), "y is NULL");
    OK(sw_dataset_subset(d, (int64_t[]){ 0, 1, 2, 3 }, 4, &part));
    sw_dataset_close(d);
    sw_normalization n;
    OK(sw_dataset_measure(part, &n));
    assert_int_equal(n.channels, 2);
    assert_true(n.mean[0] == 6.5f && n.mean[1] == 8.5f);
    OK(sw_dataset_normalize(part, &n));
    OK(sw_dataset_get(part, (int64_t[]){ 3 }, 1, x, y));
    assert_true(fabsf(x[0] - (12 - 6.5f) / n.std[0]) < 1e-6f);
    sw_normalization_free(&n);
    assert_int_equal(released, 0);
    sw_dataset_close(part);
    assert_int_equal(released, 1);
    c.get = NULL;
    FAILS(SW_ERR_ARGUMENT, sw_dataset_from_callback(&c, &d), "get is missing");
    c.get = count_up;
    c.count = 0;
    FAILS(SW_ERR_DATA, sw_dataset_from_callback(&c, &d), "no samples");
    c.count = 1;
    c.num_classes = 0;
    FAILS(SW_ERR_ARGUMENT, sw_dataset_from_callback(&c, &d), "target must be");
    assert_int_equal(released, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits),        cmocka_unit_test(names),         cmocka_unit_test(pairs_and_folders),
        cmocka_unit_test(archives),      cmocka_unit_test(batches),       cmocka_unit_test(bad_data),
        cmocka_unit_test(shapes),        cmocka_unit_test(channels_last), cmocka_unit_test(types),
        cmocka_unit_test(normalization), cmocka_unit_test(splits),        cmocka_unit_test(class_names),
        cmocka_unit_test(background),    cmocka_unit_test(callbacks),
    };
    return cmocka_run_group_tests_name("data_sets", tests, make_scratch, remove_scratch);
}
