/* node.c: the one door through which nodes enter a graph, and what can be asked about a node.
 * Below every builder, gradient rule, lowering and pass. */
#include "graph/build.h"

#include <stdio.h>

/* ---- about a value -------------------------------------------------------------------------------------------- */

bool sw_valid(sw_t t)
{
    return t.graph != NULL && t.id != 0 && t.id < t.graph->n_nodes;
}

int sw_rank(sw_t t)
{
    return sw_valid(t) ? sw__node_of(t)->rank : -1;
}

int64_t sw_dim(sw_t t, int axis)
{
    if (!sw_valid(t)) return -1;
    const sw__node *const n = sw__node_of(t);
    if (axis < 0) axis += n->rank;
    return axis >= 0 && axis < n->rank ? n->dim[axis] : -1;
}

int64_t sw_elements(sw_t t)
{
    return sw_valid(t) ? sw__node_elements(sw__node_of(t)) : -1;
}

sw_dtype sw_type(sw_t t)
{
    return sw_valid(t) ? (sw_dtype)sw__node_of(t)->dtype : SW_DTYPE_COUNT;
}

int64_t sw__dims_product(const int64_t *dim, int rank)
{
    int64_t product = 1;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || (dim[i] > 0 && product > INT64_MAX / dim[i])) return -1;
        product *= dim[i];
    }
    return product;
}

int64_t sw__node_elements(const sw__node *n)
{
    return sw__dims_product(n->dim, n->rank);
}

bool sw__same_shape(const sw__node *a, const sw__node *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

/* ---- values in messages --------------------------------------------------------------------------------------- */

char *sw__dims_text(int rank, const int64_t *dim, char *buf, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < rank && i < SW_MAX_RANK && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i == 0 ? "[" : ",", (long long)dim[i]);
    if (at < size) snprintf(buf + at, size - at, rank > 0 ? "]" : "[]");
    return buf;
}

char *sw__shape_text(const sw__node *n, char *buf, size_t size)
{
    const int len = snprintf(buf, size, "%s", sw_dtype_name((sw_dtype)n->dtype));
    if (len > 0 && (size_t)len < size) sw__dims_text(n->rank, n->dim, buf + len, size - (size_t)len);
    return buf;
}

char *sw__value_text(const sw_graph *g, uint32_t id, char *buf)
{
    const sw__node *const n = &g->nodes[id];
    char shape[SW__TEXT_BYTES / 2];
    sw__shape_text(n, shape, sizeof shape);
    if (n->name != NULL)
        snprintf(buf, SW__TEXT_BYTES, "%%%u '%.64s' %s", id, n->name, shape);
    else
        snprintf(buf, SW__TEXT_BYTES, "%%%u %s", id, shape);
    return buf;
}

char *sw__op_label(const sw_graph *g, sw__op op, uint32_t id, char *buf, size_t size)
{
    char number[16] = "";
    if (id != 0) snprintf(number, sizeof number, " %%%u", id);
    /* Without the scope's last point. */
    const int scope = (int)SW_MIN(g->scope.len, size);
    snprintf(buf, size, "%s%s%s%.*s%s", sw__op_table[op].name, number, scope > 0 ? " in '" : "",
             scope > 0 ? scope - 1 : 0, scope > 0 ? g->scope.s : "", scope > 0 ? "'" : "");
    return buf;
}

/* ---- adding --------------------------------------------------------------------------------------------------- */

/* " beside %1 'x' f32[2]": one of the operands that is a value, so that the place can be found; "" if there is none. */
static const char *beside(const sw_graph *g, const sw_t *xs, uint32_t n, char *buf, size_t size)
{
    char text[SW__TEXT_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        if (xs[i].graph != g || !sw_valid(xs[i])) continue;
        snprintf(buf, size, " beside %s", sw__value_text(g, xs[i].id, text));
        return buf;
    }
    return "";
}

/* All are values of g; otherwise the error is recorded in g. */
static bool values_of(sw_graph *g, sw__op op, const sw_t *xs, uint32_t n)
{
    if (g->status != SW_OK) return false;
    for (uint32_t i = 0; i < n; i++) {
        const bool foreign = xs[i].graph != NULL && xs[i].graph != g;
        if (!foreign && sw_valid(xs[i])) continue;
        char text[2 * SW__TEXT_BYTES];
        sw__op_error(g, op, SW_ERR_ARGUMENT, "operand %u%s %s", i + 1, beside(g, xs, n, text, sizeof text),
                     foreign ? "belongs to another graph: values of two graphs do not mix"
                             : "is no value (SW_NONE, or never set)");
        return false;
    }
    return true;
}

bool sw__operands(sw__op op, const sw_t *xs, uint32_t n, sw_t *invalid)
{
    sw_graph *g = NULL;
    for (uint32_t i = 0; i < n && g == NULL; i++) g = xs[i].graph;
    *invalid = (sw_t){ g, 0 };
    return g != NULL && values_of(g, op, xs, n);
}

static bool right_number(sw_graph *g, sw__op op, uint32_t n_in)
{
    const sw__op_info *const info = &sw__op_table[op];
    if (n_in >= info->min_in && (info->max_in == SW__ANY || n_in <= info->max_in)) return true;
    sw__op_error(g, op, SW_ERR_ARGUMENT, "%u operands where the op takes %s%d", n_in,
                 n_in < info->min_in ? "at least " : "at most ", n_in < info->min_in ? info->min_in : info->max_in);
    return false;
}

/* No axis is negative, and even with empty axes taken as 1 the bytes fit 63 bits: no stride can overflow later. */
static sw_status check_size(const sw__node *n)
{
    const int64_t most = INT64_MAX / 8; /* the largest type has 8 bytes */
    int64_t product = 1;
    char shape[SW__TEXT_BYTES];
    for (int i = 0; i < n->rank; i++) {
        if (n->dim[i] < 0)
            return sw__fail(SW_ERR_SHAPE, "axis %d of the result %s is negative", i,
                            sw__shape_text(n, shape, sizeof shape));
        const int64_t dim = SW_MAX(n->dim[i], 1);
        if (product > most / dim)
            return sw__fail(SW_ERR_SHAPE, "the result %s has more elements than 64 bits can count",
                            sw__shape_text(n, shape, sizeof shape));
        product *= dim;
    }
    return SW_OK;
}

/* Runs the op's shape rule and checks what it found; the message gets the op, its future id and the scope in front. */
static sw_status infer(sw_graph *g, sw__node *n)
{
    sw_status st = sw__op_table[n->op].infer(g, n);
    if (st == SW_OK) st = check_size(n);
    if (st == SW_OK) return st;
    char label[SW__TEXT_BYTES];
    return sw__prefix(st, "%s", sw__op_label(g, (sw__op)n->op, g->n_nodes, label, sizeof label));
}

/* Room for one more node and, for an assign, one more root; the new node's list of inputs. */
static sw_status make_room(sw_graph *g, const sw_t *in, sw__node *n)
{
    if (g->n_nodes == UINT32_MAX) return sw__fail(SW_ERR_ARGUMENT, "the graph has 2^32 nodes: no more fit");
    SW_TRY(sw__grow(&g->nodes, &g->cap_nodes, (size_t)g->n_nodes + 1, sizeof *g->nodes, "nodes of a graph"));
    if (n->op == SW_OP_ASSIGN)
        SW_TRY(sw__grow(&g->assigns, &g->cap_assigns, (size_t)g->n_assigns + 1, sizeof *g->assigns, "assigns"));
    if (n->n_in == 0) return SW_OK;
    n->in = sw__arena_alloc(&g->arena, n->n_in * sizeof *n->in);
    if (n->in == NULL) return sw__no_memory(n->n_in * sizeof *n->in, "inputs of a node");
    for (uint32_t i = 0; i < n->n_in; i++) n->in[i] = in[i].id;
    return SW_OK;
}

/* Attributes are compared and hashed as bytes: only the member that counts is copied, padding becomes zero. The bytes
 * [hole, hole_end) inside a member are padding. */
static void copy_attr(sw__attr *to, const sw__attr *from, sw__attr_kind kind)
{
#define MEMBER(m) sizeof(((sw__attr *)NULL)->m)
#define OFFSET(m) offsetof(sw__attr, m)
    static const struct { size_t size, hole, hole_end; } layout[] = {
        [SW_ATTR_NONE] = { 0, 0, 0 },
        [SW_ATTR_CONST] = { MEMBER(constant), 0, 0 },
        [SW_ATTR_LITERAL] = { MEMBER(literal), 0, 0 },
        [SW_ATTR_AXIS] = { MEMBER(axis), OFFSET(axis.flag) + sizeof(bool), OFFSET(axis.size) },
        [SW_ATTR_RANDOM] = { MEMBER(random), OFFSET(random.stream) + sizeof(uint32_t), MEMBER(random) },
        [SW_ATTR_SLOT] = { MEMBER(slot), 0, 0 },
        [SW_ATTR_TIE] = { MEMBER(tie), 0, 0 },
        [SW_ATTR_PERM] = { MEMBER(perm), 0, 0 },
        [SW_ATTR_PAD] = { MEMBER(pad), 0, 0 },
        [SW_ATTR_SLICE] = { MEMBER(slice), 0, 0 },
        [SW_ATTR_AXES] = { MEMBER(axes), 0, 0 },
        [SW_ATTR_ACT] = { MEMBER(act), 0, 0 },
        [SW_ATTR_CONV] = { MEMBER(conv), 0, 0 },
        [SW_ATTR_POOL] = { MEMBER(pool), OFFSET(pool.include_pad) + sizeof(bool), OFFSET(pool.kernel) },
        [SW_ATTR_NORM] = { MEMBER(norm), OFFSET(norm.n_axes) + sizeof(int32_t), MEMBER(norm) },
        [SW_ATTR_RECURRENT] = { MEMBER(recurrent), 0, 0 },
        [SW_ATTR_ATTENTION] = { MEMBER(attention), OFFSET(attention.causal) + sizeof(bool), MEMBER(attention) },
        [SW_ATTR_CUSTOM] = { MEMBER(custom), 0, 0 },
    };
#undef MEMBER
#undef OFFSET
    memset(to, 0, sizeof *to);
    memcpy(to, from, layout[kind].size);
    memset((char *)to + layout[kind].hole, 0, layout[kind].hole_end - layout[kind].hole);
}

sw_t sw__node_add(sw_graph *g, sw__op op, const sw_t *in, uint32_t n_in, const sw__attr *attr, const sw__node *shape_of)
{
    if (g == NULL || g->status != SW_OK) return (sw_t){ g, 0 };
    if (op <= SW_OP_NONE || op >= SW_OP_COUNT)
        return sw__graph_error(g, SW_ERR_ARGUMENT, "there is no op number %d", (int)op);
    if (!right_number(g, op, n_in) || !values_of(g, op, in, n_in)) return (sw_t){ g, 0 };
    /* Copies first: attr and shape_of may point into g->nodes, which make_room can move. */
    sw__node n;
    memset(&n, 0, sizeof n);
    n.op = (uint16_t)op;
    n.n_in = n_in;
    if (attr != NULL) copy_attr(&n.attr, attr, (sw__attr_kind)sw__op_table[op].attr);
    if (shape_of != NULL) {
        n.dtype = shape_of->dtype;
        n.rank = shape_of->rank;
        memcpy(n.dim, shape_of->dim, sizeof n.dim);
    }
    for (uint8_t i = 0; i < SW_MAX_RANK; i++) n.order[i] = i;
    sw_status st = make_room(g, in, &n);
    if (st == SW_OK) st = infer(g, &n);
    if (st != SW_OK) return sw__graph_error(g, st, "%s", sw_error());
    for (int i = n.rank; i < SW_MAX_RANK; i++) n.dim[i] = 0; /* so that nodes compare as bytes */
    const uint32_t id = g->n_nodes++;
    g->nodes[id] = n;
    if (op == SW_OP_ASSIGN) g->assigns[g->n_assigns++] = id;
    return (sw_t){ g, id };
}
