/* recurrent.c: see recurrent.h: places of the recurrent ops' operands, and their shape rules. CTC loss, too.
 * Called by sw__node_add, which puts the op, its id and the scope in front of a message. */
#include "graph/recurrent.h"

#include "graph/infer.h"

static sw__cell cell_of(uint16_t op)
{
    return op == SW_OP_LSTM || op == SW_OP_LSTM_GRAD  ? SW_CELL_LSTM
           : op == SW_OP_GRU || op == SW_OP_GRU_GRAD ? SW_CELL_GRU
                                                     : SW_CELL_RNN;
}

static void forward_places(sw__recurrent *r, const sw__attr *attr)
{
    const bool lstm = r->cell == SW_CELL_LSTM;
    int n = 0;
    r->gates = n++;
    r->weight = n++;
    r->bias = n++;
    r->h0 = n++;
    if (lstm) r->c0 = n++;
    if (attr->recurrent.proj) r->proj = n++;
    if (attr->recurrent.lengths) r->lengths = n++;
    r->n_in = n;
    n = 1;
    r->out_h = n++;
    if (lstm) r->out_c = n++;
    if (r->n_saved > 0) r->out_saved = n;
}

static void backward_places(sw__recurrent *r, const sw__attr *attr)
{
    const bool lstm = r->cell == SW_CELL_LSTM;
    int n = 0;
    r->dy = n++;
    r->dh = n++;
    if (lstm) r->dc = n++;
    if (r->n_saved > 0) r->saved = n++;
    if (!lstm) r->y = n++;
    r->weight = n++;
    if (r->cell == SW_CELL_GRU) r->h0 = n++;
    if (lstm) r->c0 = n++;
    if (attr->recurrent.proj) r->proj = n++;
    if (attr->recurrent.lengths) r->lengths = n++;
    r->n_in = n;
    n = 1;
    r->out_dh0 = n++;
    if (lstm) r->out_dc0 = n++;
    if (lstm) r->out_dproj = n++;
    if (r->cell == SW_CELL_GRU) r->out_dstate = n;
}

sw__recurrent sw__recurrent_of(uint16_t op, const sw__attr *attr, const int64_t *first)
{
    static const struct { int gates, saved; } sizes[] = {
        [SW_CELL_RNN] = { 1, 0 }, [SW_CELL_GRU] = { 3, 4 }, [SW_CELL_LSTM] = { 4, 5 } };
    sw__recurrent r;
    memset(&r, 0, sizeof r);
    r.cell = cell_of(op);
    r.backward = op == SW_OP_LSTM_GRAD || op == SW_OP_GRU_GRAD || op == SW_OP_RNN_GRAD;
    r.reverse = attr->recurrent.reverse != 0;
    r.relu = attr->recurrent.relu != 0;
    r.n_gates = sizes[r.cell].gates;
    r.n_saved = sizes[r.cell].saved;
    r.hidden = attr->recurrent.hidden;
    r.state = attr->recurrent.state;
    r.rows = r.n_gates * r.hidden;
    r.batch = first[0];
    r.steps = first[1];
    int *const places[] = { &r.gates, &r.weight, &r.bias, &r.h0, &r.c0, &r.proj, &r.lengths, &r.dy, &r.dh, &r.dc,
                            &r.saved, &r.y, &r.out_h, &r.out_c, &r.out_saved, &r.out_dh0, &r.out_dc0, &r.out_dproj,
                            &r.out_dstate };
    for (size_t i = 0; i < SW_COUNT(places); i++) *places[i] = -1;
    (r.backward ? backward_places : forward_places)(&r, attr);
    return r;
}

/* ---- shape rules ------------------------------------------------------------------------------------------------- */

/* Operand `place` has this shape, if it is there. */
static sw_status want(const sw_graph *g, const sw__node *n, int place, int rank, const int64_t *dim, const char *why)
{
    return place < 0 ? SW_OK : sw__want_dims(g, n, (uint32_t)place, rank, dim, why);
}

/* All floats of one type, lengths of an integer one. */
static sw_status want_types(const sw_graph *g, const sw__node *n, const sw__recurrent *r)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        if ((int)i == r->lengths) {
            SW_TRY(sw__want_type(g, n, i, SW_WANT_INDEX));
            continue;
        }
        SW_TRY(sw__want_type(g, n, i, SW_WANT_FLOAT));
        if (sw__in(g, n, i)->dtype == sw__in(g, n, 0)->dtype) continue;
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        return sw__fail(SW_ERR_SHAPE, "types differ: %s and %s: sw_cast one of them", sw__value_text(g, n->in[0], a),
                        sw__value_text(g, n->in[i], b));
    }
    return SW_OK;
}

/* What both directions of the calculation take alike. */
static sw_status want_common(const sw_graph *g, const sw__node *n, const sw__recurrent *r)
{
    const int64_t weight[2] = { r->rows, r->state }, proj[2] = { r->state, r->hidden };
    const int64_t h[2] = { r->batch, r->state }, c[2] = { r->batch, r->hidden };
    const int64_t saved[3] = { r->batch, r->steps, r->n_saved * r->hidden };
    if ((r->proj < 0) != (r->state == r->hidden) && r->proj < 0)
        return sw__fail(SW_ERR_SHAPE, "a state of %lld beside a hidden size of %lld needs a projection",
                        (long long)r->state, (long long)r->hidden);
    SW_TRY(want(g, n, r->weight, 2, weight, "weight_hh is [gates x hidden, state]"));
    SW_TRY(want(g, n, r->proj, 2, proj, "weight_hr is [proj_size, hidden]"));
    SW_TRY(want(g, n, r->h0, 2, h, "the initial state is [batch, hidden] (with a projection [batch, proj_size])"));
    SW_TRY(want(g, n, r->c0, 2, c, "the initial cell is [batch, hidden]"));
    SW_TRY(want(g, n, r->dh, 2, h, "that of h_n"));
    SW_TRY(want(g, n, r->dc, 2, c, "that of c_n"));
    SW_TRY(want(g, n, r->saved, 3, saved, "what the forward op saved"));
    return want(g, n, r->lengths, 1, &r->batch, "one length for each sample");
}

sw_status sw__infer_recurrent(const sw_graph *g, sw__node *n)
{
    const sw__node *const first = sw__in(g, n, 0);
    SW_TRY(sw__want_rank(g, n, 0, 3, 3));
    if (n->attr.recurrent.hidden < 1 || n->attr.recurrent.state < 1)
        return sw__fail(SW_ERR_ARGUMENT, "a hidden size of %lld and a state of %lld: both must be at least 1",
                        (long long)n->attr.recurrent.hidden, (long long)n->attr.recurrent.state);
    const sw__recurrent r = sw__recurrent_of(n->op, &n->attr, first->dim);
    if ((int)n->n_in != r.n_in)
        return sw__fail(SW_ERR_ARGUMENT, "%u operands where its attributes ask for %d", n->n_in, r.n_in);
    const int64_t gates[3] = { r.batch, r.steps, r.rows }, y[3] = { r.batch, r.steps, r.state };
    SW_TRY(want_types(g, n, &r));
    SW_TRY(want(g, n, r.gates, 3, gates, "[batch, time, gates x hidden] for the hidden size of weight_hh"));
    SW_TRY(want(g, n, r.bias, 1, &r.rows, "bias_hh is [gates x hidden]"));
    SW_TRY(want(g, n, r.dy, 3, y, "that of the output, [batch, time, hidden or proj_size]"));
    SW_TRY(want(g, n, r.y, 3, y, "the forward op's output"));
    SW_TRY(want_common(g, n, &r));
    sw__take(n, first);
    n->dim[2] = r.backward ? r.rows : r.state;
    return SW_OK;
}

/* Output k of `from`, for sw__infer_output. */
void sw__recurrent_output(const sw_graph *g, const sw__node *from, sw__node *n)
{
    (void)g;
    const sw__recurrent r = sw__recurrent_of(from->op, &from->attr, from->dim);
    const int k = n->attr.axis.axis;
    const bool state = k == r.out_h || k == r.out_dh0, cell = k == r.out_c || k == r.out_dc0;
    n->rank = state || cell ? 2 : 3;
    n->dim[0] = r.batch;
    if (state || cell) {
        n->dim[1] = state ? r.state : r.hidden;
        return;
    }
    n->dim[1] = r.steps;
    n->dim[2] = k == r.out_saved ? r.n_saved * r.hidden : k == r.out_dstate ? r.rows : r.proj >= 0 ? r.state : 0;
}

/* log_probs [N, T, C], targets [N, S], input_lengths [N], target_lengths [N] -> [N]. */
sw_status sw__infer_ctc_loss(const sw_graph *g, sw__node *n)
{
    SW_TRY(sw__want_type(g, n, 0, SW_WANT_FLOAT));
    SW_TRY(sw__want_rank(g, n, 0, 3, 3));
    for (uint32_t i = 1; i < 4; i++) SW_TRY(sw__want_type(g, n, i, SW_WANT_INDEX));
    SW_TRY(sw__want_rank(g, n, 1, 2, 2));
    const sw__node *const x = sw__in(g, n, 0), *const targets = sw__in(g, n, 1);
    const int64_t want_targets[2] = { x->dim[0], targets->dim[1] };
    SW_TRY(sw__want_dims(g, n, 1, 2, want_targets, "[N, S]: the labels of each sample, padded"));
    SW_TRY(sw__want_dims(g, n, 2, 1, x->dim, "the length of each sample's input"));
    SW_TRY(sw__want_dims(g, n, 3, 1, x->dim, "the length of each sample's target"));
    const int blank = n->attr.axis.axis;
    if (blank < 0 || blank >= x->dim[2])
        return sw__fail(SW_ERR_ARGUMENT, "the blank is class %d of %lld (0 to %lld)", blank, (long long)x->dim[2],
                        (long long)x->dim[2] - 1);
    n->dtype = x->dtype;
    n->rank = 1;
    n->dim[0] = x->dim[0];
    return SW_OK;
}
