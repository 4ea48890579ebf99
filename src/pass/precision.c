/* precision.c: graph -> graph: mixed precision. Casts go in around the ops of a recorded forward pass and loss as
 * precision.def says, op by op. Before sw_grad and not after (docs/decisions/075): the gradient of a cast is a cast, so each
 * value's gradient has the value's type, and each weight's gradient comes out in f32. Called by the trainer and by users. */
#include "pass/pass.h"

typedef enum rule { F32 = 0, HALF, NORM, FOLLOW } rule;

static const uint8_t rules[SW_OP_COUNT] = {
#define SW_PRECISION(ENUM, rule) [SW_OP_##ENUM] = rule,
#include "pass/precision.def"
#undef SW_PRECISION
};

const char *sw__precision_rule(uint32_t op)
{
    static const char *const names[] = {"f32", "half", "norm", "follow"};
    return names[rules[op]];
}

typedef struct caster {
    const sw_graph *g;
    sw_graph *out;
    sw_dtype half;
    sw_t *map;        /* each node's value in the new graph, of whatever type it has there */
    sw_t *other;      /* the same in the other of the two types, once somebody has asked for it */
    sw_t *node;       /* the new node itself, where map has a cast of it: what further outputs belong to */
    sw_t *use;        /* what the node that is copied now is to read */
    bool by_chance;   /* weights are rounded so */
    sw_t counter;     /* state: how many steps there were; made with the first weight */
    int64_t *weight;  /* elements that stand behind a value: what an expand repeats does not count. 0: a constant, a parameter */
} caster;

static bool is_view(const sw__node *n)
{
    return n->op == SW_OP_RESHAPE || n->op == SW_OP_PERMUTE || n->op == SW_OP_EXPAND || n->op == SW_OP_STOP_GRADIENT;
}

#define STREAMS 0x40000000u /* of random numbers: dropout's are small */

/* The half copy of a weight. Gradients are those of a plain cast: the rounding's own is 0 almost everywhere. */
static sw_t cast_weight(caster *c, const sw__node *n, sw_t x, sw_dtype type)
{
    const uint32_t var = n->attr.slot.index;
    const bool weight = n->op == SW_OP_VAR && c->g->vars[var].kind == SW_VAR_PARAM;
    if (!c->by_chance || !weight || type != c->half) return sw_cast(x, type);
    if (!sw_valid(c->counter)) {
        c->counter = sw_variable(c->out, "stochastic_rounding.counter", SW_VAR_STATE, SW_I64, 0, NULL, (sw_init){0});
        sw_assign(c->counter, sw_add(c->counter, sw_const(c->out, SW_I64, 1)));
    }
    const sw_t plain = sw_cast(x, type);
    const sw_t chosen = sw__round_by_chance(sw_stop_gradient(x), type, c->counter, STREAMS + var);
    /* plain + (chosen - plain), the difference a constant to sw_grad: exact, as both are neighbours in 16 bits */
    return sw_add(plain, sw_stop_gradient(sw_sub(chosen, plain)));
}

/* A cast, made where there is least to cast: of a constant not at all, before a view of few elements rather than after. */
static sw_t make_cast(caster *c, uint32_t id, sw_dtype type)
{
    sw_graph *const o = c->out;
    const sw__node *const n = &c->g->nodes[id];
    uint32_t at = id, chain[SW_MAX_RANK];
    int depth = 0;
    if (n->op == SW_OP_CONST) {
        sw__node like = *n;
        like.dtype = (uint8_t)type;
        return sw__node_add(o, SW_OP_CONST, NULL, 0, &n->attr, &like);
    }
    while (depth < SW_MAX_RANK && is_view(&c->g->nodes[at]) && c->weight[id] < sw__node_elements(n)) {
        chain[depth++] = at;
        at = c->g->nodes[at].in[0];
    }
    if (at != id && !sw_valid(c->other[at]) && sw_type(c->map[at]) != type)
        c->other[at] = cast_weight(c, &c->g->nodes[at], c->map[at], type);
    sw_t x = sw_type(c->map[at]) == type ? c->map[at]
             : at == id                  ? cast_weight(c, n, c->map[id], type)
                                         : c->other[at];
    while (depth-- > 0) {
        const sw__node *const view = &c->g->nodes[chain[depth]];
        x = sw__node_add(o, (sw__op)view->op, &x, 1, &view->attr, view);
    }
    return x;
}

static sw_t as(caster *c, uint32_t id, sw_dtype type)
{
    if (!sw_valid(c->map[id]) || sw_type(c->map[id]) == type) return c->map[id];
    if (!sw_valid(c->other[id])) c->other[id] = make_cast(c, id, type);
    return c->other[id];
}

/* One of the two types that this pass chooses between; values of others stay as they were recorded. */
static bool is_ours(const sw__node *n) { return n->dtype == SW_F32; }

static bool is_half(const caster *c, uint32_t id) { return sw_type(c->map[id]) == c->half; }

/* What a node that follows its operands computes in. *result: what it gives. */
static sw_dtype follow(const caster *c, const sw__node *n, sw_dtype *result)
{
    int64_t most = 0;
    bool half = true, light = false;
    *result = SW_F32;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (is_ours(&c->g->nodes[n->in[k]])) most = SW_MAX(most, c->weight[n->in[k]]);
    for (uint32_t k = 0; k < n->n_in; k++) {
        const uint32_t x = n->in[k];
        if (!is_ours(&c->g->nodes[x]) || c->weight[x] == 0 || is_half(c, x)) continue;
        if (c->weight[x] == most) half = false;
        else light = true;
    }
    if (most == 0 || !half) return SW_F32;
    *result = c->half;
    return light ? SW_F32 : c->half; /* statistics and the like beside an activation: they are not rounded */
}

static sw_dtype decide(const caster *c, const sw__node *n, sw_dtype *result)
{
    *result = SW_F32;
    switch ((rule)rules[n->op]) {
    case HALF: return *result = c->half;
    case NORM:
        if (is_half(c, n->in[0])) *result = c->half;
        return SW_F32;
    case FOLLOW: return follow(c, n, result);
    default: return SW_F32;
    }
}

static void set_weight(caster *c, uint32_t id)
{
    const sw__node *const n = &c->g->nodes[id];
    c->weight[id] = sw__node_elements(n);
    if (n->op == SW_OP_CONST || (n->op == SW_OP_VAR && c->g->vars[n->attr.slot.index].kind == SW_VAR_PARAM)) c->weight[id] = 0;
    if (is_view(n) || n->op == SW_OP_SLICE) c->weight[id] = SW_MIN(c->weight[id], c->weight[n->in[0]]);
}

static void convert(caster *c, uint32_t id)
{
    const sw__node *const n = &c->g->nodes[id];
    bool ours = true;
    sw_dtype result = SW_F32;
    set_weight(c, id);
    for (uint32_t k = 0; k < n->n_in; k++)
        if (sw__dtype_is_float((sw_dtype)c->g->nodes[n->in[k]].dtype)) ours &= is_ours(&c->g->nodes[n->in[k]]);
    const sw_dtype type = ours ? decide(c, n, &result) : SW_F32;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const uint32_t x = n->in[k];
        c->use[x] = n->op == SW_OP_OUTPUT ? c->node[x] : is_ours(&c->g->nodes[x]) ? as(c, x, type) : c->map[x];
    }
    const sw_t y = c->node[id] = c->map[id] = sw__node_copy(c->out, c->g, id, c->use);
    if (is_ours(n) && sw_valid(y) && sw_type(y) != result && rules[n->op] != F32 && n->op != SW_OP_OUTPUT)
        c->map[id] = sw_cast(y, result);
}

static sw_status alloc(caster *c)
{
    const uint32_t n = c->g->n_nodes;
    c->map = sw__calloc(n, sizeof *c->map);
    c->other = sw__calloc(n, sizeof *c->other);
    c->node = sw__calloc(n, sizeof *c->node);
    c->use = sw__calloc(n, sizeof *c->use);
    c->weight = sw__calloc(n, sizeof *c->weight);
    if (c->map && c->other && c->node && c->use && c->weight) return SW_OK;
    return sw__no_memory(n * sizeof *c->map, "mixed precision");
}

sw_status sw_graph_autocast(const sw_graph *g, sw_dtype half, sw_graph **out)
{
    return sw__graph_autocast(g, half, false, out);
}

sw_status sw__graph_autocast(const sw_graph *g, sw_dtype half, bool by_chance, sw_graph **out)
{
    if (!g || !out) return sw__fail(SW_ERR_ARGUMENT, "sw_graph_autocast: graph or out is NULL");
    if (half != SW_F16 && half != SW_BF16)
        return sw__fail(SW_ERR_ARGUMENT, "sw_graph_autocast: %s is neither f16 nor bf16", sw_dtype_name(half));
    if (g->n_groups)
        return sw__fail(SW_ERR_ARGUMENT, "sw_graph_autocast: the graph has an optimiser already: cast before "
                        "sw_optimizer_apply");
    caster c = {.g = g, .half = half, .by_chance = by_chance};
    sw__dump_graph("precision", "before", g);
    sw_status st = alloc(&c);
    if (st == SW_OK) st = sw__graph_like(g, &c.out);
    for (uint32_t i = 1; st == SW_OK && i < g->n_nodes && c.out->status == SW_OK; i++) convert(&c, i);
    for (uint32_t i = 0; st == SW_OK && i < g->n_outputs; i++) { /* results are of the type that was recorded */
        const uint32_t id = g->outputs[i].node;
        if (is_ours(&g->nodes[id])) c.map[id] = as(&c, id, SW_F32);
    }
    if (st == SW_OK) st = sw__graph_finish(c.out, g, c.map);
    if (st == SW_OK) sw__dump_graph("precision", "after", c.out);
    if (st == SW_OK) *out = c.out;
    else sw_graph_free(c.out);
    sw__free(c.map);
    sw__free(c.other);
    sw__free(c.node);
    sw__free(c.use);
    sw__free(c.weight);
    return st == SW_OK ? st : sw__prefix(st, "pass precision");
}
