/* layout.c: graph -> graph: the physical order of each value's axes (sw__node.order). Last of the graph's passes; what
 * the scheduler allocates follows it. Ops on images set the order where the device likes channels last; everything
 * between follows the larger of its inputs, so that no copy is needed; variables, inputs, outputs are row-major. */
#include "pass/pass.h"

static const uint8_t identity[SW_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
static const uint8_t channels_last[SW_MAX_RANK] = {0, 2, 3, 1, 4, 5, 6, 7};

typedef struct layout {
    sw_graph *g;
    const sw__traits *t;
    int64_t *weight;  /* elements that stand behind a node's order: what an expand repeats does not count */
    bool *plain;      /* wanted row-major: by an output, an assign, a pack */
    bool *image;      /* wanted channels last by an op */
} layout;

static bool is_fusable(const sw__node *n)
{
    const sw__op_info *o = &sw__op_table[n->op];
    return (o->flags & SW_OPF_PW) || n->op == SW_OP_PAD || n->op == SW_OP_GATHER || o->cls == SW_CLASS_REDUCE;
}

static bool likes_image(const layout *l, const sw__node *n, uint32_t k)
{
    const bool weight = (n->op == SW_OP_CONV || n->op == SW_OP_CONV_GRAD_X) && k == 1;
    return l->t->channels_last[n->op] && l->t->takes[n->op] && l->g->nodes[n->in[k]].rank == 4 && !weight;
}

static void find_wishes(const layout *l)
{
    const sw_graph *g = l->g;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const sw__node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (likes_image(l, n, k)) l->image[n->in[k]] = true;
            if (n->op == SW_OP_PACK || (n->op == SW_OP_ASSIGN && k == 1)) l->plain[n->in[k]] = true;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) l->plain[g->outputs[i].node] = true;
}

/* The order of a view's axes in memory, if its input's axes keep theirs. */
static void through_permute(sw__node *n, const sw__node *x)
{
    uint8_t where[SW_MAX_RANK] = {0};
    for (int i = 0; i < n->rank; i++) where[n->attr.perm.axes[i]] = (uint8_t)i;
    for (int i = 0; i < n->rank; i++) n->order[i] = where[x->order[i]];
}

/* A reshape that inserts or removes axes of size 1 keeps the others in their order; all else is row-major. */
static void through_reshape(sw__node *n, const sw__node *x)
{
    uint8_t from[SW_MAX_RANK] = {0}, to[SW_MAX_RANK] = {0}, axis[SW_MAX_RANK] = {0};
    int a = 0, b = 0, k = 0;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] != 1) from[a++] = (uint8_t)i;
    for (int i = 0; i < n->rank; i++)
        if (n->dim[i] != 1) to[b++] = (uint8_t)i;
    bool same = a == b;
    for (int i = 0; i < a && same; i++) same = x->dim[from[i]] == n->dim[to[i]];
    if (!same) return;
    for (int i = 0; i < a; i++) axis[from[i]] = to[i];
    for (int i = 0; i < n->rank; i++)
        if (n->dim[i] == 1) n->order[k++] = (uint8_t)i;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[x->order[i]] != 1) n->order[k++] = axis[x->order[i]];
}

/* The inputs with most elements decide. */
static void by_majority(const layout *l, sw__node *n, int64_t *weight)
{
    int64_t best = 0;
    for (uint32_t k = 0; k < n->n_in; k++) {
        const sw__node *x = &l->g->nodes[n->in[k]];
        int64_t votes = 0;
        if (x->rank != n->rank) continue;
        for (uint32_t j = 0; j < n->n_in; j++)
            if (l->g->nodes[n->in[j]].rank == n->rank && memcmp(l->g->nodes[n->in[j]].order, x->order, n->rank) == 0)
                votes += l->weight[n->in[j]];
        if (votes <= best) continue;
        best = votes;
        memcpy(n->order, x->order, n->rank);
    }
    *weight = best ? sw__node_elements(n) : 0;
}

static void set_order(const layout *l, uint32_t id)
{
    sw__node *n = &l->g->nodes[id];
    const sw__node *x = &l->g->nodes[n->n_in ? n->in[0] : 0];
    int64_t *w = &l->weight[id];
    memcpy(n->order, identity, sizeof identity);
    *w = sw__node_elements(n);
    switch (n->op) {
    case SW_OP_CONST: case SW_OP_IOTA: case SW_OP_RANDOM: *w = 0; return;
    case SW_OP_PERMUTE: through_permute(n, x); *w = l->weight[n->in[0]]; return;
    case SW_OP_RESHAPE: through_reshape(n, x); *w = l->weight[n->in[0]]; return;
    case SW_OP_EXPAND: case SW_OP_SLICE: case SW_OP_STOP_GRADIENT:
        memcpy(n->order, x->order, sizeof n->order);
        *w = SW_MIN(*w, l->weight[n->in[0]]);
        return;
    default: break;
    }
    if (l->t->takes[n->op] && l->t->channels_last[n->op]) {
        if (n->rank == 4 && n->op != SW_OP_CONV_GRAD_W) memcpy(n->order, channels_last, sizeof n->order);
        return;
    }
    if (l->t->takes[n->op] || (!is_fusable(n) && n->op != SW_OP_CONCAT) || l->plain[id]) return;
    by_majority(l, n, w);
    /* written by a kernel from something row-major, and wanted channels last: the kernel can as well turn it */
    if (l->image[id] && memcmp(n->order, identity, n->rank) == 0) memcpy(n->order, channels_last, sizeof n->order);
}

sw_status sw__pass_layout(const sw_graph *g, const sw__traits *t, sw_graph **out)
{
    sw_t *map = sw__calloc(g->n_nodes, sizeof *map);
    bool *live = NULL;
    layout l = {.t = t};
    sw_status st = map ? sw__graph_live(g, &live) : sw__no_memory(g->n_nodes * sizeof *map, "layout");
    if (st == SW_OK) st = sw__graph_like(g, &l.g);
    for (uint32_t i = 1; st == SW_OK && i < g->n_nodes && l.g->status == SW_OK; i++)
        if (live[i]) map[i] = sw__node_copy(l.g, g, i, map);
    if (st == SW_OK) st = sw__graph_finish(l.g, g, map);
    if (st == SW_OK) {
        l.weight = sw__calloc(l.g->n_nodes, sizeof *l.weight);
        l.plain = sw__calloc(l.g->n_nodes, sizeof *l.plain);
        l.image = sw__calloc(l.g->n_nodes, sizeof *l.image);
        if (!l.weight || !l.plain || !l.image) st = sw__no_memory(l.g->n_nodes * sizeof *l.weight, "layout");
    }
    if (st == SW_OK) {
        find_wishes(&l);
        for (uint32_t i = 1; i < l.g->n_nodes; i++) set_order(&l, i);
        *out = l.g;
    } else {
        sw_graph_free(l.g);
    }
    sw__free(l.weight);
    sw__free(l.plain);
    sw__free(l.image);
    sw__free(map);
    sw__free(live);
    return st;
}
