/* safetensors_write.c: writes safetensors, atomically, with data on a multiple of 64 bytes.
 * A writer of io; the counterpart of safetensors.c, and the heart of checkpoints. */
#include "io/atomic.h"
#include "io/json.h"
#include "io/safetensors.h"
#include <inttypes.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* Both sort arrays of pointers to sw_named_array. */
static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const sw_named_array *const *)a)->name, (*(const sw_named_array *const *)b)->name);
}

/* Larger elements first, so that each tensor is aligned without padding; pointers keep the caller's order within. */
static int compare_elements(const void *a, const void *b)
{
    const sw_named_array *const s = *(const sw_named_array *const *)a, *const t = *(const sw_named_array *const *)b;
    const size_t m = sw_dtype_size(s->array.dtype), n = sw_dtype_size(t->array.dtype);
    return m != n ? (m > n ? -1 : 1) : s < t ? -1 : s > t;
}

static sw_status check_text(const char *path, const char *what, const char *s)
{
    if (s == NULL) return sw__fail(SW_ERR_ARGUMENT, "%s: %s is NULL", path, what);
    const size_t n = strlen(s), good = sw__utf8_check(s, n);
    if (good == n) return SW_OK;
    return sw__fail(SW_ERR_ARGUMENT, "%s: %s '%.*s…' is not UTF-8 from byte %zu on", path, what, (int)good, s, good);
}

static sw_status check_tensor(const char *path, const sw_named_array *t)
{
    SW_TRY(check_text(path, "a tensor's name", t->name));
    if (t->name[0] == '\0' || strcmp(t->name, "__metadata__") == 0) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: a tensor cannot be called '%s'", path, t->name);
    }
    const sw_array *const a = &t->array;
    if (a->rank < 0 || a->rank > SW_MAX_RANK || sw_dtype_size(a->dtype) == 0) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: tensor '%s' has dtype %d and %d axes", path, t->name, (int)a->dtype,
                        a->rank);
    }
    size_t count;
    if (!sw__shape_count(a->shape, a->rank, &count) || count * sw_dtype_size(a->dtype) != a->bytes) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: tensor '%s': its shape does not make %zu bytes", path, t->name, a->bytes);
    }
    return SW_OK;
}

/* Checks everything, and leaves `order` in the order of writing. */
static sw_status check_and_order(const char *path, const sw_named_array *tensors, size_t n,
                                 const sw_text_pair *metadata, size_t n_meta, const sw_named_array **order)
{
    for (size_t i = 0; i < n; i++) {
        SW_TRY(check_tensor(path, &tensors[i]));
        order[i] = &tensors[i];
    }
    if (n > 0) qsort(order, n, sizeof *order, compare_names);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) {
            return sw__fail(SW_ERR_ARGUMENT, "%s: two tensors are called '%s'", path, order[i]->name);
        }
    }
    if (n > 0) qsort(order, n, sizeof *order, compare_elements);
    for (size_t i = 0; i < n_meta; i++) {
        SW_TRY(check_text(path, "a metadata key", metadata[i].key));
        SW_TRY(check_text(path, metadata[i].key, metadata[i].value));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(metadata[i].key, metadata[j].key) != 0) continue;
            return sw__fail(SW_ERR_ARGUMENT, "%s: metadata key '%s' comes twice", path, metadata[i].key);
        }
    }
    return SW_OK;
}

static void add_header(sw__text *t, const sw_named_array *const *order, size_t n, const sw_text_pair *metadata,
                       size_t n_meta)
{
    const char *separator = "";
    sw__text_add(t, "{");
    if (n_meta > 0) {
        sw__text_add(t, "\"__metadata__\":{");
        for (size_t i = 0; i < n_meta; i++) {
            sw__text_add(t, "%s", i > 0 ? "," : "");
            sw__json_string(t, metadata[i].key);
            sw__text_add(t, ":");
            sw__json_string(t, metadata[i].value);
        }
        sw__text_add(t, "}");
        separator = ",";
    }
    size_t at = 0;
    for (size_t i = 0; i < n; i++, separator = ",") {
        const sw_array *const a = &order[i]->array;
        sw__text_add(t, "%s", separator);
        sw__json_string(t, order[i]->name);
        sw__text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", sw__safetensors_type_of(a->dtype)->name);
        for (int k = 0; k < a->rank; k++) sw__text_add(t, "%s%" PRId64, k > 0 ? "," : "", a->shape[k]);
        sw__text_add(t, "],\"data_offsets\":[%zu,%zu]}", at, at + a->bytes);
        at += a->bytes;
    }
    sw__text_add(t, "}");
    while (!t->failed && (SW__SAFETENSORS_LENGTH + t->len) % ALIGNMENT != 0) sw__text_put(t, " ", 1);
}

static sw_status write_file(const char *path, const sw__text *header, const sw_named_array *const *order, size_t n)
{
    sw__atomic file;
    SW_TRY(sw__atomic_begin(&file, path));
    const uint64_t length = header->len;
    sw_status st = sw__atomic_put(&file, &length, sizeof length);
    if (st == SW_OK) st = sw__atomic_put(&file, header->s, header->len);
    for (size_t i = 0; st == SW_OK && i < n; i++)
        st = sw__atomic_put(&file, order[i]->array.data, order[i]->array.bytes);
    if (st == SW_OK) return sw__atomic_commit(&file);
    sw__atomic_abort(&file);
    return st;
}

sw_status sw_safetensors_write(const char *path, const sw_named_array *tensors, size_t n, const sw_text_pair *metadata,
                               size_t n_meta)
{
    if (path == NULL || (tensors == NULL && n > 0) || (metadata == NULL && n_meta > 0))
        return sw__fail(SW_ERR_ARGUMENT, "sw_safetensors_write: path, tensors or metadata is NULL");
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
        return sw__fail(SW_ERR_UNSUPPORTED, "%s: safetensors are written on little-endian machines only", path);
    }
    const sw_named_array **const order = sw__calloc(n, sizeof *order);
    if (order == NULL) return sw__no_memory(n * sizeof *order, path);
    sw__text header = { 0 };
    sw_status st = check_and_order(path, tensors, n, metadata, n_meta, order);
    if (st == SW_OK) {
        add_header(&header, order, n, metadata, n_meta);
        st = header.failed ? sw__no_memory(header.len, path) : write_file(path, &header, order, n);
    }
    sw__text_free(&header);
    sw__free(order);
    return st;
}
