/* swoop/io.h: tensors in files. safetensors (both ways), NPY (both ways), NPZ and IDX (reading).
 * Needs status.h only. Data sets (data.h), parameters and checkpoints (train.h) are made of these.
 *
 * Every reader checks what the file claims before it believes it. A message names the file and the byte offset of the
 * fault: SW_ERR_FORMAT if the content is wrong, SW_ERR_UNSUPPORTED if it is right but not held by swoop (complex
 * numbers, encrypted archives), SW_ERR_IO if the operating system refuses, SW_ERR_MEMORY.
 * Every writer writes a temporary file in the same folder, flushes it to the disk and renames it: after a failure or a
 * power cut the old file is still whole, and there is no half-written one. */
#ifndef SWOOP_IO_H
#define SWOOP_IO_H

#include "swoop/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dense host tensor in C order. bytes = product of shape × sw_dtype_size(dtype); rank 0 is a single number. */
typedef struct sw_array {
    sw_dtype dtype;
    int rank;
    int64_t shape[SW_MAX_RANK];
    void *data;
    size_t bytes;
} sw_array;

SW_API int64_t sw_array_count(const sw_array *a); /* number of elements */
/* Frees the data of an array that a reader below filled, and zeroes it. Not for views (sw_safetensors_array). */
SW_API void sw_array_free(sw_array *a);

/* ---- IDX, the format of MNIST and its kin, plain or gzipped -------------------------------------------------------
 * Element types: u8 → SW_U8; i8, i16, i32 → SW_I32; f32, f64 as they are. */
SW_API sw_status sw_idx_read(const char *path, sw_array *out);

/* ---- NPY versions 1 to 3, plain or gzipped ------------------------------------------------------------------------
 * C or Fortran order, either byte order; the result is in C order and native. f2 f4 f8 → SW_F16 SW_F32 SW_F64; b1 →
 * SW_BOOL; u1 → SW_U8; i1 i2 u2 i4 → SW_I32; u4 → SW_U32; i8 → SW_I64; u8 → SW_I64, refused if a value is too large. */
SW_API sw_status sw_npy_read(const char *path, sw_array *out);
/* Version 1.0, C order. bf16, which NumPy has not, is refused (SW_ERR_UNSUPPORTED). */
SW_API sw_status sw_npy_write(const char *path, const sw_array *a);

/* ---- NPZ: a zip archive of NPY files, stored or deflated, zip64 too ---------------------------------------------- */
typedef struct sw_npz sw_npz;
SW_API sw_status sw_npz_open(const char *path, sw_npz **out);
SW_API void sw_npz_close(sw_npz *z);
SW_API size_t sw_npz_count(const sw_npz *z);
SW_API const char *sw_npz_name(const sw_npz *z, size_t i);        /* without ".npy"; NULL if i is out of range */
SW_API int64_t sw_npz_find(const sw_npz *z, const char *name);    /* index, or -1 */
SW_API sw_status sw_npz_read(sw_npz *z, size_t i, sw_array *out); /* checks the entry's CRC */

/* ---- safetensors --------------------------------------------------------------------------------------------------
 * The file is mapped, and tensors are views into the mapping: opening costs only the header. (A tensor that the file
 * does not align to its element size is copied at opening.) Views are valid until sw_safetensors_close. Do not truncate
 * a file while it is open: as with any mapping, touching what is gone raises SIGBUS. */
typedef struct sw_safetensors sw_safetensors;

typedef struct sw_safetensors_info {
    const char *name;
    const char *type_name; /* as in the file: "F32", "BF16", "F8_E4M3", … */
    bool supported;        /* false: a type of the format that swoop has none for (I8, I16, U16, U64, F8_*) */
    sw_array array;        /* view; read-only. Not supported: dtype is SW_U8, and bytes counts, the raw bytes */
} sw_safetensors_info;

SW_API sw_status sw_safetensors_open(const char *path, sw_safetensors **out);
SW_API void sw_safetensors_close(sw_safetensors *f);
SW_API const char *sw_safetensors_path(const sw_safetensors *f);
SW_API size_t sw_safetensors_count(const sw_safetensors *f);
/* Tensors in the order of their data in the file. NULL if i is out of range, or there is none of that name. */
SW_API const sw_safetensors_info *sw_safetensors_at(const sw_safetensors *f, size_t i);
SW_API const sw_safetensors_info *sw_safetensors_find(const sw_safetensors *f, const char *name);
/* The view of tensor `name`; fails with the nearest name if there is none, or if its type is not supported. */
SW_API sw_status sw_safetensors_array(const sw_safetensors *f, const char *name, sw_array *view);
/* Metadata: the value of a key or NULL; and all of it by index (NULL past the end). */
SW_API const char *sw_safetensors_metadata(const sw_safetensors *f, const char *key);
SW_API size_t sw_safetensors_metadata_count(const sw_safetensors *f);
SW_API const char *sw_safetensors_metadata_at(const sw_safetensors *f, size_t i, const char **value); /* the key */

typedef struct sw_named_array {
    const char *name;
    sw_array array; /* host data; borrowed during the call */
} sw_named_array;

typedef struct sw_text_pair {
    const char *key, *value; /* UTF-8 */
} sw_text_pair;

/* Writes n tensors in the order given and n_meta metadata pairs; the data begins on a multiple of 64 bytes, and each
 * tensor on a multiple of its element size (types are written largest first for that; names keep their order within a
 * type). Refuses names that repeat, are empty or are not UTF-8. SW_U32 is written as "U32". */
SW_API sw_status sw_safetensors_write(const char *path, const sw_named_array *tensors, size_t n,
                                      const sw_text_pair *metadata, size_t n_meta);

/* ---- networks ------------------------------------------------------------------------------------------------------ */

/* A network as a list of layers, in JSON; a run file's `layers:` is the same in YAML (docs/layers.md):
 *     ["flatten", {"linear": 128}, "relu", {"dropout": 0.2}, {"linear": {"features": "outputs", "name": "head"}}]
 * outputs: what "outputs" stands for. Errors are the graph's, and say which line. As a model's name it is "layers:" and
 * the list. */
SW_API sw_t sw_model_layers(const char *json, sw_t x, int64_t outputs);
#define SW_LAYERS_PREFIX "layers:"
/* The list in such a model's name, or NULL: it is another model's. */
SW_API const char *sw_model_layers_of(const char *model);

#ifdef __cplusplus
}
#endif
#endif
