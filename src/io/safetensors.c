/* safetensors.c: opens a safetensors file as a mapping, believing nothing in its header before it is checked.
 * A reader of io; parameters, checkpoints and data sets come through here. safetensors_write.c is its counterpart. */
#include "io/safetensors.h"
#include <inttypes.h>
#include <stdlib.h>
#ifdef SWOOP_HAVE_JSON
#include <jansson.h>
#endif

static const sw__safetensors_type types[] = {
    { "F32", 32, true, SW_F32 },    { "F64", 64, true, SW_F64 },    { "F16", 16, true, SW_F16 },
    { "BF16", 16, true, SW_BF16 },  { "I32", 32, true, SW_I32 },    { "I64", 64, true, SW_I64 },
    { "U8", 8, true, SW_U8 },       { "BOOL", 8, true, SW_BOOL },   { "U32", 32, true, SW_U32 },
    { "I8", 8, false, SW_U8 },      { "I16", 16, false, SW_U8 },    { "U16", 16, false, SW_U8 },
    { "U64", 64, false, SW_U8 },    { "F8_E4M3", 8, false, SW_U8 }, { "F8_E5M2", 8, false, SW_U8 },
    { "F8_E8M0", 8, false, SW_U8 }, { "C64", 64, false, SW_U8 },    { "F4", 4, false, SW_U8 },
    { "F6_E2M3", 6, false, SW_U8 }, { "F6_E3M2", 6, false, SW_U8 },
};

const sw__safetensors_type *sw__safetensors_type_named(const char *name)
{
    for (size_t i = 0; i < SW_COUNT(types); i++) {
        if (strcmp(types[i].name, name) == 0) return &types[i];
    }
    return NULL;
}

const sw__safetensors_type *sw__safetensors_type_of(sw_dtype dtype)
{
    for (size_t i = 0; i < SW_COUNT(types); i++) {
        if (types[i].supported && types[i].dtype == dtype) return &types[i];
    }
    return NULL;
}

typedef struct tensor {
    sw_safetensors_info info;
    uint64_t begin, end; /* in the data part */
    void *copy;          /* of data that the file does not align, or NULL */
} tensor;

struct sw_safetensors {
    sw__mapping map; /* base NULL if the bytes are the caller's */
    const uint8_t *bytes;
    size_t n, header; /* header: its length */
    char *path;
    sw__arena arena; /* tensors, names, metadata */
    tensor *tensors; /* by their place in the data */
    tensor **by_name;
    size_t count;
    sw_text_pair *metadata;
    size_t metadata_count;
};

void sw_safetensors_close(sw_safetensors *f)
{
    if (f == NULL) return;
    for (size_t i = 0; i < f->count; i++) sw__free(f->tensors[i].copy);
    sw__arena_free(&f->arena);
    sw__free(f->path);
    sw__file_unmap(&f->map);
    sw__free(f);
}

const char *sw_safetensors_path(const sw_safetensors *f)
{
    if (f == NULL) return "";
    return f->path;
}

size_t sw_safetensors_count(const sw_safetensors *f)
{
    if (f == NULL) return 0;
    return f->count;
}

const sw_safetensors_info *sw_safetensors_at(const sw_safetensors *f, size_t i)
{
    if (f == NULL) return NULL;
    return i < f->count ? &f->tensors[i].info : NULL;
}

static int compare_name_to(const void *name, const void *t)
{
    return strcmp(name, (*(tensor *const *)t)->info.name);
}

const sw_safetensors_info *sw_safetensors_find(const sw_safetensors *f, const char *name)
{
    if (f == NULL || name == NULL) return NULL;
    tensor *const *const found =
        f->count == 0 ? NULL : bsearch(name, f->by_name, f->count, sizeof *f->by_name, compare_name_to);
    return found != NULL ? &(*found)->info : NULL;
}

/* Names the nearest tensor, if one is near and memory allows. */
static sw_status no_such_tensor(const sw_safetensors *f, const char *name)
{
    const char **const names = sw__calloc(f->count, sizeof *names);
    const char *near = NULL;
    if (names != NULL) {
        for (size_t i = 0; i < f->count; i++) names[i] = f->tensors[i].info.name;
        near = sw__nearest(name, names, f->count);
        sw__free(names);
    }
    return near != NULL ? sw__fail(SW_ERR_DATA, "%s has no tensor '%s'; did you mean '%s'?", f->path, name, near)
                        : sw__fail(SW_ERR_DATA, "%s has no tensor '%s' (it has %zu)", f->path, name, f->count);
}

sw_status sw_safetensors_array(const sw_safetensors *f, const char *name, sw_array *view)
{
    if (f == NULL || name == NULL || view == NULL)
        return sw__fail(SW_ERR_ARGUMENT, "sw_safetensors_array: file, name or view is NULL");
    const sw_safetensors_info *const info = sw_safetensors_find(f, name);
    if (info == NULL) return no_such_tensor(f, name);
    if (!info->supported) {
        return sw__fail(SW_ERR_UNSUPPORTED, "%s: tensor '%s' has type %s, which swoop does not compute with", f->path,
                        name, info->type_name);
    }
    *view = info->array;
    return SW_OK;
}

const char *sw_safetensors_metadata(const sw_safetensors *f, const char *key)
{
    if (f == NULL || key == NULL) return NULL;
    for (size_t i = 0; i < f->metadata_count; i++) {
        if (strcmp(f->metadata[i].key, key) == 0) return f->metadata[i].value;
    }
    return NULL;
}

size_t sw_safetensors_metadata_count(const sw_safetensors *f)
{
    if (f == NULL) return 0;
    return f->metadata_count;
}

const char *sw_safetensors_metadata_at(const sw_safetensors *f, size_t i, const char **value)
{
    if (f == NULL) return NULL;
    if (i >= f->metadata_count) return NULL;
    if (value != NULL) *value = f->metadata[i].value;
    return f->metadata[i].key;
}

/* ---- reading the header ------------------------------------------------------------------------------------------ */

#ifdef SWOOP_HAVE_JSON
static const char *const metadata_key = "__metadata__";

/* Where "name" stands in the header, for messages: jansson does not tell. Names that need escapes are not found: the
 * header's start then has to do. */
static uint64_t place_of(const sw_safetensors *f, const char *name)
{
    const uint8_t *at = f->bytes + SW__SAFETENSORS_LENGTH;
    const uint8_t *const end = f->bytes + SW__SAFETENSORS_LENGTH + f->header;
    const size_t n = strlen(name);
    while ((at = memmem(at, (size_t)(end - at), name, n)) != NULL) {
        if (at > f->bytes && at[-1] == '"' && at + n < end && at[n] == '"') return (uint64_t)(at - f->bytes);
        at++;
    }
    return SW__SAFETENSORS_LENGTH;
}

static sw_status wrong(const sw_safetensors *f, const tensor *t, const char *what)
{
    return sw__bad_byte(f->path, place_of(f, t->info.name), "tensor '%s': %s", t->info.name, what);
}

static sw_status read_shape(const sw_safetensors *f, tensor *t, const json_t *shape)
{
    if (!json_is_array(shape)) return wrong(f, t, "its shape is not a list");
    sw_array *const a = &t->info.array;
    if (json_array_size(shape) > SW_MAX_RANK) {
        return sw__fail(SW_ERR_UNSUPPORTED, "%s: tensor '%s' has %zu axes; swoop has at most %d", f->path, t->info.name,
                        json_array_size(shape), SW_MAX_RANK);
    }
    a->rank = (int)json_array_size(shape);
    for (int i = 0; i < a->rank; i++) {
        const json_t *const size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return wrong(f, t, "its shape has an entry that is no size");
        }
        a->shape[i] = json_integer_value(size);
    }
    return SW_OK;
}

static sw_status read_offsets(const sw_safetensors *f, tensor *t, const json_t *offsets)
{
    const json_t *const begin = json_array_get(offsets, 0), *const end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return wrong(f, t, "its data_offsets are not a pair of integers");
    }
    if (json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin)) {
        return wrong(f, t, "its data_offsets are not in order");
    }
    t->begin = (uint64_t)json_integer_value(begin);
    t->end = (uint64_t)json_integer_value(end);
    const uint64_t data = f->n - SW__SAFETENSORS_LENGTH - f->header;
    if (t->end > data) {
        return sw__bad_byte(f->path, place_of(f, t->info.name),
                            "tensor '%s' ends at byte %" PRIu64 " of the data, but there are only "
                            "%" PRIu64 ": the file is cut short or its header lies",
                            t->info.name, t->end, data);
    }
    return SW_OK;
}

/* Type, shape and offsets must tell the same size. */
static sw_status check_size(const sw_safetensors *f, tensor *t, const sw__safetensors_type *type)
{
    sw_array *const a = &t->info.array;
    size_t count, bits;
    const bool fits = sw__shape_count(a->shape, a->rank, &count) && sw__mul_size(count, type->bits, &bits);
    const uint64_t have = t->end - t->begin;
    if (fits && bits % 8 == 0 && bits / 8 == have) return SW_OK;
    char text[SW__SHAPE_TEXT];
    return sw__bad_byte(f->path, place_of(f, t->info.name),
                        "tensor '%s' of type %s and shape %s cannot have %" PRIu64 " bytes", t->info.name, type->name,
                        sw__array_shape_text(text, a->shape, a->rank), have);
}

static sw_status read_tensor(sw_safetensors *f, tensor *t, const char *name, const json_t *entry)
{
    t->info.name = sw__arena_strdup(&f->arena, name);
    if (t->info.name == NULL) return sw__no_memory(strlen(name), "a safetensors header");
    if (!json_is_object(entry)) return wrong(f, t, "it should be an object with dtype, shape and data_offsets");
    const json_t *const type_name = json_object_get(entry, "dtype");
    if (!json_is_string(type_name)) return wrong(f, t, "it has no dtype");
    const sw__safetensors_type *const type = sw__safetensors_type_named(json_string_value(type_name));
    if (type == NULL) {
        return sw__bad_byte(f->path, place_of(f, t->info.name), "tensor '%s': '%.40s' is no dtype of safetensors", name,
                            json_string_value(type_name));
    }
    t->info.type_name = type->name;
    t->info.supported = type->supported;
    SW_TRY(read_shape(f, t, json_object_get(entry, "shape")));
    SW_TRY(read_offsets(f, t, json_object_get(entry, "data_offsets")));
    SW_TRY(check_size(f, t, type));
    sw_array *const a = &t->info.array;
    a->dtype = type->dtype;
    a->bytes = (size_t)(t->end - t->begin);
    if (!type->supported) { /* raw bytes */
        a->rank = 1;
        a->shape[0] = (int64_t)a->bytes;
    }
    return SW_OK;
}

static sw_status read_metadata(sw_safetensors *f, json_t *object)
{
    if (!json_is_object(object)) {
        return sw__bad_byte(f->path, place_of(f, metadata_key), "__metadata__ is not an object");
    }
    f->metadata = sw__arena_alloc(&f->arena, json_object_size(object) * sizeof *f->metadata);
    if (f->metadata == NULL) return sw__no_memory(0, "a safetensors header");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value)) {
            return sw__bad_byte(f->path, place_of(f, key), "metadata '%.100s' is not a string", key);
        }
        sw_text_pair *const pair = &f->metadata[f->metadata_count];
        pair->key = sw__arena_strdup(&f->arena, key);
        pair->value = sw__arena_strdup(&f->arena, json_string_value(value));
        if (pair->key == NULL || pair->value == NULL) return sw__no_memory(0, "a safetensors header");
        f->metadata_count++;
    }
    return SW_OK;
}

static int compare_places(const void *a, const void *b)
{
    const tensor *const s = a, *const t = b;
    if (s->begin != t->begin) return s->begin < t->begin ? -1 : 1;
    if (s->end != t->end) return s->end < t->end ? -1 : 1;
    return strcmp(s->info.name, t->info.name); /* empty tensors: a definite order */
}

static int compare_tensor_names(const void *a, const void *b)
{
    return strcmp((*(tensor *const *)a)->info.name, (*(tensor *const *)b)->info.name);
}

/* The tensors must tile the data: no gap, no overlap, nothing left over. */
static sw_status check_tiling(const sw_safetensors *f)
{
    const uint64_t start = SW__SAFETENSORS_LENGTH + f->header;
    uint64_t at = 0;
    for (size_t i = 0; i < f->count; i++) {
        const tensor *const t = &f->tensors[i];
        if (t->begin != at) {
            return sw__bad_byte(f->path, start + SW_MIN(at, t->begin),
                                t->begin < at ? "tensor '%s' overlaps the one before it"
                                              : "there is a gap in the data before tensor '%s'",
                                t->info.name);
        }
        at = t->end;
    }
    if (at == f->n - start) return SW_OK;
    return sw__bad_byte(f->path, start + at, "%" PRIu64 " bytes after the last tensor belong to none",
                        f->n - start - at);
}

/* Points the views into the file, or to aligned copies. */
static sw_status place_data(sw_safetensors *f)
{
    const uint8_t *const data = f->bytes + SW__SAFETENSORS_LENGTH + f->header;
    for (size_t i = 0; i < f->count; i++) {
        tensor *const t = &f->tensors[i];
        sw_array *const a = &t->info.array;
        const uint8_t *const here = data + t->begin;
        a->data = (void *)(uintptr_t)here; /* read-only, as documented */
        if (a->bytes == 0 || (uintptr_t)here % sw_dtype_size(a->dtype) == 0) continue;
        t->copy = sw__malloc_aligned(64, a->bytes);
        if (t->copy == NULL) return sw__no_memory(a->bytes, "a tensor that its file does not align");
        memcpy(t->copy, here, a->bytes);
        a->data = t->copy;
    }
    return SW_OK;
}

static sw_status read_entries(sw_safetensors *f, json_t *root)
{
    const size_t most = json_object_size(root);
    f->tensors = sw__arena_alloc(&f->arena, most * sizeof *f->tensors);
    f->by_name = sw__arena_alloc(&f->arena, most * sizeof *f->by_name);
    if (f->tensors == NULL || f->by_name == NULL)
        return sw__no_memory(most * sizeof *f->tensors, "a safetensors header");
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, metadata_key) == 0) {
            SW_TRY(read_metadata(f, entry));
        } else {
            SW_TRY(read_tensor(f, &f->tensors[f->count], name, entry));
            f->count++;
        }
    }
    if (f->count > 0) qsort(f->tensors, f->count, sizeof *f->tensors, compare_places);
    for (size_t i = 0; i < f->count; i++) f->by_name[i] = &f->tensors[i];
    if (f->count > 0) qsort(f->by_name, f->count, sizeof *f->by_name, compare_tensor_names);
    SW_TRY(check_tiling(f));
    return place_data(f);
}

static sw_status parse_header(sw_safetensors *f)
{
    if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
        return sw__fail(SW_ERR_UNSUPPORTED, "%s: safetensors are read on little-endian machines only", f->path);
    }
    if (f->n < SW__SAFETENSORS_LENGTH) {
        return sw__bad_byte(f->path, f->n, "too short for a safetensors file: the header length is missing");
    }
    uint64_t length;
    memcpy(&length, f->bytes, sizeof length);
    if (length > SW__SAFETENSORS_HEADER_MOST || length > f->n - SW__SAFETENSORS_LENGTH) {
        return sw__bad_byte(f->path, 0,
                            "a header of %" PRIu64 " bytes does not fit into this file of %zu: not a "
                            "safetensors file, or cut short",
                            length, f->n);
    }
    f->header = (size_t)length;
    const char *const text = (const char *)f->bytes + SW__SAFETENSORS_LENGTH;
    if (length == 0 || text[0] != '{') {
        return sw__bad_byte(f->path, SW__SAFETENSORS_LENGTH,
                            "the header does not begin with {: not a safetensors file");
    }
    json_error_t error;
    json_t *const root = json_loadb(text, f->header, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory) {
        return sw__no_memory(f->header, "a safetensors header");
    }
    if (root == NULL) {
        return sw__bad_byte(f->path, SW__SAFETENSORS_LENGTH + (uint64_t)SW_MAX(error.position, 0),
                            "the header is not valid JSON: %s", error.text);
    }
    const sw_status st = read_entries(f, root);
    json_decref(root);
    return st;
}
#else
static sw_status parse_header(sw_safetensors *f)
{
    return sw__fail(SW_ERR_UNSUPPORTED, "%s: safetensors need jansson, and swoop was built without it", f->path);
}
#endif

sw_status sw__safetensors_parse(const char *name, const void *bytes, size_t n, sw_safetensors **out)
{
    sw_safetensors *const f = sw__calloc(1, sizeof *f);
    if (f == NULL) return sw__no_memory(sizeof *f, "a safetensors file");
    f->bytes = bytes;
    f->n = n;
    f->path = sw__strdup(name);
    const sw_status st = f->path != NULL ? parse_header(f) : sw__no_memory(strlen(name), "a file name");
    if (st != SW_OK) {
        sw_safetensors_close(f);
        return st;
    }
    *out = f;
    return SW_OK;
}

sw_status sw_safetensors_open(const char *path, sw_safetensors **out)
{
    if (path == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_safetensors_open: path or out is NULL");
    sw__mapping map;
    SW_TRY(sw__file_map(path, &map));
    const sw_status st = sw__safetensors_parse(path, map.base, map.size, out);
    if (st == SW_OK) {
        (*out)->map = map;
    } else {
        sw__file_unmap(&map);
    }
    return st;
}
