/* columns.h: what the planners of ops along an axis share: places in a tensor written as expressions of the dialect,
 * types as kernels need them, lists of macros, sizes of groups. Beside gpu.h; used by argreduce.c … embedding.c. */
#ifndef SW_BACKEND_GPU_OPS_COLUMNS_H
#define SW_BACKEND_GPU_OPS_COLUMNS_H

#include "backend/gpu/gpu.h"

/* ---- macros of a portable kernel --------------------------------------------------------------------------------- */

#define SW__GPU_PLACE 1200
typedef struct sw__gpu_place { char text[SW__GPU_PLACE]; } sw__gpu_place;

typedef struct sw__gpu_macros { sw__gpu_macro m[40]; int n; } sw__gpu_macros;
void sw__gpu_put(sw__gpu_macros *m, const char *name, int64_t value);
/* The text is to live until the kernel is asked for. */
void sw__gpu_put_text(sw__gpu_macros *m, const char *name, const char *text);

/* The element where a tensor keeps place `column` among all axes but `axis` (row-major), and `along` on that axis: an
 * expression of the kernel's variables of these names. axis -1: all axes are walked by `column`. */
void sw__gpu_place_of(const sw__desc *d, int axis, const char *column, const char *along, sw__gpu_place *out);
int64_t sw__gpu_count(const sw__desc *d, int axis); /* columns; axis -1: elements */
/* The type that counts to n: "u32" or "i64". */
const char *sw__gpu_counter(int64_t n);

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* Values as unsigned numbers that order as they do (-0 equals 0, a NaN is the greatest): BITS, KEY, KIND, SIGN, INF;
 * the function itself is in each portable file. */
enum { SW__GPU_UNSIGNED, SW__GPU_SIGNED, SW__GPU_FLOATING, SW__GPU_INDICES };
void sw__gpu_put_keys(sw__gpu_macros *m, sw_dtype t);
const char *sw__gpu_bits(sw_dtype t); /* "u16": the element as it lies in memory */
size_t sw__gpu_key_size(sw_dtype t);  /* 4 or 8 */

/* How elements are added up: ELEMENT in memory, VALUE in registers (f16, bf16: float), GET and PUT of p, i and v. */
void sw__gpu_put_values(sw__gpu_macros *m, sw_dtype t);
/* SW_ERR_UNSUPPORTED if t is f64 and the device has none. */
sw_status sw__gpu_can_add(const sw__gpu_plan *p, sw_dtype t);

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* Work-items of a group: the largest power of two that is neither above `most` nor more than the device takes. */
int sw__gpu_lanes(const sw__gpu *g, int64_t most);
int64_t sw__gpu_up(int64_t n); /* the power of two at or above n */
/* Kernels walk what they have to do in steps of all groups. `units`: of groups' work. Puts GROUPS and SIZE. */
uint32_t sw__gpu_grid(sw__gpu_macros *m, int64_t units, int size);
/* Reserves bytes at the end of the workspace. */
size_t sw__gpu_reserve(sw__gpu_plan *p, int64_t n, size_t size);
#define SW_GPU_WORK(P, AT) { .kind = SW_GPU_BUFFER, .bind = (P)->n_bind, .at = (AT) }
/* Asks for FILE with these macros and launches `groups` groups of `size` (x, and y) work-items. */
sw_status sw__gpu_step(sw__gpu_plan *p, const char *file, const sw__gpu_macros *m, uint32_t groups, int size_x,
                       int size_y, const sw__gpu_arg *args, int n_args);
/* Should a work-item walk a column by itself (true), or a group together? */
bool sw__gpu_by_item(const sw__gpu *g, const sw__desc *d, int axis);

/* ---- sorted indices ---------------------------------------------------------------------------------------------- */

/* Columns of indices in stable order, in the workspace: keys (bad ones are `extent`, at the end of their column) and
 * where along the column each was. */
typedef struct sw__gpu_sorted {
    size_t keys, ids;               /* in the workspace, each [count][length] */
    const char *key_type, *id_type;
} sw__gpu_sorted;
/* Input `bind` of the plan, an index into `extent`. axis -1: the whole tensor is one column. Bad ones are reported. */
sw_status sw__gpu_sort_indices(sw__gpu_plan *p, int bind, int axis, int64_t extent, sw__gpu_sorted *out);

#endif
