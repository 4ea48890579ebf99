/* ref.h: what the files of the reference backend share: a call of one op, access to elements, the table of functions.
 * Below ref.c, which is the backend; each ref_*.c implements a group of ops straight from their definitions.
 *
 * Rules of the house
 *   Every floating-point tensor is stored as double, whatever its declared type; integers and bool as they are. Values
 *   are therefore exact up to double's rounding, also those of f16 and bf16: a cast between such types changes nothing.
 *   All tensors are dense and row-major, except those of COPY, which may have any strides.
 *   Sums of long rows run in long double. Nothing here is shared with another backend. */
#ifndef SW_BACKEND_REF_REF_H
#define SW_BACKEND_REF_REF_H

#include "backend/backend.h"

#include <math.h>

#define SW__REF_MAX_IN 18 /* inputs, results and their gradients of a user's op, see swoop/kernel.h */

/* One op to be run: description, and where its tensors are. */
typedef struct sw__ref_call {
    const sw__op_desc *d;
    const sw__attr *attr;
    const void *in[SW__REF_MAX_IN];
    void *out[SW__MAX_OUT];
    void *work;
} sw__ref_call;

typedef struct sw__ref_op {
    sw_status (*run)(const sw__ref_call *c);
    size_t (*workspace)(const sw__op_desc *d); /* bytes; NULL: none */
} sw__ref_op;

/* run is NULL for the ops that a schedule binds or copies itself: input, var, varpack, literal, assign, pack, concat,
 * output. */
extern const sw__ref_op sw__ref_ops[SW_OP_COUNT];

sw_status sw__ref_const(const sw__ref_call *c);
sw_status sw__ref_iota(const sw__ref_call *c);
sw_status sw__ref_random(const sw__ref_call *c);
sw_status sw__ref_unary(const sw__ref_call *c);
sw_status sw__ref_cast(const sw__ref_call *c);
sw_status sw__ref_arithmetic(const sw__ref_call *c);
sw_status sw__ref_compare(const sw__ref_call *c);
sw_status sw__ref_where(const sw__ref_call *c);
sw_status sw__ref_flat_copy(const sw__ref_call *c);
sw_status sw__ref_permute(const sw__ref_call *c);
sw_status sw__ref_expand(const sw__ref_call *c);
sw_status sw__ref_pad(const sw__ref_call *c);
sw_status sw__ref_slice(const sw__ref_call *c);
sw_status sw__ref_strided_copy(const sw__ref_call *c);
sw_status sw__ref_reduce(const sw__ref_call *c);
sw_status sw__ref_argreduce(const sw__ref_call *c);
sw_status sw__ref_scan_sum(const sw__ref_call *c);
sw_status sw__ref_sort(const sw__ref_call *c);
size_t sw__ref_sort_workspace(const sw__op_desc *d);
sw_status sw__ref_gather(const sw__ref_call *c);
sw_status sw__ref_scatter(const sw__ref_call *c);
sw_status sw__ref_resample(const sw__ref_call *c);
sw_status sw__ref_embedding(const sw__ref_call *c);
sw_status sw__ref_embedding_grad(const sw__ref_call *c);
sw_status sw__ref_matmul(const sw__ref_call *c);
sw_status sw__ref_conv(const sw__ref_call *c);
sw_status sw__ref_conv_grad_x(const sw__ref_call *c);
sw_status sw__ref_conv_grad_w(const sw__ref_call *c);
sw_status sw__ref_max_pool(const sw__ref_call *c);
sw_status sw__ref_max_pool_grad(const sw__ref_call *c);
sw_status sw__ref_avg_pool(const sw__ref_call *c);
sw_status sw__ref_avg_pool_grad(const sw__ref_call *c);
sw_status sw__ref_batch_norm(const sw__ref_call *c);
sw_status sw__ref_batch_norm_grad(const sw__ref_call *c);
sw_status sw__ref_layer_norm(const sw__ref_call *c);
sw_status sw__ref_layer_norm_grad(const sw__ref_call *c);
sw_status sw__ref_softmax(const sw__ref_call *c);
sw_status sw__ref_cross_entropy(const sw__ref_call *c);
sw_status sw__ref_recurrent(const sw__ref_call *c);
sw_status sw__ref_recurrent_grad(const sw__ref_call *c);
size_t sw__ref_recurrent_workspace(const sw__op_desc *d);
sw_status sw__ref_ctc_loss(const sw__ref_call *c);
size_t sw__ref_ctc_workspace(const sw__op_desc *d);
sw_status sw__ref_attention(const sw__ref_call *c);
sw_status sw__ref_attention_grad(const sw__ref_call *c);
sw_status sw__ref_custom(const sw__ref_call *c);
size_t sw__ref_custom_workspace(const sw__op_desc *d);
sw_status sw__ref_custom_check(const sw__op_desc *d); /* can it be run: when it is planned */
sw_status sw__ref_source_build(void *dev, const sw_kernel_source *s, void **built);
void sw__ref_source_free(void *dev, void *built);
sw_status sw__ref_source_launch(void *dev, void *built, const sw__source_launch *l);

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static inline bool sw__ref_is_float(const sw__desc *d)
{
    return sw__dtype_is_float((sw_dtype)d->dtype);
}

static inline size_t sw__ref_size(const sw__desc *d)
{
    return sw__ref_is_float(d) ? sizeof(double) : sw_dtype_size((sw_dtype)d->dtype);
}

static inline int64_t sw__ref_count(const sw__desc *d)
{
    return sw__dims_product(d->dim, d->rank);
}

int64_t sw__ref_get_int(const void *p, sw_dtype t, int64_t i);
/* Wraps the value to the type, as two's complement; bool: != 0. */
void sw__ref_set_int(void *p, sw_dtype t, int64_t i, int64_t v);

/* An axis in the middle: the tensor as [outer, length, inner]. */
typedef struct sw__ref_axis { int64_t outer, length, inner; } sw__ref_axis;
sw__ref_axis sw__ref_split(const sw__desc *d, int axis);

/* The next multi-index in row-major order. */
static inline void sw__ref_step(int64_t *index, const int64_t *dim, int rank)
{
    for (int i = rank - 1; i >= 0; i--) {
        if (++index[i] < dim[i]) return;
        index[i] = 0;
    }
}

/* Greatest of two with IEEE's NaN: NaN if either is. */
static inline double sw__ref_fmax(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static inline double sw__ref_fmin(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

/* SW_ERR_DATA: "gather 'name': index[3] is 12, outside 0 … 9". */
sw_status sw__ref_bad_index(const sw__ref_call *c, const char *what, int64_t position, int64_t value, int64_t extent);

/* What an activation makes of a value. */
static inline double sw__ref_act(int32_t act, double x)
{
    return act == SW_ACT_RELU ? sw__ref_fmax(x, 0.0) : x;
}

#endif
