/* grad.c: sw_grad, reverse-mode differentiation: the gradient of a graph as more graph.
 * Between the builders and the gradient rules (grad_*.c), which it calls from the last node to the first. */
#include "graph/grad.h"

/* ---- helpers for the rules --------------------------------------------------------------------------------------- */

sw_t sw__scalar_like(sw_t x, double value)
{
    if (!sw_valid(x)) return SW_NONE;
    return sw_const(x.graph, sw_type(x), value);
}

sw_t sw__reshape_like(sw_t x, sw_t like)
{
    if (!sw_valid(x) || !sw_valid(like)) return SW_NONE;
    const sw__node n = *sw__node_of(like);
    const sw__node *m = sw__node_of(x);
    if (m->rank == n.rank && memcmp(m->dim, n.dim, n.rank * sizeof n.dim[0]) == 0) return x;
    return sw_reshape(x, n.rank, n.dim);
}

sw_t sw__expand_like(sw_t x, sw_t like)
{
    if (!sw_valid(x) || !sw_valid(like)) return SW_NONE;
    const sw__node n = *sw__node_of(like);
    const sw__node *m = sw__node_of(x);
    if (m->rank == n.rank && memcmp(m->dim, n.dim, n.rank * sizeof n.dim[0]) == 0) return x;
    return sw__expand_to(x, n.rank, n.dim);
}

bool sw__constant_of(sw_t x, double *value)
{
    if (!sw_valid(x)) return false;
    const sw__node *n = sw__node_of(x);
    while (n->op == SW_OP_EXPAND || n->op == SW_OP_RESHAPE) n = &x.graph->nodes[n->in[0]];
    if (n->op != SW_OP_CONST) return false;
    *value = n->attr.constant.value;
    return true;
}

sw_t sw__times(sw_t a, sw_t b)
{
    double c;
    if (sw_valid(a) && sw_valid(b) && sw__same_shape(sw__node_of(a), sw__node_of(b))) {
        if (sw__constant_of(a, &c) && c == 1.0) return b;
        if (sw__constant_of(b, &c) && c == 1.0) return a;
    }
    return sw_mul(a, b);
}

sw_t sw__keep_if(sw_t condition, sw_t dy)
{
    return sw_where(condition, dy, sw__scalar_like(dy, 0.0));
}

sw_t sw__drop_if(sw_t condition, sw_t dy)
{
    return sw_where(condition, sw__scalar_like(dy, 0.0), dy);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* One walk covers the ids [first, end). Gradients are kept for each output of a node; those of values before `first`
 * (the inputs of a lowered node) are kept beside, in the order of wrt. */
typedef struct walk {
    sw_graph *g;
    uint32_t first, end;
    const sw_t *wrt;
    uint32_t n_wrt;
    bool *reach;                 /* a gradient with respect to some wrt can flow through this node */
    uint32_t (*dy)[SW__MAX_OUT]; /* ids of the sums so far, 0: none */
    uint32_t *outside;           /* the same for wrt[i] with id < first */
    bool *want;                  /* scratch: one for each input of the node at hand */
    sw_t *dx;
} walk;

static bool reaches(const walk *w, uint32_t id)
{
    if (id >= w->first) return id < w->end && w->reach[id - w->first];
    for (uint32_t i = 0; i < w->n_wrt; i++) {
        if (w->wrt[i].id == id) return true;
    }
    return false;
}

static void accumulate(uint32_t *sum, sw_t v)
{
    if (!sw_valid(v)) return;
    *sum = *sum ? sw_add(sw__value(v.graph, *sum), v).id : v.id;
}

static void add_gradient(walk *w, uint32_t id, int k, sw_t v)
{
    if (id >= w->first) {
        accumulate(&w->dy[id - w->first][k], v);
        return;
    }
    for (uint32_t i = 0; i < w->n_wrt; i++) {
        if (w->wrt[i].id == id) { /* a value given twice collects once and is copied at the end */
            accumulate(&w->outside[i], v);
            return;
        }
    }
}

static void mark_reach(walk *w)
{
    const sw_graph *g = w->g;
    for (uint32_t i = 0; i < w->n_wrt; i++) {
        const uint32_t id = w->wrt[i].id;
        if (id >= w->first && id < w->end) w->reach[id - w->first] = true;
    }
    for (uint32_t id = w->first; id < w->end; id++) {
        const sw__node *n = &g->nodes[id];
        const bool flows = n->op == SW_OP_OUTPUT || sw__op_table[n->op].grad != sw__grad_none;
        if (!flows || !sw__dtype_is_float((sw_dtype)n->dtype)) continue;
        for (uint32_t i = 0; i < n->n_in && !w->reach[id - w->first]; i++) {
            w->reach[id - w->first] = reaches(w, n->in[i]);
        }
    }
}

/* Gives the nodes that node `id`'s rule appended a name for messages and profiles. */
static void name_new_nodes(sw_graph *g, uint32_t id, uint32_t from)
{
    if (!g->nodes[id].name || sw__op_table[g->nodes[id].op].cls != SW_CLASS_BIG) return;
    for (uint32_t i = from; i < g->n_nodes; i++) {
        sw__node *n = &g->nodes[i];
        if (n->name || sw__op_table[n->op].cls != SW_CLASS_BIG) continue;
        n->name = sw__arena_printf(&g->arena, "%s.grad", g->nodes[id].name);
        if (!n->name) sw__graph_error(g, SW_ERR_MEMORY, "out of memory for the names of gradients");
    }
}

static void apply_rule(walk *w, uint32_t id, const sw_t *dy)
{
    sw_graph *g = w->g;
    const uint32_t n_in = g->nodes[id].n_in, before = g->n_nodes;
    const sw__op_info *info = &sw__op_table[g->nodes[id].op];
    for (uint32_t i = 0; i < n_in; i++) {
        w->want[i] = reaches(w, g->nodes[id].in[i]);
        w->dx[i] = SW_NONE;
    }
    if (info->grad) {
        info->grad(g, id, dy, w->want, w->dx);
    } else if (info->lower) {
        sw__grad_by_lowering(g, id, dy, w->want, w->dx);
    } else {
        sw__graph_error(g, SW_ERR_UNSUPPORTED, "sw_grad: op %s (%%%u) has no gradient", info->name, (unsigned)id);
    }
    if (g->status != SW_OK) return;
    for (uint32_t i = 0; i < n_in; i++) {
        if (!w->want[i] || !sw_valid(w->dx[i])) continue;
        const uint32_t in = g->nodes[id].in[i];
        if (!sw__same_shape(&g->nodes[w->dx[i].id], &g->nodes[in])) {
            char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
            sw__graph_error(g, SW_ERR_SHAPE, "sw_grad: the gradient of input %u of %s (%%%u) is %s, the input is %s",
                            (unsigned)i, info->name, (unsigned)id, sw__value_text(g, w->dx[i].id, a),
                            sw__value_text(g, in, b));
            return;
        }
        add_gradient(w, in, 0, w->dx[i]);
    }
    name_new_nodes(g, id, before);
}

static void walk_down(walk *w)
{
    sw_graph *g = w->g;
    for (uint32_t id = w->end; id-- > w->first && g->status == SW_OK;) {
        const uint32_t *sums = w->dy[id - w->first];
        sw_t dy[SW__MAX_OUT];
        bool any = false;
        for (int k = 0; k < SW__MAX_OUT; k++) {
            dy[k] = sums[k] ? sw__value(g, sums[k]) : SW_NONE;
            any |= sums[k] != 0;
        }
        if (!any || !w->reach[id - w->first]) continue;
        const sw__node *n = &g->nodes[id];
        if (n->op == SW_OP_OUTPUT) { /* hands its gradient to the op whose output it is */
            if (reaches(w, n->in[0])) add_gradient(w, n->in[0], n->attr.axis.axis, dy[0]);
        } else if (n->n_in > 0) {
            apply_rule(w, id, dy);
        }
    }
}

static void walk_free(walk *w)
{
    sw__free(w->reach);
    sw__free(w->dy);
    sw__free(w->outside);
    sw__free(w->want);
    sw__free(w->dx);
}

static bool walk_alloc(walk *w)
{
    uint32_t most = 1;
    for (uint32_t id = w->first; id < w->end; id++) most = SW_MAX(most, w->g->nodes[id].n_in);
    const size_t n = (size_t)(w->end - w->first) + 1;
    w->reach = sw__calloc(n, sizeof *w->reach);
    w->dy = sw__calloc(n, sizeof *w->dy);
    w->outside = sw__calloc((size_t)w->n_wrt + 1, sizeof *w->outside);
    w->want = sw__calloc(most, sizeof *w->want);
    w->dx = sw__calloc(most, sizeof *w->dx);
    if (w->reach && w->dy && w->outside && w->want && w->dx) return true;
    sw__graph_error(w->g, SW_ERR_MEMORY, "out of memory: sw_grad's tables for %zu nodes", n);
    walk_free(w);
    return false;
}

/* Errors are left in the graph. */
void sw__grad_since(sw_graph *g, uint32_t first, const sw_t *roots, const sw_t *seeds, uint32_t n_roots,
                    const sw_t *wrt, uint32_t n_wrt, sw_t *out)
{
    walk w = { .g = g, .first = first, .end = first, .wrt = wrt, .n_wrt = n_wrt };
    for (uint32_t i = 0; i < n_roots; i++) w.end = SW_MAX(w.end, roots[i].id + 1);
    if (!walk_alloc(&w)) return;
    mark_reach(&w);
    for (uint32_t i = 0; i < n_roots; i++) add_gradient(&w, roots[i].id, 0, seeds[i]);
    walk_down(&w);
    for (uint32_t i = 0; i < n_wrt && g->status == SW_OK; i++) {
        const uint32_t id = wrt[i].id;
        uint32_t sum = 0;
        if (id >= first) {
            sum = id < w.end ? w.dy[id - first][0] : 0;
        } else {
            for (uint32_t j = 0; j < n_wrt && !sum; j++) sum = wrt[j].id == id ? w.outside[j] : 0;
        }
        out[i] = sum ? sw__value(g, sum) : SW_NONE;
    }
    walk_free(&w);
}

void sw__grad_by_lowering(sw_graph *g, uint32_t id, const sw_t *dy, const bool *want, sw_t *dx)
{
    enum { MAX_IN = 8 }; /* big ops have few inputs */
    const sw__node n = g->nodes[id]; /* a copy: the array moves while the graph grows */
    sw_t in[MAX_IN], wrt[MAX_IN], found[MAX_IN], out[SW__MAX_OUT] = { SW_NONE }, roots[SW__MAX_OUT], seeds[SW__MAX_OUT];
    uint32_t place[MAX_IN], n_wrt = 0, n_roots = 0;
    if (n.n_in > MAX_IN) {
        sw__graph_error(g, SW_ERR_UNSUPPORTED, "sw_grad: %s (%%%u) has %u inputs, at most %d can be lowered",
                        sw__op_table[n.op].name, (unsigned)id, (unsigned)n.n_in, (int)MAX_IN);
        return;
    }
    for (uint32_t i = 0; i < n.n_in; i++) {
        in[i] = sw__value(g, n.in[i]);
        if (!want[i]) continue;
        place[n_wrt] = i;
        wrt[n_wrt++] = in[i];
    }
    const uint32_t first = g->n_nodes;
    sw__op_table[n.op].lower(g, &n, in, out);
    if (g->status != SW_OK) return;
    for (int k = 0; k < SW__MAX_OUT; k++) {
        if (!sw_valid(dy[k]) || !sw_valid(out[k])) continue;
        roots[n_roots] = out[k];
        seeds[n_roots++] = dy[k];
    }
    for (uint32_t i = 0; i < n_wrt; i++) found[i] = SW_NONE;
    sw__grad_since(g, first, roots, seeds, n_roots, wrt, n_wrt, found);
    for (uint32_t i = 0; i < n_wrt; i++) { /* the same value in two places: its gradient is complete at the first */
        bool seen = false;
        for (uint32_t j = 0; j < i; j++) seen |= wrt[j].id == wrt[i].id;
        if (!seen) dx[place[i]] = found[i];
    }
}

/* ---- the public calls -------------------------------------------------------------------------------------------- */

static sw_status check_arguments(sw_t loss, const sw_t *wrt, int n, const sw_t *out, const char *call)
{
    if (!loss.graph) return sw__fail(SW_ERR_ARGUMENT, "%s: the loss is not a value of any graph", call);
    sw_graph *g = loss.graph;
    SW_TRY(sw_graph_status(g));
    if (n < 0 || (n > 0 && (!wrt || !out))) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: n is %d, wrt and out must point to so many values", call, n);
    }
    char text[SW__TEXT_BYTES];
    if (!sw_valid(loss)) {
        return sw__fail(SW_ERR_ARGUMENT, "%s: the loss is an invalid value", call);
    }
    if (!sw__dtype_is_float(sw_type(loss))) {
        sw__graph_error(g, SW_ERR_SHAPE, "%s: the loss is %s; only floating-point values have gradients (sw_cast)",
                        call,
                        sw__value_text(g, loss.id, text));
        return sw_graph_status(g);
    }
    for (int i = 0; i < n; i++) {
        if (wrt[i].graph != g || !sw_valid(wrt[i])) {
            return sw__fail(SW_ERR_ARGUMENT, "%s: wrt[%d] is not a value of the loss's graph", call, i);
        }
        /* a constant is made anew wherever it is used: what would arrive is lost */
        if (sw__node_of(wrt[i])->op == SW_OP_CONST) {
            sw__graph_error(g, SW_ERR_ARGUMENT, "%s: wrt[%d] is %s, a constant, which gets no gradient: make it a "
                            "sw_input or sw_param", call, i, sw__value_text(g, wrt[i].id, text));
            return sw_graph_status(g);
        }
        if (sw__dtype_is_float(sw_type(wrt[i]))) continue;
        sw__graph_error(g, SW_ERR_SHAPE, "%s: wrt[%d] is %s; only floating-point values have gradients", call, i,
                        sw__value_text(g, wrt[i].id, text));
        return sw_graph_status(g);
    }
    return SW_OK;
}

static sw_status differentiate(sw_t loss, sw_t seed, const sw_t *wrt, int n, sw_t *out)
{
    sw_graph *g = loss.graph;
    if (n == 0) return SW_OK;
    sw_t *found = sw__calloc((size_t)n, sizeof *found);
    if (!found) return sw__no_memory((size_t)n * sizeof *found, "gradients");
    sw__grad_since(g, 1, &loss, &seed, 1, wrt, (uint32_t)n, found);
    for (int i = 0; i < n && g->status == SW_OK; i++) {
        if (!sw_valid(found[i])) found[i] = sw__const_like(wrt[i], 0.0);
    }
    const sw_status st = sw_graph_status(g);
    if (st == SW_OK) memcpy(out, found, (size_t)n * sizeof *found);
    sw__free(found);
    return st;
}

sw_status sw_grad(sw_t loss, const sw_t *wrt, int n, sw_t *out)
{
    SW_TRY(check_arguments(loss, wrt, n, out, "sw_grad"));
    if (sw_elements(loss) != 1) {
        char text[SW__TEXT_BYTES];
        sw__graph_error(loss.graph, SW_ERR_SHAPE,
                        "sw_grad: the loss is %s; it must be one number (take sw_mean or sw_sum of it, or give its "
                        "gradient to sw_grad_from)", sw__value_text(loss.graph, loss.id, text));
        return sw_graph_status(loss.graph);
    }
    return differentiate(loss, sw__const_like(loss, 1.0), wrt, n, out);
}

sw_status sw_grad_from(sw_t loss, sw_t seed, const sw_t *wrt, int n, sw_t *out)
{
    SW_TRY(check_arguments(loss, wrt, n, out, "sw_grad_from"));
    if (seed.graph != loss.graph || !sw_valid(seed)) {
        return sw__fail(SW_ERR_ARGUMENT, "sw_grad_from: the seed is not a value of the loss's graph");
    }
    if (!sw__same_shape(sw__node_of(seed), sw__node_of(loss)) || sw_type(seed) != sw_type(loss)) {
        char a[SW__TEXT_BYTES], b[SW__TEXT_BYTES];
        sw__graph_error(loss.graph, SW_ERR_SHAPE, "sw_grad_from: the seed is %s and the loss %s; they must agree",
                        sw__value_text(seed.graph, seed.id, a), sw__value_text(loss.graph, loss.id, b));
        return sw_graph_status(loss.graph);
    }
    return differentiate(loss, seed, wrt, n, out);
}
