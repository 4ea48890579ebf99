/* test_misuse.c: public calls with NULL, empty and impossible arguments: each gives a status with a message, a getter
 * its "none"; nothing crashes, and no file appears where none was asked for. What a graph refuses is test_graph.c's. */
#include "io_test.h"
#include "swoop/swoop.h"

enum { N = 20, M = 4, CLASSES = 3 };

static sw_dataset *small(void)
{
    static float x[N][M];
    static int64_t y[N];
    for (int i = 0; i < N; i++) {
        y[i] = i % CLASSES;
        for (int k = 0; k < M; k++) x[i][k] = (float)((i + k) % 5);
    }
    const sw_array ax = { .dtype = SW_F32, .rank = 2, .shape = { N, M }, .data = x, .bytes = sizeof x };
    const sw_array ay = { .dtype = SW_I64, .rank = 1, .shape = { N }, .data = y, .bytes = sizeof y };
    sw_dataset *d = NULL;
    OK(sw_dataset_from_memory(&ax, &ay, NULL, &d));
    return d;
}

#define REFUSED(call) FAILS(SW_ERR_ARGUMENT, call, "NULL")

static void test_data(void **state)
{
    (void)state;
    sw_dataset *d = small(), *a = NULL, *b = NULL;
    float x[M], one = 1;
    const int64_t first = 0;
    REFUSED(sw_dataset_open(NULL, NULL, &a));
    REFUSED(sw_dataset_open("digits", NULL, NULL));
    REFUSED(sw_dataset_from_memory(NULL, NULL, NULL, &a));
    REFUSED(sw_dataset_from_callback(NULL, &a));
    REFUSED(sw_dataset_ready(NULL));
    REFUSED(sw_dataset_get(NULL, &first, 1, x, NULL));
    REFUSED(sw_dataset_get(d, NULL, 1, x, NULL));
    REFUSED(sw_dataset_get(d, &first, 1, NULL, NULL));
    REFUSED(sw_dataset_subset(NULL, &first, 1, &a));
    REFUSED(sw_dataset_subset(d, NULL, 1, &a));
    REFUSED(sw_dataset_split(d, 0.5, 0, NULL, &b));
    REFUSED(sw_dataset_split(NULL, 0.5, 0, &a, &b));
    REFUSED(sw_dataset_class_counts(d, NULL));
    REFUSED(sw_dataset_measure(d, NULL));
    REFUSED(sw_dataset_normalize(NULL, NULL));
    REFUSED(sw_dataset_normalize(d, &(sw_normalization){ .channels = 1, .mean = &one }));
    REFUSED(sw_dataset_set_class_names(d, NULL, CLASSES));
    assert_false(sw_dataset_has_split(NULL, NULL, "test"));
    assert_null(sw_dataset_about(NULL));
    assert_null(sw_dataset_class_name(NULL, 0));
    assert_null(sw_dataset_normalization(NULL));
    assert_null(a);
    assert_null(b);
    sw_dataset_close(d);
    sw_dataset_close(NULL);
}

static void test_loader(void **state)
{
    (void)state;
    sw_loader *l = NULL;
    sw_batch batch;
    sw_dataset *d = small();
    REFUSED(sw_loader_open(NULL, NULL, &l));
    REFUSED(sw_loader_open(d, NULL, NULL));
    REFUSED(sw_loader_next(NULL, &batch));
    REFUSED(sw_loader_seek(NULL, (sw_loader_position){ 0, 0 }));
    assert_int_equal(sw_loader_batches(NULL), 0);
    assert_int_equal(sw_loader_tell(NULL).batch, 0);
    assert_true(sw_loader_wait_seconds(NULL) <= 0);
    OK(sw_loader_open(d, &(sw_loader_options){ .batch = 4 }, &l));
    REFUSED(sw_loader_next(l, NULL));
    sw_loader_close(l);
    sw_loader_close(NULL);
    sw_dataset_close(d);
}

static void test_files(void **state)
{
    (void)state;
    sw_array a = { .dtype = SW_F32, .rank = 1, .shape = { 2 }, .bytes = 8 };
    sw_npz *z = NULL;
    sw_safetensors *f = NULL;
    const char *const path = scratch_path("never");
    REFUSED(sw_npy_read(NULL, &a));
    REFUSED(sw_npy_read("x", NULL));
    REFUSED(sw_npy_write(NULL, &a));
    REFUSED(sw_npy_write(path, NULL));
    REFUSED(sw_npy_write(path, &a)); /* 8 bytes at NULL */
    REFUSED(sw_idx_read(NULL, &a));
    REFUSED(sw_npz_open(NULL, &z));
    REFUSED(sw_npz_read(NULL, 0, &a));
    assert_int_equal(sw_npz_count(NULL), 0);
    assert_null(sw_npz_name(NULL, 0));
    assert_int_equal(sw_npz_find(NULL, "x"), -1);
    REFUSED(sw_safetensors_open(NULL, &f));
    REFUSED(sw_safetensors_array(NULL, "x", &a));
    REFUSED(sw_safetensors_write(NULL, NULL, 0, NULL, 0));
    REFUSED(sw_safetensors_write(path, NULL, 3, NULL, 0));
    REFUSED(sw_safetensors_write(path, NULL, 0, NULL, 3));
    assert_int_equal(sw_safetensors_count(NULL), 0);
    assert_null(sw_safetensors_at(NULL, 0));
    assert_null(sw_safetensors_find(NULL, "x"));
    assert_null(sw_safetensors_metadata(NULL, "x"));
    assert_int_equal(sw_safetensors_metadata_count(NULL), 0);
    assert_int_equal(sw_array_count(NULL), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_config(void **state)
{
    (void)state;
    const sw_key none = (sw_key)SW_KEY_COUNT;
    const char *text = NULL;
    sw_config *c = NULL;
    sw_key k;
    REFUSED(sw_config_new(NULL));
    OK(sw_config_new(&c));
    REFUSED(sw_config_load(NULL, "x"));
    REFUSED(sw_config_load(c, NULL));
    REFUSED(sw_config_parse(c, "x", NULL, 5));
    REFUSED(sw_config_set(c, NULL, "1"));
    REFUSED(sw_config_set(c, "epochs", NULL));
    REFUSED(sw_config_choose(c, none, "1"));
    REFUSED(sw_config_yaml(c, NULL));
    REFUSED(sw_config_json(NULL, &text));
    assert_false(sw_config_find(NULL, &k));
    assert_string_equal(sw_config_text(c, none), "");
    assert_string_equal(sw_config_text(NULL, SW_KEY_LR), "");
    assert_int_equal(sw_config_int(c, none), 0);
    assert_false(sw_config_is_auto(NULL, SW_KEY_LR));
    assert_int_equal(sw_config_origin(c, none), SW_FROM_DEFAULT);
    sw_config_free(c);
}

static void test_trainer(void **state)
{
    (void)state;
    sw_device *device = NULL;
    sw_trainer *t = NULL;
    sw_dataset *d = small();
    float x[M] = { 0 }, out[N * CLASSES];
    const int64_t y = 0;
    assert_int_equal(sw_device_list(NULL, 9, true), sw_device_list(NULL, 0, true));
    OK(sw_device_open("cpu", NULL, &device));
    OK(sw_trainer_new(device, &(sw_trainer_options){ .model_name = "mlp:4", .batch = 4 }, &t));
    OK(sw_trainer_prepare(t, d));
    FAILS(SW_ERR_ARGUMENT, sw_trainer_step(t, x, &y, 0, NULL), "0 samples");
    FAILS(SW_ERR_ARGUMENT, sw_trainer_step(t, x, &y, -1, NULL), "-1 samples");
    OK(sw_trainer_predict(t, d, NULL, N, out)); /* it is as it was */
    REFUSED(sw_trainer_save(t, scratch_path("never"), NULL, 3));
    REFUSED(sw_trainer_fit(t, d, &(sw_fit_options){ .epochs = 1, .checkpoint = "" }, NULL)); /* was the root folder */
    REFUSED(sw_trainer_fit(t, d, &(sw_fit_options){ .epochs = 1, .resume = "" }, NULL));
    REFUSED(sw_trainer_fit(t, d, &(sw_fit_options){ .epochs = 1, .n_metadata = 3 }, NULL));
    sw_device_close(device); /* which lives as long as the trainer */
    OK(sw_trainer_predict(t, d, NULL, N, out));
    sw_trainer_free(t);
    sw_dataset_close(d);
}

/* A value that needs no input is evaluated in a graph that has some; one that does not exist is none. */
static void test_eval(void **state)
{
    (void)state;
    const int64_t shape[] = { 2, 3 };
    sw_graph *g = NULL;
    float v = 0;
    OK(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 2, shape), nine = sw_const(g, SW_F32, 9);
    OK(sw_eval(sw_add(nine, nine), NULL, SW_F32, &v, 1));
    assert_true(v >= 18 && v <= 18);
    FAILS(SW_ERR_ARGUMENT, sw_eval(x, NULL, SW_F32, &v, 1), "input 'x'");
    FAILS(SW_ERR_ARGUMENT, sw_eval((sw_t){ g, 99999 }, NULL, SW_F32, &v, 1), "invalid");
    FAILS(SW_ERR_ARGUMENT, sw_eval((sw_t){ NULL, 0 }, NULL, SW_F32, &v, 1), "invalid");
    sw_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data),   cmocka_unit_test(test_loader),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_config), cmocka_unit_test(test_trainer), cmocka_unit_test(test_eval),
    };
    return cmocka_run_group_tests_name("misuse", tests, make_scratch, remove_scratch);
}
