/* lookup.c: graph -> graph: a product of rows that were looked up in a table becomes a lookup in the table's product,
 * where the table has far fewer rows than are looked up (the letters of a text, say, before a recurrent layer), and so
 * do the gradients: rows with the same index are added up first and multiplied once. First of the passes, before lower.
 *
 *   x = reshape(embedding(table, index))       x b + bias       ->  reshape(embedding(table b + bias, index))
 *   s = embedding_grad(index, g)               x^T g, g^T x     ->  table^T s, s^T table
 *                                              embedding_grad(index, g w)  ->  s w
 *                                              sum of g's rows  ->  sum of s's rows, where s is there anyway
 * Casts in between stay what they were; sums of halves are formed and multiplied in f32. */
#include "pass/pass.h"

enum { LEAST_COLUMNS = 32 }; /* of the table: below, the product costs no more than the memory that it goes through */

typedef struct lookup {
    uint32_t table, index; /* nodes; table 0: there is none */
    uint8_t dtype;         /* of the rows that come out */
} lookup;

typedef struct rewriter {
    const sw_graph *g;
    sw_graph *out;
    const sw_t *map;
    const uint32_t *uses; /* of each node of g */
    lookup *by;           /* of a node without its reshapes: whose sums by index are wanted */
} rewriter;

static const sw_t none = { 0 };

/* ---- looking (at g) ---------------------------------------------------------------------------------------------- */

static uint32_t without_reshapes(const sw_graph *g, uint32_t id)
{
    while (g->nodes[id].op == SW_OP_RESHAPE) id = g->nodes[id].in[0];
    return id;
}

/* What `id` is a cast of, or itself. */
static uint32_t without_cast(const sw_graph *g, uint32_t id)
{
    const sw__node *const n = &g->nodes[id];
    const bool floats = n->op == SW_OP_CAST && sw__dtype_is_float((sw_dtype)n->dtype) &&
                        sw__dtype_is_float((sw_dtype)g->nodes[n->in[0]].dtype);
    return floats ? n->in[0] : id;
}

static int64_t elements(const sw__node *n)
{
    int64_t size = 1;
    for (int i = 0; i < n->rank; i++) size *= n->dim[i];
    return size;
}

static bool pays(int64_t count, int64_t rows, int64_t columns)
{
    return count >= 2 * rows && columns >= LEAST_COLUMNS;
}

/* Whether node `id` is a matrix whose rows were looked up in a small table; at most one cast on the way. */
static lookup lookup_of(const sw_graph *g, uint32_t id)
{
    lookup l = { .dtype = g->nodes[id].dtype };
    if (g->nodes[id].rank != 2) return l;
    const uint32_t at = without_reshapes(g, without_cast(g, without_reshapes(g, id)));
    const sw__node *const n = &g->nodes[at], *const table = &g->nodes[n->op == SW_OP_EMBEDDING ? n->in[0] : 0];
    if (n->op != SW_OP_EMBEDDING || table->dim[1] != g->nodes[id].dim[1] || !sw__dtype_is_float((sw_dtype)table->dtype))
        return l;
    if (!pays(g->nodes[id].dim[0], table->dim[0], table->dim[1])) return l;
    l.table = n->in[0];
    l.index = n->in[1];
    return l;
}

/* The matrix that `id` is the transpose of, or 0. */
static uint32_t transposed(const sw_graph *g, uint32_t id)
{
    const sw__node *const n = &g->nodes[id];
    return n->op == SW_OP_PERMUTE && n->rank == 2 && n->attr.perm.axes[0] == 1 ? n->in[0] : 0;
}

static bool is_product(const sw__node *n, uint32_t operands)
{
    return n->op == SW_OP_MATMUL && n->rank == 2 && n->n_in <= operands && n->attr.act.act == SW_ACT_NONE;
}

/* The gradient of a looked-up product with respect to its other side: which operand is looked up, and where. */
static int looked_up_side(const sw_graph *g, const sw__node *n, lookup *l)
{
    if (!is_product(n, 2)) return -1;
    const uint32_t left = transposed(g, n->in[0]);
    if (left == 0) return -1;
    for (int side = 0; side < 2; side++) {
        *l = lookup_of(g, side == 0 ? left : n->in[1]);
        if (l->table != 0) return side;
    }
    return -1;
}

/* If n adds up by index the rows of a product that nobody else wants: the product. */
static const sw__node *product_below(const rewriter *r, const sw__node *n)
{
    const sw_graph *const g = r->g;
    if (n->op != SW_OP_EMBEDDING_GRAD) return NULL;
    uint32_t id = n->in[1];
    for (int casts = 0;;) {
        const uint32_t below = g->nodes[id].op == SW_OP_RESHAPE ? g->nodes[id].in[0] : without_cast(g, id);
        if (r->uses[id] != 1) return NULL;
        if (below == id) break;
        if (g->nodes[id].op == SW_OP_CAST && casts++ > 0) return NULL;
        id = below;
    }
    const sw__node *const m = &g->nodes[id];
    if (!is_product(m, 2) || !sw__dtype_is_float((sw_dtype)m->dtype)) return NULL;
    return pays(m->dim[0], n->dim[0], m->dim[1]) && n->dim[1] == m->dim[1] ? m : NULL;
}

/* ---- making (in out) --------------------------------------------------------------------------------------------- */

static sw_t as_type(sw_t x, sw_dtype t)
{
    return sw__node_of(x)->dtype == t ? x : sw_cast(x, t);
}

static sw_t at_least_f32(sw_t x)
{
    return sw__node_of(x)->dtype == SW_F64 ? x : as_type(x, SW_F32);
}

static sw_t product(sw_graph *out, sw_t a, sw_t b)
{
    const sw_t in[2] = { a, b };
    return sw__node_add(out, SW_OP_MATMUL, in, 2, NULL, NULL);
}

static sw_t flipped(sw_t x)
{
    return sw_permute(x, (const int[2]){ 1, 0 });
}

/* s: rows of matrix `id` added up by index, in f32 at least. */
static sw_t sums(const rewriter *r, uint32_t id, uint32_t index, int64_t rows)
{
    const sw_t i = r->map[index], x = at_least_f32(r->map[id]);
    const sw__node *const n = sw__node_of(i);
    int64_t shape[SW_MAX_RANK];
    const int rank = n->rank;
    memcpy(shape, n->dim, sizeof shape);
    if (rank + 1 > SW_MAX_RANK) return none;
    shape[rank] = r->g->nodes[id].dim[1];
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.size = rows;
    const sw_t in[2] = { i, sw_reshape(x, rank + 1, shape) };
    return sw__node_add(r->out, SW_OP_EMBEDDING_GRAD, in, 2, &attr, NULL);
}

/* x b + bias */
static sw_t forward(const rewriter *r, const sw__node *n)
{
    if (n->op != SW_OP_MATMUL || n->rank != 2) return none;
    const lookup l = lookup_of(r->g, n->in[0]);
    if (l.table == 0) return none;
    sw_t in[3] = { as_type(r->map[l.table], (sw_dtype)l.dtype) };
    for (uint32_t i = 1; i < n->n_in; i++) in[i] = r->map[n->in[i]];
    const sw_t rows[2] = { sw__node_add(r->out, SW_OP_MATMUL, in, n->n_in, &n->attr, NULL), r->map[l.index] };
    const sw_t y = sw_reshape(sw__node_add(r->out, SW_OP_EMBEDDING, rows, 2, NULL, NULL), n->rank, n->dim);
    return sw_valid(y) && n->name != NULL ? sw_named(y, n->name) : y;
}

/* x^T g and g^T x */
static sw_t other_side(const rewriter *r, const sw__node *n)
{
    lookup l;
    const int side = looked_up_side(r->g, n, &l);
    if (side < 0) return none;
    const sw_t table = at_least_f32(as_type(r->map[l.table], (sw_dtype)l.dtype));
    const int64_t rows = r->g->nodes[l.table].dim[0];
    const sw_t s = sums(r, side == 0 ? n->in[1] : transposed(r->g, n->in[0]), l.index, rows);
    if (!sw_valid(s)) return none;
    return as_type(side == 0 ? product(r->out, flipped(table), s) : product(r->out, flipped(s), table),
                   (sw_dtype)n->dtype);
}

/* embedding_grad(index, g w) */
static sw_t table_side(const rewriter *r, const sw__node *n)
{
    const sw__node *const m = product_below(r, n);
    if (m == NULL) return none;
    const sw_t s = sums(r, m->in[0], n->in[0], n->dim[0]);
    if (!sw_valid(s)) return none;
    return as_type(product(r->out, s, at_least_f32(r->map[m->in[1]])), (sw_dtype)n->dtype);
}

/* A sum over rows whose sums by index are formed anyway. */
static sw_t row_sum(const rewriter *r, const sw__node *n)
{
    if (n->op != SW_OP_REDUCE_SUM || n->attr.axes.axes != 1) return none;
    const lookup l = r->by[without_reshapes(r->g, n->in[0])];
    const sw__node *const x = &r->g->nodes[n->in[0]];
    if (l.table == 0 || x->rank != 2 || x->dim[0] != elements(&r->g->nodes[l.index])) return none;
    const sw_t s = sums(r, n->in[0], l.index, r->g->nodes[l.table].dim[0]);
    return sw_valid(s) ? as_type(sw_sum(s, SW_AXIS(0), true), (sw_dtype)n->dtype) : none;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static void count_uses(const sw_graph *g, const bool *live, uint32_t *uses)
{
    for (uint32_t i = 1; i < g->n_nodes; i++)
        for (uint32_t k = 0; live[i] && k < g->nodes[i].n_in; k++) uses[g->nodes[i].in[k]]++;
    for (uint32_t i = 0; i < g->n_outputs; i++) uses[g->outputs[i].node]++;
}

/* Whose sums by index the gradients of a looked-up product will want. */
static void find_sums(rewriter *r, const bool *live)
{
    for (uint32_t i = 1; i < r->g->n_nodes; i++) {
        const sw__node *const n = &r->g->nodes[i];
        lookup l;
        const int side = live[i] ? looked_up_side(r->g, n, &l) : -1;
        if (side >= 0) r->by[without_reshapes(r->g, side == 0 ? n->in[1] : transposed(r->g, n->in[0]))] = l;
    }
}

static sw_t rewritten(const rewriter *r, uint32_t i)
{
    static sw_t (*const rules[])(const rewriter *, const sw__node *) = { forward, other_side, table_side, row_sum };
    for (size_t k = 0; k < SW_COUNT(rules); k++) {
        const sw_t y = rules[k](r, &r->g->nodes[i]);
        if (sw_valid(y)) return y;
    }
    return none;
}

sw_status sw__pass_lookup(const sw_graph *g, const sw__traits *t, sw_graph **out)
{
    sw_t *const map = sw__calloc(g->n_nodes, sizeof *map);
    uint32_t *const uses = sw__calloc(g->n_nodes, sizeof *uses);
    rewriter r = { .g = g, .map = map, .uses = uses, .by = sw__calloc(g->n_nodes, sizeof *r.by) };
    bool *live = NULL;
    sw_status st = map && uses && r.by ? sw__graph_live(g, &live) : sw__no_memory(g->n_nodes * sizeof *map, "lookups");
    if (st == SW_OK) st = sw__graph_like(g, &r.out);
    if (st == SW_OK) count_uses(g, live, uses);
    if (st == SW_OK && t->small_tables) find_sums(&r, live);
    for (uint32_t i = 1; st == SW_OK && i < g->n_nodes && r.out->status == SW_OK; i++) {
        if (!live[i]) continue;
        const sw_t y = t->small_tables ? rewritten(&r, i) : none;
        map[i] = sw_valid(y) || r.out->status != SW_OK ? y : sw__node_copy(r.out, g, i, map);
    }
    if (st == SW_OK) st = sw__graph_finish(r.out, g, map);
    if (st == SW_OK)
        *out = r.out;
    else
        sw_graph_free(r.out);
    sw__free(map);
    sw__free(uses);
    sw__free(r.by);
    sw__free(live);
    return st;
}
