/* epilogue.c: graph -> graph: a bias added to a matmul or convolution, and a relu behind it, become part of the op,
 * where the device's op has them. After lower, before layout. Only where nobody else wants the value in between.
 * Where nothing is assigned and the device keeps what depends on variables alone, a factor for each channel goes into the
 * weights, and a second bias into the first: batch norm by running statistics is then nothing but other weights. */
#include "pass/pass.h"

typedef struct epilogue {
    const sw_graph *g;
    const sw__traits *t;
    sw_graph *out;
    const uint32_t *uses; /* of each node of g */
    const sw_t *map;
    bool *fixed;          /* of the first n_fixed nodes of out: it depends on variables and constants alone */
    size_t cap_fixed, n_fixed;
    bool keeps;
} epilogue;

static const bool fixed_source[SW_OP_COUNT] = {[SW_OP_CONST] = true, [SW_OP_LITERAL] = true, [SW_OP_IOTA] = true,
                                               [SW_OP_VAR] = true, [SW_OP_VARPACK] = true};

static bool same_in_every_run(const epilogue *e, uint32_t id)
{
    return e->keeps && id < e->n_fixed && e->fixed[id];
}

/* Nodes that were added to out since. */
static sw_status learn_fixed(epilogue *e)
{
    if (!e->keeps) return SW_OK;
    SW_TRY(sw__grow(&e->fixed, &e->cap_fixed, e->out->n_nodes, sizeof *e->fixed, "what is fixed"));
    for (; e->n_fixed < e->out->n_nodes; e->n_fixed++) {
        const sw__node *n = &e->out->nodes[e->n_fixed];
        bool fixed = n->n_in > 0 ? (sw__op_table[n->op].flags & SW_OPF_PURE) != 0 : fixed_source[n->op];
        for (uint32_t k = 0; k < n->n_in && fixed; k++) fixed = e->fixed[n->in[k]];
        e->fixed[e->n_fixed] = fixed;
    }
    return SW_OK;
}

static int32_t *activation(sw__attr *a, uint32_t op) { return op == SW_OP_CONV ? &a->conv.act : &a->act.act; }

static bool takes_more(const epilogue *e, const sw__node *n)
{
    sw__attr a = n->attr;
    return (n->op == SW_OP_MATMUL || n->op == SW_OP_CONV) && e->t->bias_act[n->op] &&
           *activation(&a, n->op) == SW_ACT_NONE;
}

/* If v is a vector along this axis of n, the same along all others: the vector, of rank 1. */
static sw_t as_vector(sw_t v, const sw__node *n, int axis)
{
    const sw__node *e = sw__node_of(v);
    const sw_t x = e->op == SW_OP_EXPAND ? sw__value(v.graph, e->in[0]) : v;
    const sw__node *small = sw__node_of(x);
    const sw_t none = {0};
    if (small->rank != n->rank || small->dim[axis] != n->dim[axis]) return none;
    for (int i = 0; i < n->rank; i++)
        if (i != axis && small->dim[i] != 1) return none;
    if (small->op == SW_OP_RESHAPE && v.graph->nodes[small->in[0]].rank == 1) return sw__value(v.graph, small->in[0]);
    const int64_t size = n->dim[axis];
    return sw_reshape(x, 1, &size);
}

static int channels(const sw__node *m) { return m->op == SW_OP_CONV ? 1 : m->rank - 1; }

/* m once more on these inputs, by its name. */
static sw_t again(const epilogue *e, const sw__node *m, const sw_t *in, uint32_t n_in, const sw__attr *attr)
{
    const sw_t y = sw__node_add(e->out, (sw__op)m->op, in, n_in, attr, NULL);
    return sw_valid(y) && m->name ? sw_named(y, m->name) : y;
}

static sw_t try_bias(const epilogue *e, const sw__node *n)
{
    const sw_t none = {0};
    for (int k = 0; k < 2 && n->op == SW_OP_ADD; k++) {
        const uint32_t id = n->in[k];
        const sw_t op = e->map[id], other = e->map[n->in[1 - k]];
        const sw__node m = *sw__node_of(op);
        if (e->uses[id] != 1 || !takes_more(e, &m)) continue;
        const bool both = m.n_in == 3 && same_in_every_run(e, m.in[2]) && same_in_every_run(e, other.id);
        if (m.n_in != 2 && !both) continue;
        sw_t bias = as_vector(other, &m, channels(&m));
        if (!sw_valid(bias)) continue;
        if (both) bias = sw_add(sw__value(e->out, m.in[2]), bias);
        const sw_t in[3] = {sw__value(e->out, m.in[0]), sw__value(e->out, m.in[1]), bias};
        return again(e, &m, in, 3, &m.attr);
    }
    return none;
}

/* The weight times the factor of the channel that each of its elements makes. */
static sw_t scaled(sw_t weight, sw_t factor, const sw__node *m)
{
    int64_t shape[SW_MAX_RANK];
    const int rank = sw_rank(weight), axis = m->op == SW_OP_CONV ? 0 : rank - 1;
    for (int i = 0; i < rank; i++) shape[i] = i == axis ? sw_dim(factor, 0) : 1;
    return sw_mul(weight, sw_reshape(factor, rank, shape));
}

static sw_t try_scale(const epilogue *e, const sw__node *n)
{
    const sw_t none = {0};
    for (int k = 0; k < 2 && e->keeps && n->op == SW_OP_MUL; k++) {
        const uint32_t id = n->in[k];
        const sw_t op = e->map[id], other = e->map[n->in[1 - k]];
        const sw__node m = *sw__node_of(op);
        if (e->uses[id] != 1 || !takes_more(e, &m) || n->dtype != SW_F32 || !same_in_every_run(e, other.id)) continue;
        bool fixed = true;
        for (uint32_t i = 1; i < m.n_in; i++) fixed &= same_in_every_run(e, m.in[i]);
        const sw_t factor = fixed ? as_vector(other, &m, channels(&m)) : none;
        if (!sw_valid(factor)) continue;
        sw_t in[3] = {sw__value(e->out, m.in[0]), scaled(sw__value(e->out, m.in[1]), factor, &m)};
        if (m.n_in == 3) in[2] = sw_mul(sw__value(e->out, m.in[2]), factor);
        return again(e, &m, in, m.n_in, &m.attr);
    }
    return none;
}

static bool is_zero(const sw__node *n)
{
    return n->op == SW_OP_CONST && sw__dtype_is_float((sw_dtype)n->dtype) && n->attr.constant.value == 0;
}

static sw_t try_relu(const epilogue *e, const sw__node *n)
{
    const sw_t none = {0};
    if (n->op != SW_OP_MAX || !n->attr.tie.second || e->uses[n->in[0]] != 1) return none;
    const sw__node m = *sw__node_of(e->map[n->in[0]]);
    if (!is_zero(sw__node_of(e->map[n->in[1]])) || !takes_more(e, &m)) return none;
    sw__attr attr = m.attr;
    sw_t in[3];
    *activation(&attr, m.op) = SW_ACT_RELU;
    for (uint32_t i = 0; i < m.n_in; i++) in[i] = sw__value(e->out, m.in[i]);
    return again(e, &m, in, m.n_in, &attr);
}

static sw_status count_uses(const sw_graph *g, const bool *live, uint32_t *uses)
{
    for (uint32_t i = 1; i < g->n_nodes; i++)
        for (uint32_t k = 0; live[i] && k < g->nodes[i].n_in; k++) uses[g->nodes[i].in[k]]++;
    for (uint32_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i].node]++;
    return SW_OK;
}

sw_status sw__pass_epilogue(const sw_graph *g, const sw__traits *t, sw_graph **out)
{
    sw_t *map = sw__calloc(g->n_nodes, sizeof *map);
    uint32_t *uses = sw__calloc(g->n_nodes, sizeof *uses);
    bool *live = NULL;
    epilogue e = {.g = g, .t = t, .uses = uses, .map = map, .keeps = t->keeps && g->n_assigns == 0};
    sw_status st = map && uses ? sw__graph_live(g, &live) : sw__no_memory(g->n_nodes * sizeof *map, "epilogues");
    if (st == SW_OK) st = count_uses(g, live, uses);
    if (st == SW_OK) st = sw__graph_like(g, &e.out);
    for (uint32_t i = 1; st == SW_OK && i < g->n_nodes && e.out->status == SW_OK; i++) {
        if (!live[i]) continue;
        sw_t y = try_bias(&e, &g->nodes[i]);
        if (!sw_valid(y)) y = try_scale(&e, &g->nodes[i]);
        if (!sw_valid(y)) y = try_relu(&e, &g->nodes[i]);
        map[i] = sw_valid(y) ? y : sw__node_copy(e.out, g, i, map);
        st = learn_fixed(&e);
    }
    if (st == SW_OK) st = sw__graph_finish(e.out, g, map);
    if (st == SW_OK) *out = e.out;
    else sw_graph_free(e.out);
    sw__free(map);
    sw__free(uses);
    sw__free(e.fixed);
    sw__free(live);
    return st;
}
