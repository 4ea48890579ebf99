/* test_io_arrays.c: IDX, NPY and NPZ: values as NumPy wrote them, truncation at every byte, lies, round trips.
 * Tests of src/io/{stream,array,idx,npy,npz}.c. */
#include "io_test.h"

typedef sw_status (*parser)(const char *name, const void *bytes, size_t n);

static sw_status parse_idx(const char *name, const void *bytes, size_t n)
{
    sw_array a = { 0 };
    const sw_status st = sw__idx_parse(name, bytes, n, &a);
    sw_array_free(&a);
    return st;
}

static sw_status parse_npy(const char *name, const void *bytes, size_t n)
{
    sw_array a = { 0 };
    const sw_status st = sw__npy_parse(name, bytes, n, &a);
    sw_array_free(&a);
    return st;
}

/* Opens the archive and reads all of it. */
static sw_status parse_npz(const char *name, const void *bytes, size_t n)
{
    sw_npz *z;
    SW_TRY(sw__npz_parse(name, bytes, n, &z));
    sw_status st = SW_OK;
    for (size_t i = 0; st == SW_OK && i < sw_npz_count(z); i++) {
        sw_array a = { 0 };
        st = sw_npz_read(z, i, &a);
        sw_array_free(&a);
    }
    sw_npz_close(z);
    return st;
}

/* Every beginning of the file is refused with a message, and every changed byte does no harm. */
static void cut_and_flip(const char *sample, parser parse)
{
    size_t n;
    uint8_t *const bytes = read_sample(sample, &n);
    OK(parse(sample, bytes, n));
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *const part = exact_copy(bytes, cut);
        const sw_status st = parse(sample, part, cut);
        if (st != SW_ERR_FORMAT) fail_msg("%s cut to %zu bytes gives %d", sample, cut, st);
        if (strstr(sw_error(), "byte ") == NULL) fail_msg("no offset in: %s", sw_error());
        free(part);
    }
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            uint8_t *const other = exact_copy(bytes, n);
            other[at] = (uint8_t)(other[at] ^ (1 << bit));
            (void)parse(sample, other, n);
            free(other);
        }
    }
    sw__free(bytes);
}

static void cuts_and_flips(void **state)
{
    (void)state;
    cut_and_flip("u1.idx", parse_idx);
    cut_and_flip("u1.idx.gz", parse_idx);
    cut_and_flip("i2.idx", parse_idx);
    cut_and_flip("f4_le_c.npy", parse_npy);
    cut_and_flip("i2_be_f.npy", parse_npy);
    cut_and_flip("v3.npy", parse_npy);
    cut_and_flip("gzipped.npy.gz", parse_npy);
    cut_and_flip("stored.npz", parse_npz);
    cut_and_flip("deflated.npz", parse_npz);
    cut_and_flip("zip64.npz", parse_npz);
    cut_and_flip("zip64_end.npz", parse_npz);
}

static void idx_values(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        char kind;
        int size;
        sw_dtype dtype;
    } cases[] = { { "u1.idx", 'u', 1, SW_U8 },  { "u1.idx.gz", 'u', 1, SW_U8 }, { "two_members.idx.gz", 'u', 1, SW_U8 },
                  { "i1.idx", 'i', 1, SW_I32 }, { "i2.idx", 'i', 2, SW_I32 },   { "i4.idx", 'i', 4, SW_I32 },
                  { "f4.idx", 'f', 4, SW_F32 }, { "f8.idx", 'f', 8, SW_F64 } };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_array a;
        OK(sw_idx_read(sample_path(cases[i].file), &a));
        assert_int_equal(a.dtype, cases[i].dtype);
        assert_int_equal(a.rank, 3);
        assert_int_equal(a.shape[2], 4);
        check_elements(&a, cases[i].kind, cases[i].size);
        sw_array_free(&a);
        assert_null(a.data);
    }
}

static void npy_values(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        sw_dtype dtype;
    } cases[] = { { "f2", SW_F16 }, { "f4", SW_F32 }, { "f8", SW_F64 }, { "b1", SW_BOOL },
                  { "i1", SW_I32 }, { "i2", SW_I32 }, { "i4", SW_I32 }, { "i8", SW_I64 },
                  { "u1", SW_U8 },  { "u2", SW_I32 }, { "u4", SW_U32 }, { "u8", SW_I64 } };
    static const char *const orders[] = { "le_c", "be_f" };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        for (size_t k = 0; k < SW_COUNT(orders); k++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%s.npy", cases[i].type, orders[k]);
            sw_array a;
            OK(sw_npy_read(sample_path(name), &a));
            assert_int_equal(a.dtype, cases[i].dtype);
            assert_int_equal(a.rank, 3);
            assert_int_equal(a.shape[0], 2);
            check_elements(&a, cases[i].type[0], cases[i].type[1] - '0');
            sw_array_free(&a);
        }
    }
}

static void npy_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int rank;
        int64_t count;
        sw_dtype dtype;
    } cases[] = { { "v2.npy", 2, 6, SW_F32 },    { "v3.npy", 2, 6, SW_F32 },     { "scalar.npy", 0, 1, SW_F32 },
                  { "empty.npy", 2, 0, SW_F32 }, { "vector.npy", 1, 5, SW_F64 }, { "gzipped.npy.gz", 3, 24, SW_F32 } };
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        sw_array a;
        OK(sw_npy_read(sample_path(cases[i].file), &a));
        assert_int_equal(a.rank, cases[i].rank);
        assert_int_equal(sw_array_count(&a), cases[i].count);
        assert_int_equal(a.dtype, cases[i].dtype);
        check_elements(&a, 'f', 4);
        sw_array_free(&a);
    }
}

static void npy_refusals(void **state)
{
    (void)state;
    sw_array a = { 0 };
    FAILS(SW_ERR_UNSUPPORTED, sw_npy_read(sample_path("complex.npy"), &a), "complex.npy", "<c8", "byte");
    FAILS(SW_ERR_UNSUPPORTED, sw_npy_read(sample_path("record.npy"), &a), "record.npy", "records");
    FAILS(SW_ERR_UNSUPPORTED, sw_npy_read(sample_path("text.npy"), &a), "text.npy", "U2");
    FAILS(SW_ERR_FORMAT, sw_npy_read(sample_path("huge_u8.npy"), &a), "byte 136", "9223372036854775808");
    FAILS(SW_ERR_FORMAT, sw_npy_read(sample_path("u1.idx"), &a), "byte 0", "not an NPY file");
    FAILS(SW_ERR_IO, sw_npy_read(sample_path("no-such-file"), &a), "no-such-file", "No such file");
    FAILS(SW_ERR_IO, sw_npy_read(SWOOP_TEST_DATA, &a), "a folder");
    FAILS(SW_ERR_IO, sw_npy_read("/dev/zero", &a), "not a regular file");
}

/* An NPY file with that header and four zero bytes of data. */
static sw_status parse_header(const char *text)
{
    uint8_t bytes[512] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0 };
    const size_t n = strlen(text);
    bytes[8] = (uint8_t)n;
    place(bytes + 10, text, n);
    uint8_t *const exact = exact_copy(bytes, 10 + n + 4);
    const sw_status st = parse_npy("lie.npy", exact, 10 + n + 4);
    free(exact);
    return st;
}

static void npy_lies(void **state)
{
    (void)state;
    OK(parse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"));
    OK(parse_header(" { \"shape\" : ( ) , \"fortran_order\":True,\"descr\":\"=f4\" , } \n"));
    OK(parse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 1L)}"));
    static const char *const lies[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", /* more data than there are */
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", /* fewer */
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2, 0)}",
    };
    for (size_t i = 0; i < SW_COUNT(lies); i++) FAILS(SW_ERR_FORMAT, parse_header(lies[i]), "lie.npy: byte ");
    FAILS(SW_ERR_UNSUPPORTED, parse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}"),
          "more than 8 axes");
    FAILS(SW_ERR_UNSUPPORTED, parse_header("{'descr': '|V2', 'fortran_order': False, 'shape': (1,)}"), "|V2");
}

static void idx_lies(void **state)
{
    (void)state;
    const uint8_t type[] = { 0, 0, 7, 1, 0, 0, 0, 1, 9 }, rank[] = { 0, 0, 8, 9, 0 }, none[] = { 0, 0, 8, 0, 0 };
    const uint8_t more[] = { 0, 0, 8, 1, 0, 0, 0, 1, 9, 9 },
                  huge[] = { 0, 0, 8, 2, 0, 255, 255, 255, 0, 255, 255, 255, 1 };
    const uint8_t over[] = { 0, 0, 14, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 };
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", type, sizeof type), "a.idx: byte 2", "0x07");
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", rank, sizeof rank), "a.idx: byte 3", "9 axes");
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", none, sizeof none), "a.idx: byte 3", "0 axes");
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", more, sizeof more), "a.idx: byte 9", "more in the file");
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", huge, sizeof huge), "a.idx: byte 12", "promises");
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", over, sizeof over), "a.idx: byte 4", "larger than any memory");
    FAILS(SW_ERR_FORMAT, parse_idx("a.idx", "", 0), "byte 0", "magic number");
}

static void npz_values(void **state)
{
    (void)state;
    static const char *const files[] = { "numpy.npz", "stored.npz", "deflated.npz", "zip64.npz" };
    for (size_t i = 0; i < SW_COUNT(files); i++) {
        sw_npz *z;
        sw_array a;
        OK(sw_npz_open(sample_path(files[i]), &z));
        assert_int_equal(sw_npz_count(z), 3);
        assert_string_equal(sw_npz_name(z, 0), "x");
        assert_null(sw_npz_name(z, 3));
        assert_int_equal(sw_npz_find(z, "z"), -1);
        OK(sw_npz_read(z, 0, &a));
        check_elements(&a, 'f', 4);
        sw_array_free(&a);
        OK(sw_npz_read(z, (size_t)sw_npz_find(z, "bytes"), &a));
        assert_int_equal(a.shape[0], 300);
        check_elements(&a, 'u', 1);
        sw_array_free(&a);
        OK(sw_npz_read(z, (size_t)sw_npz_find(z, "y"), &a));
        assert_int_equal(a.dtype, SW_I64);
        assert_int_equal(((int64_t *)a.data)[5], 2);
        sw_array_free(&a);
        FAILS(SW_ERR_ARGUMENT, sw_npz_read(z, 3, &a), "there is no number 3");
        sw_npz_close(z);
    }
    sw_npz_close(NULL);
}

static void npz_refusals(void **state)
{
    (void)state;
    size_t n;
    uint8_t *bytes = read_sample("bzip2.npz", &n);
    FAILS(SW_ERR_UNSUPPORTED, parse_npz("bzip2.npz", bytes, n), "zip method 12");
    sw__free(bytes);
    bytes = read_sample("stored.npz", &n);
    uint8_t *const data = memmem(bytes, n, "\x93NUMPY", 6);
    data[150] ^= 1;
    FAILS(SW_ERR_FORMAT, parse_npz("a.npz", bytes, n), "a.npz: byte 0", "checksum of 'x.npy'");
    data[150] ^= 1;
    uint8_t *const central = memmem(bytes, n, "PK\1\2", 4);
    central[8] |= 1;
    FAILS(SW_ERR_UNSUPPORTED, parse_npz("a.npz", bytes, n), "encrypted");
    central[8] &= 0xFE;
    place(central + 42, "\xFF\xFF\xFF\x7F", 4);
    FAILS(SW_ERR_FORMAT, parse_npz("a.npz", bytes, n), "'x.npy' is said to begin at 2147483647");
    sw__free(bytes);
    bytes = read_sample("stored.npz", &n);
    for (uint8_t *p = bytes; (p = memmem(p, n - (size_t)(p - bytes), "y.npy", 5)) != NULL;) *p = 'x';
    FAILS(SW_ERR_FORMAT, parse_npz("a.npz", bytes, n), "'x.npy' is there twice");
    sw__free(bytes);
    bytes = read_sample("deflated.npz", &n);
    uint8_t *const size = (uint8_t *)memmem(bytes, n, "PK\1\2", 4) + 24;
    place(size, "\xFF\xFF\xFF\x0F", 4);
    FAILS(SW_ERR_FORMAT, parse_npz("a.npz", bytes, n), "cannot have 268435455 bytes");
    sw__free(bytes);
}

static void npy_round_trip(void **state)
{
    (void)state;
    double values[24];
    for (int i = 0; i < 24; i++) values[i] = i - 5.5;
    for (int t = 0; t < SW_DTYPE_COUNT; t++) {
        uint8_t raw[24 * 8];
        sw__convert(raw, (sw_dtype)t, values, SW_F64, 24);
        const sw_array a = {
            .dtype = (sw_dtype)t, .rank = 3, .shape = { 2, 3, 4 }, .data = raw, .bytes = 24 * sw_dtype_size((sw_dtype)t)
        };
        if (t == SW_BF16) {
            FAILS(SW_ERR_UNSUPPORTED, sw_npy_write(scratch_path("a.npy"), &a), "bf16");
            continue;
        }
        sw_array b;
        OK(sw_npy_write(scratch_path("a.npy"), &a));
        OK(sw_npy_read(scratch_path("a.npy"), &b));
        assert_int_equal(b.dtype, t);
        assert_int_equal(b.rank, 3);
        assert_memory_equal(a.shape, b.shape, 3 * sizeof(int64_t));
        assert_memory_equal(raw, b.data, a.bytes);
        sw_array_free(&b);
    }
    const sw_array number = { .dtype = SW_F32, .bytes = 4, .data = (float[]){ 1 } };
    FAILS(SW_ERR_IO, sw_npy_write("/no/such/folder/a.npy", &number), "folder does not exist");
    FAILS(SW_ERR_ARGUMENT, sw_npy_write("a.npy", &(sw_array){ .dtype = SW_F32, .bytes = 8 }), "does not make 8 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_values),     cmocka_unit_test(npy_values),   cmocka_unit_test(npy_shapes),
        cmocka_unit_test(npy_refusals),   cmocka_unit_test(npy_lies),     cmocka_unit_test(idx_lies),
        cmocka_unit_test(npz_values),     cmocka_unit_test(npz_refusals), cmocka_unit_test(npy_round_trip),
        cmocka_unit_test(cuts_and_flips),
    };
    return cmocka_run_group_tests_name("io_arrays", tests, make_scratch, remove_scratch);
}
