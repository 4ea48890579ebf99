/* test_io_safetensors.c: safetensors as the Python package writes them, lies in the header, round trips, and what is
 * left of a file when writing fails. Tests of src/io/safetensors*.c and atomic.c. */
#include "io_test.h"
#include "io/atomic.h"
#include "swoop/io.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void values(void **state)
{
    (void)state;
    sw_safetensors *f;
    sw_array a;
    OK(sw_safetensors_open(sample_path("numpy.safetensors"), &f));
    assert_int_equal(sw_safetensors_count(f), 6);
    assert_string_equal(sw_safetensors_metadata(f, "model"), "lenet");
    assert_string_equal(sw_safetensors_metadata(f, "note"), "a \"quoted\" word");
    assert_null(sw_safetensors_metadata(f, "nothing"));
    assert_int_equal(sw_safetensors_metadata_count(f), 2);
    const char *value;
    assert_non_null(sw_safetensors_metadata_at(f, 1, &value));
    assert_null(sw_safetensors_metadata_at(f, 2, &value));
    OK(sw_safetensors_array(f, "weight", &a));
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.shape[1], 3);
    check_elements(&a, 'f', 4);
    OK(sw_safetensors_array(f, "half", &a));
    assert_int_equal(a.dtype, SW_F16);
    check_elements(&a, 'f', 2);
    OK(sw_safetensors_array(f, "mask", &a));
    check_elements(&a, 'b', 1);
    OK(sw_safetensors_array(f, "count", &a));
    assert_int_equal(a.rank, 0);
    assert_int_equal(*(const int64_t *)a.data, 7);
    OK(sw_safetensors_array(f, "none", &a));
    assert_int_equal(a.bytes, 0);
    const sw_safetensors_info *const tiny = sw_safetensors_find(f, "tiny");
    assert_string_equal(tiny->type_name, "I8");
    assert_false(tiny->supported);
    assert_int_equal(tiny->array.bytes, 2);
    FAILS(SW_ERR_UNSUPPORTED, sw_safetensors_array(f, "tiny", &a), "tensor 'tiny'", "I8");
    FAILS(SW_ERR_DATA, sw_safetensors_array(f, "wieght", &a), "no tensor 'wieght'", "'weight'");
    assert_null(sw_safetensors_at(f, 6));
    sw_safetensors_close(f);
    sw_safetensors_close(NULL);

    OK(sw_safetensors_open(sample_path("bf16.safetensors"), &f));
    OK(sw_safetensors_array(f, "b", &a));
    assert_int_equal(a.dtype, SW_BF16);
    check_elements(&a, 'f', 2);
    sw_safetensors_close(f);
}

static sw_status parse(const void *bytes, size_t n)
{
    uint8_t *const copy = exact_copy(bytes, n);
    sw_safetensors *f;
    const sw_status st = sw__safetensors_parse("lie.safetensors", copy, n, &f);
    if (st == SW_OK) sw_safetensors_close(f);
    free(copy);
    return st;
}

/* A file with that header and n bytes of data. */
static sw_status parse_header(const char *text, size_t data)
{
    uint8_t bytes[4096] = { 0 };
    const uint64_t n = strlen(text);
    assert_true(n + 8 + data <= sizeof bytes);
    memcpy(bytes, &n, 8);
    place(bytes + 8, text, n);
    return parse(bytes, 8 + n + data);
}

static void lies(void **state)
{
    (void)state;
    OK(parse_header("{}", 0));
    OK(parse_header("{\"__metadata__\":{}}   ", 0));
    OK(parse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4));
    OK(parse_header("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]},"
                    "\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                    5)); /* not aligned: copied */
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        { "", 0, "byte 8" },
        { " {}", 0, "does not begin with {" },
        { "{\"a\"", 0, "byte 12: the header is not valid JSON" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "byte 10: tensor 'a' ends at byte 4" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "1 bytes after the last tensor" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "gap in the data before tensor 'a'" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
          6, "'b' overlaps" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
          "type F32 and shape 2 cannot have 4 bytes" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
          "type F4 and shape 3 cannot have 1 bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "not in order" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "not in order" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "not a pair" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.5]}}", 4, "not a pair" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}", 4, "not valid JSON" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967297],\"data_offsets\":[0,4]}}", 4,
          "cannot have" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "no size" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":3,\"data_offsets\":[0,4]}}", 4, "not a list" },
        { "{\"a\":{\"dtype\":\"Q32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'Q32' is no dtype" },
        { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype" },
        { "{\"a\":[]}", 0, "should be an object" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
          "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
          0, "duplicate" },
        { "{\"__metadata__\":{\"k\":1}}", 0, "metadata 'k' is not a string" },
        { "{\"__metadata__\":1}", 0, "__metadata__ is not an object" },
        { "{\"\xFF\":1}", 0, "unable to decode byte 0xff" },
    };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        FAILS(SW_ERR_FORMAT, parse_header(cases[i].header, cases[i].data), "lie.safetensors: byte", cases[i].says);
    }
    const uint8_t huge[] = { 255, 255, 255, 255, 255, 255, 255, 255, '{', '}' }, tiny[] = { 2, 0, 0 };
    FAILS(SW_ERR_FORMAT, parse(huge, sizeof huge), "byte 0", "18446744073709551615");
    FAILS(SW_ERR_FORMAT, parse(tiny, sizeof tiny), "byte 3", "too short");
    FAILS(SW_ERR_UNSUPPORTED,
          parse_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1), "9 axes");
}

static void cuts_and_flips(void **state)
{
    (void)state;
    size_t n;
    uint8_t *const bytes = read_sample("numpy.safetensors", &n);
    for (size_t cut = 0; cut < n; cut++) FAILS(SW_ERR_FORMAT, parse(bytes, cut), "lie.safetensors: byte ");
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] = (uint8_t)(bytes[at] ^ (1 << bit));
            (void)parse(bytes, n);
            bytes[at] = (uint8_t)(bytes[at] ^ (1 << bit));
        }
    }
    sw__free(bytes);
}

/* One tensor of each type, named after it; data in place. */
static sw_named_array *all_types(void)
{
    static uint8_t data[SW_DTYPE_COUNT][6 * 8];
    static sw_named_array tensors[SW_DTYPE_COUNT];
    for (int t = 0; t < SW_DTYPE_COUNT; t++) {
        const double v[6] = { 0, 1, 2, 3, 100, 200 };
        sw__convert(data[t], (sw_dtype)t, v, SW_F64, 6);
        tensors[t] = (sw_named_array){ sw_dtype_name((sw_dtype)t),
                                       { .dtype = (sw_dtype)t,
                                         .rank = 2,
                                         .shape = { 2, 3 },
                                         .data = data[t],
                                         .bytes = 6 * sw_dtype_size((sw_dtype)t) } };
    }
    return tensors;
}

static void round_trip(void **state)
{
    (void)state;
    const sw_named_array *const tensors = all_types();
    const sw_text_pair meta[] = { { "model", "lenet" },
                                  { "odd \"key\"\n", "tab\t, \\, Größe, \x01, 数字" },
                                  { "empty", "" } };
    const char *const path = scratch_path("all.safetensors");
    OK(sw_safetensors_write(path, tensors, SW_DTYPE_COUNT, meta, 3));
    sw_safetensors *f;
    OK(sw_safetensors_open(path, &f));
    assert_string_equal(sw_safetensors_path(f), path);
    assert_int_equal(sw_safetensors_count(f), SW_DTYPE_COUNT);
    for (int i = 0; i < 3; i++) assert_string_equal(sw_safetensors_metadata(f, meta[i].key), meta[i].value);
    for (int t = 0; t < SW_DTYPE_COUNT; t++) {
        sw_array a;
        OK(sw_safetensors_array(f, tensors[t].name, &a));
        assert_int_equal(a.dtype, t);
        assert_int_equal(a.shape[1], 3);
        assert_memory_equal(a.data, tensors[t].array.data, a.bytes);
    }
    assert_int_equal((uintptr_t)sw_safetensors_at(f, 0)->array.data % 64, 0);
    sw_safetensors_close(f);
    OK(sw_safetensors_write(path, NULL, 0, NULL, 0));
    OK(sw_safetensors_open(path, &f));
    assert_int_equal(sw_safetensors_count(f), 0);
    sw_safetensors_close(f);
}

static void refuses_to_write(void **state)
{
    (void)state;
    sw_named_array t[2] = { all_types()[0], all_types()[0] };
    const char *const path = scratch_path("no.safetensors");
    FAILS(SW_ERR_ARGUMENT, sw_safetensors_write(path, t, 2, NULL, 0), "two tensors are called 'f32'");
    t[1].name = "\xC3(";
    FAILS(SW_ERR_ARGUMENT, sw_safetensors_write(path, t, 2, NULL, 0), "not UTF-8");
    t[1].name = "";
    FAILS(SW_ERR_ARGUMENT, sw_safetensors_write(path, t, 2, NULL, 0), "cannot be called ''");
    t[1].name = "b";
    t[1].array.bytes--;
    FAILS(SW_ERR_ARGUMENT, sw_safetensors_write(path, t, 2, NULL, 0), "'b'", "its shape does not make 23 bytes");
    const sw_text_pair twice[] = { { "k", "1" }, { "k", "2" } };
    FAILS(SW_ERR_ARGUMENT, sw_safetensors_write(path, t, 1, twice, 2), "'k' comes twice");
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- atomic writing ---------------------------------------------------------------------------------------------- */

static void write_old(const char *path)
{
    OK(sw__atomic_write(path, "old", 3));
}

static void check_old(const char *path)
{
    char *text;
    size_t n;
    OK(sw__file_read(path, 100, &text, &n));
    assert_string_equal(text, "old");
    sw__free(text);
    char temporary[300];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    assert_int_equal(access(temporary, F_OK), -1);
}

static void atomic_abort(void **state)
{
    (void)state;
    const char *const path = scratch_path("a.txt");
    write_old(path);
    sw__atomic a, b;
    OK(sw__atomic_begin(&a, path));
    OK(sw__atomic_put(&a, "new", 3));
    FAILS(SW_ERR_IO, sw__atomic_begin(&b, path), "another process is writing it");
    sw__atomic_abort(&a);
    sw__atomic_abort(&a);
    check_old(path);
    OK(sw__atomic_begin(&a, path));
    OK(sw__atomic_put(&a, "newer", 5));
    OK(sw__atomic_commit(&a));
    sw__atomic_abort(&a);
    char *text;
    size_t n;
    OK(sw__file_read(path, 100, &text, &n));
    assert_string_equal(text, "newer");
    sw__free(text);
}

/* What a killed process leaves behind is reused, and truncated. */
static void atomic_leftover(void **state)
{
    (void)state;
    const char *const path = scratch_path("left.txt");
    write_scratch("left.txt.tmp", "a long half-written file", 24);
    write_old(path);
    check_old(path);
}

/* A full disk, as a limit on the size of files (which a child sets for itself). */
static void disk_full(void **state)
{
    (void)state;
    const char *const path = scratch_path("full.safetensors");
    write_old(path);
    static float data[100000];
    const sw_named_array t = {
        "w", { .dtype = SW_F32, .rank = 1, .shape = { 100000 }, .data = data, .bytes = sizeof data }
    };
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const struct rlimit limit = { 100000, 100000 };
        setrlimit(RLIMIT_FSIZE, &limit);
        const sw_status st = sw_safetensors_write(path, &t, 1, NULL, 0);
        _exit(st == SW_ERR_IO && strstr(sw_error(), "full.safetensors: cannot write it") != NULL ? 0 : 1);
    }
    int result;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
    check_old(path);
}

/* The device that is always full: only the flush at the end notices a small write. */
static void full_at_the_flush(void **state)
{
    (void)state;
    sw__atomic a = { .file = fopen("/dev/full", "w"), .path = sw__strdup("somewhere") };
    assert_non_null(a.file);
    OK(sw__atomic_put(&a, "x", 1));
    FAILS(SW_ERR_IO, sw__atomic_commit(&a), "somewhere: cannot write it", "No space left", "free some space");
    assert_null(a.path);
}

static void read_only_folder(void **state)
{
    (void)state;
    const char *const folder = scratch_path("readonly");
    assert_int_equal(mkdir(folder, 0555), 0);
    const char *const path = scratch_path("readonly/a.safetensors");
    const pid_t child = fork(); /* root may write anywhere: be somebody else */
    assert_true(child >= 0);
    if (child == 0) {
        if (chmod(scratch, 0755) != 0 || (geteuid() == 0 && setuid(65534) != 0)) _exit(2);
        const sw_status st = sw_safetensors_write(path, NULL, 0, NULL, 0);
        _exit(st == SW_ERR_IO && strstr(sw_error(), "choose a folder that you may write to") != NULL ? 0 : 1);
    }
    int result;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(lies),
        cmocka_unit_test(cuts_and_flips),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(refuses_to_write),
        cmocka_unit_test(atomic_abort),
        cmocka_unit_test(atomic_leftover),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(full_at_the_flush),
        cmocka_unit_test(read_only_folder),
    };
    return cmocka_run_group_tests_name("io_safetensors", tests, make_scratch, remove_scratch);
}
