/* ops_recurrent.c: public builders of the recurrent ops and of CTC loss, and their gradient rules.
 * Between swoop/graph.h and sw__node_add; the rules are called by grad.c's walk. */
#include "graph/grad.h"
#include "graph/recurrent.h"

/* ---- builders ---------------------------------------------------------------------------------------------------- */

/* Zeros of this shape where the operand was left out. */
static sw_t or_zeros(sw_t x, sw_t like, int rank, int64_t rows, int64_t cols)
{
    const int64_t dim[2] = { rows, cols };
    return x.graph != NULL ? x : sw_full(like.graph, sw_type(like), rank, dim, 0.0);
}

/* All operands that are there, in the op's order. */
static sw_t recurrent(sw__op op, const sw_recurrent_options *o, bool relu, int gates)
{
    const sw_t needed[2] = { o->gates, o->weight_hh };
    sw_t invalid, xs[8];
    if (!sw__operands(op, needed, 2, &invalid)) return invalid;
    sw_graph *const g = o->gates.graph;
    char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
    const int64_t rows = sw_dim(o->weight_hh, 0), batch = sw_dim(o->gates, 0);
    if (sw_rank(o->gates) != 3 || sw_rank(o->weight_hh) != 2 || rows < 1 || rows % gates != 0)
        return sw__op_error(g, op, SW_ERR_SHAPE,
                            "gates are %s, weight_hh %s: they must be [batch, time, %d hidden] and "
                            "[%d hidden, state]",
                            sw__value_text(g, o->gates.id, a), sw__value_text(g, o->weight_hh.id, b), gates, gates);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.recurrent.hidden = rows / gates;
    attr.recurrent.state = sw_dim(o->weight_hh, 1);
    attr.recurrent.reverse = o->reverse;
    attr.recurrent.relu = relu;
    attr.recurrent.proj = o->weight_hr.graph != NULL;
    attr.recurrent.lengths = o->lengths.graph != NULL;
    uint32_t n = 0;
    xs[n++] = o->gates;
    xs[n++] = o->weight_hh;
    xs[n++] = or_zeros(o->bias_hh, o->gates, 1, rows, 0);
    xs[n++] = or_zeros(o->h0, o->gates, 2, batch, attr.recurrent.state);
    if (op == SW_OP_LSTM) xs[n++] = or_zeros(o->c0, o->gates, 2, batch, attr.recurrent.hidden);
    if (attr.recurrent.proj) xs[n++] = o->weight_hr;
    if (attr.recurrent.lengths) xs[n++] = o->lengths;
    return sw__node_add(g, op, xs, n, &attr, NULL);
}

sw_t sw_lstm_op(const sw_recurrent_options *o, sw_t *h_n, sw_t *c_n)
{
    const sw_t y = recurrent(SW_OP_LSTM, o, false, 4);
    if (h_n != NULL) *h_n = sw__output_of(y, 1);
    if (c_n != NULL) *c_n = sw__output_of(y, 2);
    return y;
}

sw_t sw_gru_op(const sw_recurrent_options *o, sw_t *h_n)
{
    const sw_t y = recurrent(SW_OP_GRU, o, false, 3);
    if (h_n != NULL) *h_n = sw__output_of(y, 1);
    return y;
}

sw_t sw_rnn_op(const sw_recurrent_options *o, bool relu, sw_t *h_n)
{
    const sw_t y = recurrent(SW_OP_RNN, o, relu, 1);
    if (h_n != NULL) *h_n = sw__output_of(y, 1);
    return y;
}

sw_t sw_ctc_loss_op(sw_t log_probs, sw_t targets, sw_t input_lengths, sw_t target_lengths, int blank)
{
    const sw_t xs[4] = { log_probs, targets, input_lengths, target_lengths };
    sw_t invalid;
    if (!sw__operands(SW_OP_CTC_LOSS, xs, 4, &invalid)) return invalid;
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.axis = blank;
    return sw__node_add(log_probs.graph, SW_OP_CTC_LOSS, xs, 4, &attr, NULL);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static sw_t as_rows(sw_t x)
{
    return sw_reshape(x, 2, (int64_t[]){ sw_dim(x, 0) * sw_dim(x, 1), sw_dim(x, 2) });
}

/* The state before each step, [B, T, R]: the output one step earlier in the op's direction, h0 at the first. */
static sw_t states_before(const sw__recurrent *r, sw_t y, sw_t h0, sw_t lengths)
{
    sw_graph *const g = y.graph;
    if (r->steps == 0) return y;
    const sw_t first = sw_reshape(h0, 3, (int64_t[]){ r->batch, 1, r->state });
    const sw_t rest = sw_narrow(y, 1, r->reverse ? 1 : 0, r->steps - 1);
    const sw_t all =
        r->steps == 1 ? first : sw_concat(r->reverse ? (sw_t[]){ rest, first } : (sw_t[]){ first, rest }, 2, 1);
    if (!r->reverse || lengths.graph == NULL) return all;
    const sw_dtype type = sw_type(lengths);
    const sw_t place = sw_iota(g, type, 3, (int64_t[]){ 1, r->steps, 1 }, 1);
    const sw_t last = sw_sub(sw_reshape(lengths, 3, (int64_t[]){ r->batch, 1, 1 }), sw_const(g, type, 1));
    return sw_where(sw_eq(place, last), first, all);
}

/* a^T b over all steps of all samples. */
static sw_t weight_gradient(sw_t a, sw_t b)
{
    const sw_t in[2] = { sw_transpose(as_rows(a), 0, 1), as_rows(b) };
    return sw__node_add(a.graph, SW_OP_MATMUL, in, 2, NULL, NULL);
}

/* What is projected at each step: o tanh(c), of what was saved. */
static sw_t unprojected(const sw__recurrent *r, sw_t saved)
{
    const sw_t o = sw_narrow(saved, 2, 3 * r->hidden, r->hidden), c = sw_narrow(saved, 2, 4 * r->hidden, r->hidden);
    return sw_mul(o, sw_tanh(c));
}

static sw_t gradient_node(sw_graph *g, uint32_t id, const sw__recurrent *r, const sw_t *dy)
{
    const sw__op ops[] = {
        [SW_CELL_RNN] = SW_OP_RNN_GRAD, [SW_CELL_GRU] = SW_OP_GRU_GRAD, [SW_CELL_LSTM] = SW_OP_LSTM_GRAD
    };
    const sw__attr attr = g->nodes[id].attr;
    const bool lstm = r->cell == SW_CELL_LSTM;
    const sw_t y = sw__value(g, id);
    sw_t in[8];
    uint32_t n = 0;
    in[n++] = sw_valid(dy[0]) ? dy[0] : sw__const_like(y, 0.0);
    in[n++] = sw_valid(dy[r->out_h]) ? dy[r->out_h] : sw__const_like(sw__arg(g, id, (uint32_t)r->h0), 0.0);
    if (lstm) in[n++] = sw_valid(dy[r->out_c]) ? dy[r->out_c] : sw__const_like(sw__arg(g, id, (uint32_t)r->c0), 0.0);
    if (r->n_saved > 0) in[n++] = sw__output_of(y, r->out_saved);
    if (!lstm) in[n++] = y;
    in[n++] = sw__arg(g, id, (uint32_t)r->weight);
    if (r->cell == SW_CELL_GRU) in[n++] = sw__arg(g, id, (uint32_t)r->h0);
    if (lstm) in[n++] = sw__arg(g, id, (uint32_t)r->c0);
    if (r->proj >= 0) in[n++] = sw__arg(g, id, (uint32_t)r->proj);
    if (r->lengths >= 0) in[n++] = sw__arg(g, id, (uint32_t)r->lengths);
    return sw__node_add(g, ops[r->cell], in, n, &attr, NULL);
}

RULE(sw__grad_recurrent)
{
    const sw__node n = g->nodes[id];
    const sw__recurrent r = sw__recurrent_of(n.op, &n.attr, n.dim);
    if (r.out_saved >= 0 && sw_valid(dy[r.out_saved])) { /* a gradient of a gradient */
        sw__grad_by_lowering(g, id, dy, want, dx);
        return;
    }
    const sw_t d = gradient_node(g, id, &r, dy), y = sw__value(g, id);
    if (!sw_valid(d)) return;
    const sw__recurrent b = sw__recurrent_of(g->nodes[d.id].op, &n.attr, n.dim);
    const sw_t dstate = b.out_dstate >= 0 ? sw__output_of(d, b.out_dstate) : d;
    if (want[r.gates]) dx[r.gates] = d;
    if (want[r.h0]) dx[r.h0] = sw__output_of(d, b.out_dh0);
    if (r.c0 >= 0 && want[r.c0]) dx[r.c0] = sw__output_of(d, b.out_dc0);
    if (want[r.bias]) dx[r.bias] = sw_sum(as_rows(dstate), SW_AXIS(0), false);
    if (want[r.weight]) {
        const sw_t lengths = r.lengths >= 0 ? sw__arg(g, id, (uint32_t)r.lengths) : SW_NONE;
        dx[r.weight] = weight_gradient(dstate, states_before(&r, y, sw__arg(g, id, (uint32_t)r.h0), lengths));
    }
    if (r.proj >= 0 && want[r.proj])
        dx[r.proj] = weight_gradient(sw__output_of(d, b.out_dproj), unprojected(&r, sw__output_of(y, r.out_saved)));
}

/* Output 1 is the loss's derivative. */
RULE(sw__grad_ctc_loss)
{
    if (!want[0]) return;
    if (sw_valid(dy[1])) {
        sw__grad_by_lowering(g, id, dy, want, dx);
        return;
    }
    const sw_t slope = sw__output_of(sw__value(g, id), 1);
    dx[0] = sw_mul(slope, sw_reshape(dy[0], 3, (int64_t[]){ sw_dim(slope, 0), 1, 1 }));
}
