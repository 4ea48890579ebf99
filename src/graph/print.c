/* print.c: a graph as text, one line a node, or in Graphviz's dot language.
 * Beside rewrite.c; used by sw_graph_print and by the dumps between passes. */
#include "graph/build.h"
#include "graph/custom.h"

/* ---- attributes ----------------------------------------------------------------------------------------------- */

static void put_list(sw__text *t, const char *name, const int64_t *v, int n)
{
    sw__text_add(t, " %s=", name);
    for (int i = 0; i < n; i++) sw__text_add(t, "%s%lld", i > 0 ? "," : "", (long long)v[i]);
}

/* Left out where every entry has its usual value. */
static void put_unusual(sw__text *t, const char *name, const int64_t *v, int n, int64_t usual)
{
    for (int i = 0; i < n; i++) {
        if (v[i] == usual) continue;
        put_list(t, name, v, n);
        return;
    }
}

static void put_act(sw__text *t, int32_t act)
{
    static const char *const names[] = { [SW_ACT_NONE] = NULL, [SW_ACT_RELU] = "relu" };
    const uint32_t i = (uint32_t)act;
    if (i < SW_COUNT(names) && names[i]) sw__text_add(t, " act=%s", names[i]);
}

static void print_const(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    if (sw__dtype_is_float((sw_dtype)n->dtype))
        sw__text_add(t, " value=%.9g", n->attr.constant.value);
    else
        sw__text_add(t, " value=%lld", (long long)n->attr.constant.ivalue);
}

static void print_literal(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, " bytes=%zu", n->attr.literal.bytes);
}

static void print_axis(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    if (n->op == SW_OP_EMBEDDING_GRAD) {
        sw__text_add(t, " rows=%lld", (long long)n->attr.axis.size);
        return;
    }
    sw__text_add(t, n->op == SW_OP_OUTPUT ? " k=%d" : " axis=%d", n->attr.axis.axis);
    if (n->attr.axis.flag) sw__text_add(t, n->op == SW_OP_SCAN_SUM ? " reverse" : " descending");
}

static void print_random(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, " seed=%llu stream=%u", (unsigned long long)n->attr.random.seed, n->attr.random.stream);
}

static void print_slot(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, n->op == SW_OP_VARPACK || n->op == SW_OP_PACK ? " group=%u" : " slot=%u", n->attr.slot.index);
}

static void print_tie(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    if (n->attr.tie.second) sw__text_add(t, " tie=second");
}

static void print_perm(const sw__node *n, int rank_in, sw__text *t)
{
    int64_t axes[SW_MAX_RANK];
    for (int i = 0; i < rank_in; i++) axes[i] = n->attr.perm.axes[i];
    put_list(t, "axes", axes, rank_in);
}

static void print_pad(const sw__node *n, int rank_in, sw__text *t)
{
    put_list(t, "lo", n->attr.pad.lo, rank_in);
    put_list(t, "hi", n->attr.pad.hi, rank_in);
    put_unusual(t, "interior", n->attr.pad.interior, rank_in, 0);
    sw__text_add(t, " value=%.9g", n->attr.pad.value);
}

static void print_slice(const sw__node *n, int rank_in, sw__text *t)
{
    put_list(t, "start", n->attr.slice.start, rank_in);
    put_list(t, "stop", n->attr.slice.stop, rank_in);
    put_unusual(t, "step", n->attr.slice.step, rank_in, 1);
}

static void print_axes(const sw__node *n, int rank_in, sw__text *t)
{
    int64_t axes[SW_MAX_RANK];
    int count = 0;
    for (int i = 0; i < rank_in; i++)
        if ((n->attr.axes.axes >> i & 1u) != 0) axes[count++] = i;
    put_list(t, "axes", axes, count);
}

static void print_act(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    put_act(t, n->attr.act.act);
}

static void print_conv(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    const int nd = n->attr.conv.nd;
    put_list(t, "stride", n->attr.conv.stride, nd);
    put_unusual(t, "pad_lo", n->attr.conv.pad_lo, nd, 0);
    put_unusual(t, "pad_hi", n->attr.conv.pad_hi, nd, 0);
    put_unusual(t, "dilation", n->attr.conv.dilation, nd, 1);
    put_unusual(t, "groups", &n->attr.conv.groups, 1, 1);
    put_act(t, n->attr.conv.act);
}

static void print_pool(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    const int nd = n->attr.pool.nd;
    put_list(t, "kernel", n->attr.pool.kernel, nd);
    put_list(t, "stride", n->attr.pool.stride, nd);
    put_unusual(t, "pad_lo", n->attr.pool.pad_lo, nd, 0);
    put_unusual(t, "pad_hi", n->attr.pool.pad_hi, nd, 0);
    if (n->attr.pool.include_pad) sw__text_add(t, " include_pad");
}

static void print_norm(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, " eps=%.9g", n->attr.norm.eps);
    if (n->attr.norm.n_axes > 0) sw__text_add(t, " n_axes=%d", (int)n->attr.norm.n_axes);
}

static void print_recurrent(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, " hidden=%lld", (long long)n->attr.recurrent.hidden);
    if (n->attr.recurrent.proj) sw__text_add(t, " proj=%lld", (long long)n->attr.recurrent.state);
    if (n->attr.recurrent.relu) sw__text_add(t, " relu");
    if (n->attr.recurrent.reverse) sw__text_add(t, " reverse");
    if (n->attr.recurrent.lengths) sw__text_add(t, " lengths");
}

static void print_attention(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, " scale=%.9g", n->attr.attention.scale);
    if (n->attr.attention.causal) sw__text_add(t, " causal");
}

static void print_custom(const sw__node *n, int rank_in, sw__text *t)
{
    (void)rank_in;
    sw__text_add(t, " op=%s", n->attr.custom.op->name);
}

/* rank_in: axes of the first input, which is how many entries the lists in PERM, PAD, SLICE and AXES have. */
static void (*const print_attr[])(const sw__node *n, int rank_in, sw__text *t) = {
    [SW_ATTR_NONE] = NULL,
    [SW_ATTR_CONST] = print_const,
    [SW_ATTR_LITERAL] = print_literal,
    [SW_ATTR_AXIS] = print_axis,
    [SW_ATTR_RANDOM] = print_random,
    [SW_ATTR_SLOT] = print_slot,
    [SW_ATTR_TIE] = print_tie,
    [SW_ATTR_PERM] = print_perm,
    [SW_ATTR_PAD] = print_pad,
    [SW_ATTR_SLICE] = print_slice,
    [SW_ATTR_AXES] = print_axes,
    [SW_ATTR_ACT] = print_act,
    [SW_ATTR_CONV] = print_conv,
    [SW_ATTR_POOL] = print_pool,
    [SW_ATTR_NORM] = print_norm,
    [SW_ATTR_RECURRENT] = print_recurrent,
    [SW_ATTR_ATTENTION] = print_attention,
    [SW_ATTR_CUSTOM] = print_custom,
};

static void put_attr(const sw_graph *g, const sw__node *n, sw__text *t)
{
    const uint8_t kind = sw__op_table[n->op].attr;
    if (print_attr[kind] != NULL) print_attr[kind](n, n->n_in > 0 ? g->nodes[n->in[0]].rank : 0, t);
}

/* The physical order of the axes, where the layout pass chose another than row-major. */
static void put_order(const sw__node *n, sw__text *t)
{
    int64_t order[SW_MAX_RANK];
    bool plain = true;
    for (int i = 0; i < n->rank; i++) {
        order[i] = n->order[i];
        plain = plain && n->order[i] == i;
    }
    if (!plain) put_list(t, "order", order, n->rank);
}

/* ---- text ----------------------------------------------------------------------------------------------------- */

/* A name between quotes, with what would break the line or the quotes escaped. */
static void put_quoted(sw__text *t, const char *s, char quote)
{
    sw__text_put(t, &quote, 1);
    for (; *s != '\0'; s++) {
        if (*s == '\n')
            sw__text_add(t, "\\n");
        else if ((unsigned char)*s < 0x20)
            sw__text_add(t, " ");
        else if (*s == quote || *s == '\\')
            sw__text_add(t, "\\%c", *s);
        else
            sw__text_put(t, s, 1);
    }
    sw__text_put(t, &quote, 1);
}

static void text_node(const sw_graph *g, uint32_t id, sw__text *t)
{
    const sw__node *const n = &g->nodes[id];
    char shape[SW__TEXT_BYTES];
    sw__text_add(t, "%%%u %s %s(", id, sw__shape_text(n, shape, sizeof shape), sw__op_table[n->op].name);
    for (uint32_t i = 0; i < n->n_in; i++) sw__text_add(t, "%s%%%u", i > 0 ? ", " : "", n->in[i]);
    sw__text_add(t, ")");
    put_attr(g, n, t);
    put_order(n, t);
    if (n->name != NULL) {
        sw__text_add(t, " ");
        put_quoted(t, n->name, '\'');
    }
    sw__text_add(t, "\n");
}

static void print_text(const sw_graph *g, sw__text *t)
{
    for (uint32_t id = 1; id < g->n_nodes; id++) text_node(g, id, t);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        sw__text_add(t, "output ");
        put_quoted(t, g->outputs[i].name, '\'');
        sw__text_add(t, " %%%u\n", g->outputs[i].node);
    }
}

/* ---- dot ------------------------------------------------------------------------------------------------------ */

static void dot_node(const sw_graph *g, uint32_t id, sw__text *t)
{
    const sw__node *const n = &g->nodes[id];
    const uint8_t cls = sw__op_table[n->op].cls;
    char shape[SW__TEXT_BYTES];
    sw__text label = { 0 };
    sw__text_add(&label, "%%%u %s", id, sw__op_table[n->op].name);
    if (n->name != NULL) sw__text_add(&label, " '%s'", n->name);
    sw__text_add(&label, "\n%s", sw__shape_text(n, shape, sizeof shape));
    sw__text attr = { 0 };
    put_attr(g, n, &attr);
    put_order(n, &attr);
    if (attr.len > 0) sw__text_add(&label, "\n%s", attr.s + 1); /* without the blank in front */
    t->failed = t->failed || label.failed || attr.failed;
    sw__text_add(t, "  n%u [label=", id);
    if (label.s != NULL) put_quoted(t, label.s, '"');
    sw__text_add(t, "%s];\n", cls == SW_CLASS_SOURCE ? ", style=rounded" : cls == SW_CLASS_BIG ? ", style=bold" : "");
    sw__text_free(&attr);
    sw__text_free(&label);
    for (uint32_t i = 0; i < n->n_in; i++) {
        sw__text_add(t, "  n%u -> n%u", n->in[i], id);
        if (n->n_in > 1) sw__text_add(t, " [headlabel=\"%u\"]", i);
        sw__text_add(t, ";\n");
    }
}

static void print_dot(const sw_graph *g, sw__text *t)
{
    sw__text_add(t, "digraph swoop {\n  node [shape=box, fontname=\"monospace\"];\n");
    for (uint32_t id = 1; id < g->n_nodes; id++) dot_node(g, id, t);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        sw__text_add(t, "  out%u [shape=ellipse, label=", i);
        put_quoted(t, g->outputs[i].name, '"');
        sw__text_add(t, "];\n  n%u -> out%u;\n", g->outputs[i].node, i);
    }
    sw__text_add(t, "}\n");
}

sw_status sw_graph_print(const sw_graph *g, sw_print_format format, char **out)
{
    static void (*const printers[])(const sw_graph *, sw__text *) = { print_text, print_dot };
    if (g == NULL || out == NULL) return sw__fail(SW_ERR_ARGUMENT, "sw_graph_print: the graph or out is NULL");
    if ((unsigned)format >= SW_COUNT(printers))
        return sw__fail(SW_ERR_ARGUMENT, "sw_graph_print: there is no format %d: use SW_PRINT_TEXT or SW_PRINT_DOT",
                        (int)format);
    sw__text t = { 0 };
    sw__text_put(&t, "", 0); /* an empty graph is an empty string */
    printers[format](g, &t);
    if (t.failed) {
        sw__text_free(&t);
        return sw__fail(SW_ERR_MEMORY, "out of memory: printing a graph of %u nodes", g->n_nodes - 1);
    }
    *out = t.s;
    return SW_OK;
}

void sw_string_free(char *s)
{
    sw__free(s);
}
