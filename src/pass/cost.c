/* cost.c: arithmetic operations and bytes of one whole op, for plans, profiles and rooflines. Used when steps are made.
 * Operations are counted as the field counts them: a multiply-add is two. Kernels count their own (sw__kernel_cost). */
#include "graph/recurrent.h"
#include "pass/sched.h"

static double elements(const sw__desc *d)
{
    double n = 1;
    for (int i = 0; i < d->rank; i++) n *= (double)d->dim[i];
    return n;
}

/* Elements in memory: expanded axes are read once. */
static double stored(const sw__desc *d)
{
    double n = 1;
    for (int i = 0; i < d->rank; i++)
        if (d->stride[i] != 0 || d->dim[i] == 0) n *= (double)d->dim[i];
    return n;
}

static double matmul_flops(const sw__step *s, const sw__desc *out)
{
    const sw__desc *a = &s->refs[0].desc;
    return 2 * elements(out) * (double)a->dim[a->rank - 1] + (s->n_in > 2 ? elements(out) : 0);
}

/* `image` is the side with output channels (y or dy), `weight` the kernel: one multiply-add for each output element and
 * each element of a filter. */
static double conv_flops(const sw__desc *image, const sw__desc *weight)
{
    return weight->dim[0] == 0 ? 0 : 2 * elements(image) * elements(weight) / (double)weight->dim[0];
}

static double window(const sw__step *s)
{
    double n = 1;
    for (int i = 0; i < s->attr.pool.nd; i++) n *= (double)s->attr.pool.kernel[i];
    return n;
}

/* The products with the weights of the state, and of the projection. */
static double recurrent_flops(const sw__step *s, const sw__desc *out)
{
    const sw__recurrent r = sw__recurrent_of(s->op, &s->attr, out->dim);
    const double each = (double)r.rows * (double)r.state + (r.proj >= 0 ? (double)r.state * (double)r.hidden : 0);
    return 2 * (double)r.batch * (double)r.steps * each;
}

/* So many products with the features of q and k, and with those of v, over the scores that are looked at. */
static double attention_flops(const sw__step *s, double by_k, double by_v)
{
    const sw__desc *q = &s->refs[0].desc, *k = &s->refs[1].desc, *v = &s->refs[2].desc;
    double rows = (double)q->dim[1], keys = (double)k->dim[1], scores = rows * keys;
    if (s->attr.attention.causal) scores = rows <= keys ? rows * (rows + 1) / 2 : rows * keys - keys * (keys - 1) / 2;
    return 2 * (double)q->dim[0] * (double)q->dim[2] * scores * (by_k * (double)q->dim[3] + by_v * (double)v->dim[3]);
}

void sw__op_cost(const sw__step *s, double *flops, double *bytes)
{
    const sw__desc *in = &s->refs[0].desc, *out = &s->refs[s->n_in].desc;
    *bytes = *flops = 0;
    for (int i = 0; i < s->n_in + s->n_out; i++)
        *bytes += stored(&s->refs[i].desc) * (double)sw_dtype_size((sw_dtype)s->refs[i].desc.dtype);
    const uint8_t cls = sw__op_table[s->op].cls;
    switch (s->op) {
    case SW_OP_DOT: case SW_OP_MATMUL: *flops = matmul_flops(s, out); break;
    case SW_OP_CONV: *flops = conv_flops(out, &s->refs[1].desc) + (s->n_in > 2 ? elements(out) : 0); break;
    case SW_OP_CONV_GRAD_X: *flops = conv_flops(in, &s->refs[1].desc); break;
    case SW_OP_CONV_GRAD_W: *flops = conv_flops(&s->refs[1].desc, out); break;
    case SW_OP_MAX_POOL: case SW_OP_AVG_POOL: *flops = elements(out) * window(s); break;
    case SW_OP_MAX_POOL_GRAD: *flops = elements(&s->refs[2].desc) * window(s); break;
    case SW_OP_AVG_POOL_GRAD: *flops = elements(in) * window(s); break;
    case SW_OP_BATCH_NORM: *flops = 8 * elements(in); break;       /* mean 1, variance 3, scale and shift 4 */
    case SW_OP_BATCH_NORM_GRAD: *flops = 11 * elements(in); break; /* two sums 5, dx 6 */
    case SW_OP_LAYER_NORM: *flops = 8 * elements(in); break;
    case SW_OP_LAYER_NORM_GRAD: *flops = 11 * elements(in); break;
    case SW_OP_SOFTMAX: case SW_OP_LOG_SOFTMAX: *flops = 5 * elements(in); break;
    case SW_OP_CROSS_ENTROPY: *flops = 4 * elements(in); break;
    case SW_OP_LSTM: case SW_OP_GRU: case SW_OP_RNN:
    case SW_OP_LSTM_GRAD: case SW_OP_GRU_GRAD: case SW_OP_RNN_GRAD: *flops = recurrent_flops(s, out); break;
    case SW_OP_SCATTER_ADD: case SW_OP_SCATTER_MAX: *flops = elements(&s->refs[2].desc); break;
    case SW_OP_EMBEDDING_GRAD: *flops = elements(&s->refs[1].desc); break;
    case SW_OP_ATTENTION: *flops = attention_flops(s, 1, 1); break;
    case SW_OP_ATTENTION_GRAD: *flops = attention_flops(s, 3, 2); break; /* scores, dq, dk; dy v^T, dv */
    default:
        if (cls == SW_CLASS_UNARY || cls == SW_CLASS_BINARY || cls == SW_CLASS_TERNARY) *flops = elements(out);
        else if (cls == SW_CLASS_REDUCE || s->op == SW_OP_SCAN_SUM) *flops = elements(in);
    }
}
