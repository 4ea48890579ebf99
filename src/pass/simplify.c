/* simplify.c: graph -> graph: constants are folded, equal nodes become one, exact identities are applied, dead nodes
 * go. First of the passes, and again after lower.c. Only what leaves every bit of the result as it was: x + 0 stays (it
 * turns -0 into 0), x - 0 goes. Sums of equal terms become products: that is at least as accurate as adding them up. */
#include "pass/fold.h"
#include "pass/pass.h"
#include <math.h>
#include <xxhash.h>

typedef struct simplifier {
    sw_graph *out;
    uint32_t *table; /* hash table of node ids of `out`, open addressing */
    size_t size;     /* a power of two, more than twice the nodes that can come */
    size_t used;
    sw_status st;
} simplifier;

typedef sw_t (*rule)(simplifier *s, const sw__node *n, const sw_t *in);

static const sw_t none = {0};
static sw_t simplified(simplifier *s, const sw__node *n, const sw_t *in);

/* ---- common subexpressions --------------------------------------------------------------------------------------- */

static uint64_t hash_node(const sw__node *n, const sw_t *in)
{
    int64_t head[4 + SW_MAX_RANK] = {n->op, n->dtype, n->rank, n->n_in};
    for (int i = 0; i < n->rank; i++) head[4 + i] = n->dim[i];
    uint64_t h = XXH64(head, sizeof head, 0);
    for (uint32_t i = 0; i < n->n_in; i++) h = XXH64(&in[i].id, sizeof in[i].id, h);
    return XXH64(&n->attr, sizeof n->attr, h);
}

/* Attributes are made from zeroed unions. */
static bool same_bytes(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }

static bool same_node(const sw__node *x, const sw__node *n, const sw_t *in)
{
    if (x->op != n->op || x->dtype != n->dtype || x->n_in != n->n_in || !sw__same_shape(x, n)) return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (x->in[i] != in[i].id) return false;
    return same_bytes(&x->attr, &n->attr, sizeof n->attr);
}

static bool shareable(const sw__node *n)
{
    return (sw__op_table[n->op].flags & SW_OPF_PURE) || n->op == SW_OP_VARPACK;
}

static sw_status rehash(simplifier *s)
{
    const size_t size = SW_MAX(s->size * 2, (size_t)1024);
    uint32_t *table = sw__calloc(size, sizeof *table);
    if (!table) return sw__no_memory(size * sizeof *table, "common subexpressions");
    for (size_t i = 0; i < s->size; i++) {
        if (!s->table[i]) continue;
        const sw__node *n = &s->out->nodes[s->table[i]];
        sw_t in[64];
        for (uint32_t k = 0; k < n->n_in; k++) in[k] = sw__value(s->out, n->in[k]);
        size_t at = hash_node(n, in) & (size - 1);
        while (table[at]) at = (at + 1) & (size - 1);
        table[at] = s->table[i];
    }
    sw__free(s->table);
    s->table = table;
    s->size = size;
    return SW_OK;
}

/* The node of `out` that is equal to n on these inputs, made if there is none. Ops with very many inputs are not
 * shared. */
static sw_t shared(simplifier *s, const sw__node *n, const sw_t *in)
{
    if (!shareable(n) || n->n_in > 64) return sw__node_add(s->out, (sw__op)n->op, in, n->n_in, &n->attr, n);
    if (s->used * 2 >= s->size) {
        s->st = rehash(s);
        if (s->st != SW_OK) return none;
    }
    size_t at = hash_node(n, in) & (s->size - 1);
    while (s->table[at]) {
        if (same_node(&s->out->nodes[s->table[at]], n, in)) return sw__value(s->out, s->table[at]);
        at = (at + 1) & (s->size - 1);
    }
    const sw_t t = sw__node_add(s->out, (sw__op)n->op, in, n->n_in, &n->attr, n);
    if (sw_valid(t)) {
        s->table[at] = t.id;
        s->used++;
    }
    return t;
}

/* ---- looking and making ------------------------------------------------------------------------------------------ */

static const sw__node *node(sw_t t) { return &t.graph->nodes[t.id]; }

static bool is_float(const sw__node *n) { return sw__dtype_is_float((sw_dtype)n->dtype); }

static bool is_const(sw_t t) { return node(t)->op == SW_OP_CONST; }

/* A constant equal to v, with v's sign if it is 0. */
static bool is_value(sw_t t, double v)
{
    if (!is_const(t)) return false;
    const sw__node *n = node(t);
    if (!is_float(n)) return (double)n->attr.constant.ivalue == v;
    return n->attr.constant.value == v && signbit(n->attr.constant.value) == signbit(v);
}

static sw_t constant(simplifier *s, const sw__node *shape, sw__number x)
{
    sw__node n = {.op = SW_OP_CONST, .dtype = shape->dtype, .rank = shape->rank};
    memcpy(n.dim, shape->dim, sizeof n.dim);
    n.attr.constant.value = x.value;
    n.attr.constant.ivalue = x.ivalue;
    return shared(s, &n, NULL);
}

static sw__number number(sw_t t)
{
    return (sw__number){node(t)->attr.constant.value, node(t)->attr.constant.ivalue};
}

/* A node of n's type and shape with another op on these inputs, simplified in turn. */
static sw_t make(simplifier *s, sw__op op, const sw__node *n, const sw_t *in, uint32_t n_in)
{
    sw__node m = {.op = (uint16_t)op, .dtype = n->dtype, .rank = n->rank, .n_in = n_in};
    memcpy(m.dim, n->dim, sizeof m.dim);
    return simplified(s, &m, in);
}

static sw_t make1(simplifier *s, sw__op op, const sw__node *n, sw_t a) { return make(s, op, n, &a, 1); }

static sw_t make2(simplifier *s, sw__op op, const sw__node *n, sw_t a, sw_t b)
{
    const sw_t in[2] = {a, b};
    return make(s, op, n, in, 2);
}

/* ---- identities: arithmetic -------------------------------------------------------------------------------------- */

static sw_t rule_neg(simplifier *s, const sw__node *n, const sw_t *in)
{
    (void)s, (void)n;
    return node(in[0])->op == SW_OP_NEG ? sw__value(in[0].graph, node(in[0])->in[0]) : none;
}

static sw_t operand(sw_t t, uint32_t k) { return sw__value(t.graph, node(t)->in[k]); }

static sw_t rule_add(simplifier *s, const sw__node *n, const sw_t *in)
{
    for (int k = 0; k < 2; k++)
        if (is_value(in[k], is_float(n) ? -0.0 : 0.0)) return in[1 - k];
    for (int k = 0; k < 2 && is_float(n); k++)
        if (node(in[k])->op == SW_OP_NEG) return make2(s, SW_OP_SUB, n, in[1 - k], operand(in[k], 0));
    return none;
}

static sw_t rule_sub(simplifier *s, const sw__node *n, const sw_t *in)
{
    if (is_value(in[1], 0.0)) return in[0];
    if (node(in[1])->op == SW_OP_NEG) return make2(s, SW_OP_ADD, n, in[0], operand(in[1], 0));
    return none;
}

static sw_t rule_mul(simplifier *s, const sw__node *n, const sw_t *in)
{
    for (int k = 0; k < 2; k++) {
        if (is_value(in[k], 1.0)) return in[1 - k];
        if (is_value(in[k], -1.0)) return make1(s, SW_OP_NEG, n, in[1 - k]);
        if (!is_float(n) && is_value(in[k], 0.0)) return in[k];
    }
    return none;
}

/* The reciprocal of a power of two is exact, as long as it is a normal number. */
static sw_t rule_div(simplifier *s, const sw__node *n, const sw_t *in)
{
    int exponent;
    if (is_value(in[1], 1.0)) return in[0];
    if (!is_float(n) || !is_const(in[1])) return none;
    const double v = node(in[1])->attr.constant.value;
    if (v == 0 || !isfinite(v) || fabs(frexp(v, &exponent)) != 0.5) return none;
    if (exponent < (n->dtype == SW_F16 ? -12 : -120) || exponent > (n->dtype == SW_F16 ? 13 : 120)) return none;
    return make2(s, SW_OP_MUL, n, in[0], constant(s, n, (sw__number){1.0 / v, 0}));
}

static sw_t rule_pow(simplifier *s, const sw__node *n, const sw_t *in)
{
    if (is_value(in[1], 1.0)) return in[0];
    if (is_value(in[1], 2.0)) return make2(s, SW_OP_MUL, n, in[0], in[0]);
    return none;
}

static sw_t rule_bits(simplifier *s, const sw__node *n, const sw_t *in)
{
    const bool is_bool = n->dtype == SW_BOOL;
    (void)s;
    for (int k = 0; k < 2; k++) {
        if (n->op != SW_OP_AND && is_value(in[k], 0.0)) return in[1 - k];
        if (n->op == SW_OP_AND && is_value(in[k], 0.0)) return in[k];
        if (is_bool && n->op == SW_OP_AND && is_value(in[k], 1.0)) return in[1 - k];
        if (is_bool && n->op == SW_OP_OR && is_value(in[k], 1.0)) return in[k];
        /* not not x */
        if (is_bool && n->op == SW_OP_XOR && is_value(in[k], 1.0) && node(in[1 - k])->op == SW_OP_XOR)
            for (uint32_t m = 0; m < 2; m++)
                if (is_value(operand(in[1 - k], m), 1.0)) return operand(in[1 - k], 1 - m);
    }
    return none;
}

static sw_t rule_where(simplifier *s, const sw__node *n, const sw_t *in)
{
    (void)s, (void)n;
    if (in[1].id == in[2].id) return in[1];
    if (is_const(in[0])) return node(in[0])->attr.constant.ivalue ? in[1] : in[2];
    return none;
}

/* Every value of `from` is one of `to`, and converting back gives it again. */
static bool holds(sw_dtype to, sw_dtype from)
{
    static const uint16_t wider[SW_DTYPE_COUNT] = {
        [SW_F32] = 1u << SW_F64,
        [SW_F16] = 1u << SW_F32 | 1u << SW_F64,
        [SW_BF16] = 1u << SW_F32 | 1u << SW_F64,
        [SW_I32] = 1u << SW_I64 | 1u << SW_F64,
        [SW_U32] = 1u << SW_I64 | 1u << SW_F64,
        [SW_U8] = 1u << SW_I32 | 1u << SW_I64 | 1u << SW_U32 | 1u << SW_F32 | 1u << SW_F64 | 1u << SW_F16 |
                  1u << SW_BF16,
        [SW_BOOL] = 1u << SW_I32 | 1u << SW_I64 | 1u << SW_U32 | 1u << SW_U8 | 1u << SW_F32 | 1u << SW_F64 |
                    1u << SW_F16 | 1u << SW_BF16,
    };
    return wider[from] >> to & 1u;
}

static sw_t rule_cast(simplifier *s, const sw__node *n, const sw_t *in)
{
    const sw__node *x = node(in[0]);
    if (x->dtype == n->dtype) return in[0];
    if (x->op != SW_OP_CAST) return none;
    const sw_t y = operand(in[0], 0);
    if (!holds((sw_dtype)x->dtype, (sw_dtype)node(y)->dtype)) return none;
    return make1(s, SW_OP_CAST, n, y);
}

/* ---- identities: movement ---------------------------------------------------------------------------------------- */

static sw_t rule_forward(simplifier *s, const sw__node *n, const sw_t *in)
{
    (void)s, (void)n;
    return in[0];
}

static sw_t rule_reshape(simplifier *s, const sw__node *n, const sw_t *in)
{
    if (sw__same_shape(n, node(in[0]))) return in[0];
    if (node(in[0])->op == SW_OP_RESHAPE) return make1(s, SW_OP_RESHAPE, n, operand(in[0], 0));
    return none;
}

static bool moves_only_ones(const sw__node *n, const sw__node *x)
{
    int last = -1;
    for (int i = 0; i < n->rank; i++) {
        const int a = n->attr.perm.axes[i];
        if (x->dim[a] == 1) continue;
        if (a < last) return false;
        last = a;
    }
    return true;
}

static sw_t rule_permute(simplifier *s, const sw__node *n, const sw_t *in)
{
    const sw__node *x = node(in[0]);
    if (moves_only_ones(n, x)) return make1(s, SW_OP_RESHAPE, n, in[0]);
    if (x->op != SW_OP_PERMUTE) return none;
    sw__node m = *n;
    for (int i = 0; i < n->rank; i++) m.attr.perm.axes[i] = x->attr.perm.axes[n->attr.perm.axes[i]];
    const sw_t y = operand(in[0], 0);
    return simplified(s, &m, &y);
}

static sw_t rule_expand(simplifier *s, const sw__node *n, const sw_t *in)
{
    if (sw__same_shape(n, node(in[0]))) return in[0];
    if (node(in[0])->op == SW_OP_EXPAND) return make1(s, SW_OP_EXPAND, n, operand(in[0], 0));
    return none;
}

static sw_t rule_slice(simplifier *s, const sw__node *n, const sw_t *in)
{
    const sw__node *x = node(in[0]);
    if (sw__same_shape(n, x)) return in[0];
    if (x->op != SW_OP_SLICE) return none;
    sw__node m = *n;
    for (int i = 0; i < n->rank; i++) {
        const int64_t step = x->attr.slice.step[i], from = x->attr.slice.start[i];
        m.attr.slice.start[i] = from + step * n->attr.slice.start[i];
        m.attr.slice.step[i] = step * n->attr.slice.step[i];
        m.attr.slice.stop[i] = n->dim[i] == 0 ? m.attr.slice.start[i]
                                              : m.attr.slice.start[i] + m.attr.slice.step[i] * (n->dim[i] - 1) + 1;
    }
    const sw_t y = operand(in[0], 0);
    return simplified(s, &m, &y);
}

static sw_t rule_pad(simplifier *s, const sw__node *n, const sw_t *in)
{
    (void)s;
    return sw__same_shape(n, node(in[0])) ? in[0] : none;
}

static sw_t rule_concat(simplifier *s, const sw__node *n, const sw_t *in)
{
    sw_t part[64];
    uint32_t k = 0;
    if (n->n_in == 1) return in[0];
    if (n->n_in > 64) return none;
    for (uint32_t i = 0; i < n->n_in; i++) /* empty parts add nothing */
        if (node(in[i])->dim[n->attr.axis.axis] > 0) part[k++] = in[i];
    if (k == n->n_in || k == 0) return none;
    sw__node m = *n;
    m.n_in = k;
    return simplified(s, &m, part);
}

/* ---- identities: reductions -------------------------------------------------------------------------------------- */

/* The product of n equal factors is no product of two, so prod is left alone. */
static sw_t reduce_expand(simplifier *s, const sw__node *n, sw_t in)
{
    const sw__node *e = node(in);
    const sw_t x = operand(in, 0);
    double count = 1;
    uint32_t axes = n->attr.axes.axes;
    sw__node mid = *e, m = *n;
    for (int i = 0; i < n->rank; i++) {
        if (!(axes >> i & 1u) || node(x)->dim[i] == e->dim[i]) continue;
        if (e->dim[i] == 0) return none;
        count *= (double)e->dim[i];
        axes &= ~(1u << i);
        mid.dim[i] = 1;
    }
    if (axes == n->attr.axes.axes || n->op == SW_OP_REDUCE_PROD || count >= 16777216.0) return none;
    const sw_t less = make1(s, SW_OP_EXPAND, &mid, x);
    if (!sw_valid(less)) return none;
    m.attr.axes.axes = axes;
    const sw_t y = axes ? simplified(s, &m, &less) : less;
    if (n->op != SW_OP_REDUCE_SUM || !sw_valid(y)) return y;
    return make2(s, SW_OP_MUL, n, y, constant(s, n, (sw__number){count, (int64_t)count}));
}

static sw_t rule_reduce(simplifier *s, const sw__node *n, const sw_t *in)
{
    const sw__node *x = node(in[0]);
    if (sw__same_shape(n, x)) return in[0];
    if (x->op == SW_OP_EXPAND) return reduce_expand(s, n, in[0]);
    if (x->op == n->op) {
        sw__node m = *n;
        m.attr.axes.axes |= x->attr.axes.axes;
        const sw_t y = operand(in[0], 0);
        return simplified(s, &m, &y);
    }
    if (x->op == SW_OP_CONST && sw__node_elements(x) > 0 && (n->op == SW_OP_REDUCE_MAX || n->op == SW_OP_REDUCE_MIN))
        return constant(s, n, number(in[0]));
    if (x->op == SW_OP_CONST && n->op == SW_OP_REDUCE_SUM && is_float(n) && sw__node_elements(n) > 0) {
        const int64_t times = sw__node_elements(x) / sw__node_elements(n);
        const double count = (double)times;
        const sw__number two[2] = {number(in[0]), {count, (int64_t)count}};
        sw__number y;
        if (count > 0 && count < 16777216.0 && sw__fold(SW_OP_MUL, (sw_dtype)n->dtype, (sw_dtype)n->dtype, two, &y))
            return constant(s, n, y);
    }
    return none;
}

static const rule rules[SW_OP_COUNT] = {
    [SW_OP_NEG] = rule_neg, [SW_OP_ADD] = rule_add, [SW_OP_SUB] = rule_sub, [SW_OP_MUL] = rule_mul,
    [SW_OP_DIV] = rule_div,
    [SW_OP_POW] = rule_pow, [SW_OP_AND] = rule_bits, [SW_OP_OR] = rule_bits, [SW_OP_XOR] = rule_bits,
    [SW_OP_WHERE] = rule_where, [SW_OP_CAST] = rule_cast, [SW_OP_STOP_GRADIENT] = rule_forward,
    [SW_OP_RESHAPE] = rule_reshape, [SW_OP_PERMUTE] = rule_permute, [SW_OP_EXPAND] = rule_expand,
    [SW_OP_SLICE] = rule_slice, [SW_OP_PAD] = rule_pad, [SW_OP_CONCAT] = rule_concat, [SW_OP_REDUCE_SUM] = rule_reduce,
    [SW_OP_REDUCE_MAX] = rule_reduce, [SW_OP_REDUCE_MIN] = rule_reduce, [SW_OP_REDUCE_PROD] = rule_reduce,
};

/* ---- constants, and what is the same for many elements ----------------------------------------------------------- */

static sw_t fold(simplifier *s, const sw__node *n, const sw_t *in)
{
    const sw__op_info *o = &sw__op_table[n->op];
    sw__number a[2] = {{0, 0}, {0, 0}}, y;
    if (n->n_in == 0 || n->n_in > 2) return none;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!is_const(in[i])) return none;
        a[i] = number(in[i]);
    }
    if ((o->flags & SW_OPF_VIEW) && n->n_in == 1) return constant(s, n, a[0]);
    if (!(o->flags & SW_OPF_PW)) return none;
    return sw__fold(n->op, (sw_dtype)n->dtype, (sw_dtype)node(in[0])->dtype, a, &y) ? constant(s, n, y) : none;
}

/* f(expand(x), constant) = expand(f(x, constant)): calculated once instead of everywhere. */
static sw_t before_expand(simplifier *s, const sw__node *n, const sw_t *in)
{
    const sw__node *shape = NULL;
    sw_t less[3];
    if (!(sw__op_table[n->op].flags & SW_OPF_PW) || n->n_in > 3) return none;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (is_const(in[i])) continue;
        if (node(in[i])->op != SW_OP_EXPAND) return none;
        less[i] = operand(in[i], 0);
        if (shape && !sw__same_shape(shape, node(less[i]))) return none;
        shape = node(less[i]);
    }
    if (!shape) return none;
    sw__node small = *n;
    memcpy(small.dim, shape->dim, sizeof small.dim);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (!is_const(in[i])) continue;
        sw__node c = small;
        c.dtype = node(in[i])->dtype;
        less[i] = constant(s, &c, number(in[i]));
        if (!sw_valid(less[i])) return none;
    }
    const sw_t y = simplified(s, &small, less);
    return sw_valid(y) ? make1(s, SW_OP_EXPAND, n, y) : none;
}

static sw_t simplified(simplifier *s, const sw__node *n, const sw_t *given)
{
    sw_t sorted[2];
    const sw_t *in = given;
    if (s->st != SW_OK || s->out->status != SW_OK) return none;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!given[i].graph || given[i].id == 0) return none;
    if ((sw__op_table[n->op].flags & SW_OPF_COMM) && n->n_in == 2 && in[0].id > in[1].id) {
        sorted[0] = in[1];
        sorted[1] = in[0];
        in = sorted;
    }
    sw_t t = fold(s, n, in);
    if (!sw_valid(t) && rules[n->op]) t = rules[n->op](s, n, in);
    if (!sw_valid(t) && s->st == SW_OK && s->out->status == SW_OK) t = before_expand(s, n, in);
    if (!sw_valid(t) && s->st == SW_OK && s->out->status == SW_OK) t = shared(s, n, in);
    return t;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* Nodes that can be replaced go through the rules; sources, big ops and the impure are copied or shared as they are. */
static sw_t rewrite(simplifier *s, const sw_graph *g, uint32_t id, const sw_t *map)
{
    const sw__node *n = &g->nodes[id];
    sw_t in[64];
    if (!shareable(n) || n->op == SW_OP_LITERAL || n->n_in > 64) return sw__node_copy(s->out, g, id, map);
    for (uint32_t i = 0; i < n->n_in; i++) in[i] = map[n->in[i]];
    const uint32_t before = s->out->n_nodes;
    const sw_t t = simplified(s, n, in);
    if (sw_valid(t) && t.id >= before && n->name && !s->out->nodes[t.id].name) return sw_named(t, n->name);
    return t;
}

/* A copy with the nodes that outputs and assigns need. */
static sw_status without_dead(const sw_graph *g, sw_graph **out)
{
    bool *live = NULL;
    sw_graph *o = NULL;
    sw_t *map = sw__calloc(g->n_nodes, sizeof *map);
    sw_status st = map ? sw__graph_live(g, &live) : sw__no_memory(g->n_nodes * sizeof *map, "dead code");
    if (st == SW_OK) st = sw__graph_like(g, &o);
    if (st == SW_OK) {
        for (uint32_t i = 1; i < g->n_nodes; i++)
            if (live[i]) map[i] = sw__node_copy(o, g, i, map);
        st = sw__graph_finish(o, g, map);
    }
    if (st == SW_OK) *out = o;
    else sw_graph_free(o);
    sw__free(live);
    sw__free(map);
    return st;
}

sw_status sw__pass_simplify(const sw_graph *g, sw_graph **out)
{
    simplifier s = {.st = SW_OK};
    bool *live = NULL;
    sw_t *map = sw__calloc(g->n_nodes, sizeof *map);
    sw_status st = map ? sw__graph_live(g, &live) : sw__no_memory(g->n_nodes * sizeof *map, "simplify");
    if (st == SW_OK) st = sw__graph_like(g, &s.out);
    if (st == SW_OK) {
        for (uint32_t i = 1; i < g->n_nodes && s.st == SW_OK && s.out->status == SW_OK; i++)
            if (live[i]) map[i] = rewrite(&s, g, i, map);
        st = s.st;
    }
    if (st == SW_OK) st = sw__graph_finish(s.out, g, map);
    if (st == SW_OK) st = without_dead(s.out, out);
    sw_graph_free(s.out);
    sw__free(s.table);
    sw__free(live);
    sw__free(map);
    return st;
}
