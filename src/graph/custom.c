/* custom.c: a user's ops: the list of those that are registered, how they enter a graph, their shapes and gradients.
 * Beside the builders (ops_*.c) and rules; swoop/kernel.h is the user's side of it. */
#include "graph/custom.h"

#include "graph/grad.h"
#include "graph/infer.h"

#include <pthread.h>

/* ---- what is registered ------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sw__custom **list; /* list[id - 1]; NULL where one was removed */
static size_t n_list, cap_list;

static void free_source(sw_kernel_source *s)
{
    const char *const texts[] = { s->name, s->portable, s->opencl, s->cuda };
    for (size_t i = 0; i < SW_COUNT(texts); i++) {
        union { const char *in; void *out; } p = { .in = texts[i] }; /* ours, const for everybody else */
        sw__free(p.out);
    }
}

static void free_custom(sw__custom *c)
{
    if (c == NULL) return;
    free_source(&c->forward.source);
    free_source(&c->backward.source);
    sw__free(c->name);
    sw__free(c);
}

/* False if memory is out. */
static bool copy_source(sw_kernel_source *to, const sw_kernel_source *from, const char *op, const char *suffix)
{
    to->name = from->name != NULL ? sw__strdup(from->name) : sw__asprintf("%s%s", op, suffix);
    to->portable = sw__strdup(from->portable);
    to->opencl = sw__strdup(from->opencl);
    to->cuda = sw__strdup(from->cuda);
    to->host = from->host;
    return to->name != NULL && (from->portable == NULL || to->portable != NULL) &&
           (from->opencl == NULL || to->opencl != NULL) && (from->cuda == NULL || to->cuda != NULL);
}

static bool has_source(const sw_kernel_source *s)
{
    return s->portable != NULL || s->opencl != NULL || s->cuda != NULL || s->host != NULL;
}

static sw_status make_custom(const sw_op_def *def, sw__custom **out)
{
    sw__custom *const c = sw__calloc(1, sizeof *c);
    if (c == NULL) return sw__no_memory(sizeof *c, "an op");
    c->name = sw__strdup(def->name);
    if (c->name == NULL || !copy_source(&c->forward.source, &def->forward, def->name, "") ||
        !copy_source(&c->backward.source, &def->backward, def->name, "_grad")) {
        free_custom(c);
        return sw__no_memory(strlen(def->name), "an op's texts");
    }
    c->n_in = def->n_in;
    c->n_out = def->n_out;
    c->n_saved = def->n_saved;
    memcpy(c->in_type, def->in_type, sizeof c->in_type);
    memcpy(c->out_type, def->out_type, sizeof c->out_type);
    c->shape = def->shape;
    c->forward.grid = def->forward_grid;
    c->backward.grid = def->backward_grid;
    c->forward.local = def->forward_local;
    c->backward.local = def->backward_local;
    c->differentiable = has_source(&def->backward);
    for (int i = 0; i < def->n_in; i++)
        if (def->in_type[i] == SW_F32 && (def->fixed >> i & 1u) == 0) c->dx[c->n_dx++] = (uint8_t)i;
    c->has_check = def->check != NULL;
    if (def->check != NULL) memcpy(c->check, def->check, (size_t)def->n_in * sizeof *def->check);
    *out = c;
    return SW_OK;
}

/* ---- what can be registered -------------------------------------------------------------------------------------- */

static bool is_identifier(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return *s != '\0' && !(*s >= '0' && *s <= '9') && s[strspn(s, letters)] == '\0';
}

static sw_status check_type(const sw_op_def *def, const char *what, int i, sw_dtype t)
{
    if (t == SW_F32 || t == SW_I32 || t == SW_I64 || t == SW_U8 || t == SW_BOOL || t == SW_U32) return SW_OK;
    return sw__fail(SW_ERR_UNSUPPORTED, "op '%s': %s[%d] is %s: tensors of own ops are f32, i32, i64, u8, bool or u32",
                    def->name, what, i, sw_dtype_name(t));
}

static sw_status check_counts(const sw_op_def *def)
{
    if (def->n_in < 1 || def->n_in > SW_OP_MAX_IN)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': n_in is %d: there can be 1 to %d inputs", def->name, def->n_in,
                        SW_OP_MAX_IN);
    if (def->n_out < 1 || def->n_saved < 0 || def->n_saved > SW_OP_MAX_OUT || def->n_out > SW_OP_MAX_OUT - def->n_saved)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': n_out is %d and n_saved %d: there can be 1 to %d outputs, saved "
                        "tensors counted with them", def->name, def->n_out, def->n_saved, SW_OP_MAX_OUT);
    for (int i = 0; i < def->n_in; i++) SW_TRY(check_type(def, "in_type", i, def->in_type[i]));
    for (int i = 0; i < def->n_out + def->n_saved; i++) SW_TRY(check_type(def, "out_type", i, def->out_type[i]));
    return SW_OK;
}

static sw_status check_gradient_def(const sw_op_def *def)
{
    bool any = false;
    if (!has_source(&def->backward)) {
        if (def->n_saved == 0) return SW_OK;
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': saves %d tensors for a backward that it has not", def->name,
                        def->n_saved);
    }
    if (def->out_type[0] != SW_F32)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': has a backward but output 0 is %s: it must be f32", def->name,
                        sw_dtype_name(def->out_type[0]));
    for (int i = 0; i < def->n_in; i++) any = any || (def->in_type[i] == SW_F32 && (def->fixed >> i & 1u) == 0);
    if (any) return SW_OK;
    return sw__fail(SW_ERR_ARGUMENT, "op '%s': has a backward but no f32 input that is not fixed", def->name);
}

static sw_status check_def(const sw_op_def *def)
{
    if (def->name == NULL || !is_identifier(def->name))
        return sw__fail(SW_ERR_ARGUMENT, "an op's name is letters, digits and _, without a digit in front, not '%s'",
                        def->name != NULL ? def->name : "(NULL)");
    SW_TRY(check_counts(def));
    if (def->shape == NULL)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': shape is NULL: give the rule of its results' shapes "
                        "(sw_same_shape, if they are like the inputs)", def->name);
    if (!has_source(&def->forward))
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': forward is empty: fill forward.portable (GPUs) and forward.host "
                        "(cpu)", def->name);
    if (def->forward_local > 1024 || def->backward_local > 1024)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s': a group has at most 1,024 work-items", def->name);
    return check_gradient_def(def);
}

/* With the lock held. */
static sw_op_id find(const char *name)
{
    for (size_t i = 0; i < n_list; i++)
        if (list[i] != NULL && strcmp(list[i]->name, name) == 0) return (sw_op_id)i + 1;
    return 0;
}

static sw_status enter(sw__custom *c, sw_op_id *out)
{
    if (find(c->name) != 0)
        return sw__fail(SW_ERR_ARGUMENT, "op '%s' is registered already: sw_op_find gives it", c->name);
    if (n_list >= INT32_MAX - 1) return sw__fail(SW_ERR_ARGUMENT, "no more ops can be registered");
    SW_TRY(sw__grow(&list, &cap_list, n_list + 1, sizeof(sw__custom *), "the list of ops"));
    list[n_list++] = c;
    *out = (sw_op_id)n_list;
    return SW_OK;
}

sw_status sw__custom_add(const sw_op_def *def, sw_op_id *out)
{
    sw__custom *c = NULL;
    SW_TRY(check_def(def));
    SW_TRY(make_custom(def, &c));
    pthread_mutex_lock(&lock);
    const sw_status st = enter(c, out);
    pthread_mutex_unlock(&lock);
    if (st != SW_OK) free_custom(c);
    return st;
}

void sw__custom_remove(sw_op_id id)
{
    pthread_mutex_lock(&lock);
    sw__custom *const c = list[id - 1];
    list[id - 1] = NULL;
    pthread_mutex_unlock(&lock);
    free_custom(c);
}

const sw__custom *sw__custom_of(sw_op_id id)
{
    pthread_mutex_lock(&lock);
    const sw__custom *const c = id >= 1 && (size_t)id <= n_list ? list[id - 1] : NULL;
    pthread_mutex_unlock(&lock);
    return c;
}

sw_op_id sw_op_find(const char *name)
{
    if (name == NULL) return 0;
    pthread_mutex_lock(&lock);
    const sw_op_id id = find(name);
    pthread_mutex_unlock(&lock);
    return id;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

const char *sw_same_shape(const sw_shape *in, int n_in, sw_shape *out, int n_out)
{
    for (int i = 1; i < n_in; i++)
        if (in[i].rank != in[0].rank || memcmp(in[i].dim, in[0].dim, (size_t)in[0].rank * sizeof in[0].dim[0]) != 0)
            return "all inputs must have one shape";
    for (int k = 0; k < n_out; k++) {
        out[k].rank = in[0].rank;
        memcpy(out[k].dim, in[0].dim, sizeof out[k].dim);
    }
    return NULL;
}

static void to_shape(const sw__node *n, sw_shape *s)
{
    s->type = (sw_dtype)n->dtype;
    s->rank = n->rank;
    memcpy(s->dim, n->dim, sizeof s->dim);
}

static sw_status refused(const sw_graph *g, const sw__node *n, const char *why)
{
    sw__text shapes = { 0 };
    char one[SW__TEXT_BYTES];
    for (uint32_t i = 0; i < n->n_in; i++)
        sw__text_add(&shapes, "%s%s", i > 0 ? ", " : "", sw__shape_text(sw__in(g, n, i), one, sizeof one));
    const sw_status st = sw__fail(SW_ERR_SHAPE, "'%s': %s (the inputs are %s)", n->attr.custom.op->name, why,
                                  shapes.s != NULL ? shapes.s : "?");
    sw__text_free(&shapes);
    return st;
}

/* Asks the user's rule for the shapes of all results. */
static sw_status result_shapes(const sw_graph *g, const sw__node *n, sw_shape *out)
{
    const sw__custom *const c = n->attr.custom.op;
    sw_shape in[SW_OP_MAX_IN];
    memset(in, 0, sizeof in);
    memset(out, 0, SW_OP_MAX_OUT * sizeof *out);
    for (int i = 0; i < c->n_in; i++) to_shape(sw__in(g, n, (uint32_t)i), &in[i]);
    for (int k = 0; k < c->n_out + c->n_saved; k++) out[k].type = c->out_type[k];
    const char *const why = c->shape(in, c->n_in, out, c->n_out + c->n_saved);
    if (why != NULL) return refused(g, n, why);
    for (int k = 0; k < c->n_out + c->n_saved; k++) {
        if (out[k].rank < 0 || out[k].rank > SW_MAX_RANK || sw__dims_product(out[k].dim, out[k].rank) < 0)
            return refused(g, n, "the shape rule gave a result a rank outside 0 to 8 or a negative axis");
    }
    return SW_OK;
}

static void take_shape(sw__node *n, sw_dtype t, const sw_shape *s)
{
    n->dtype = (uint8_t)t;
    n->rank = (uint8_t)s->rank;
    memset(n->dim, 0, sizeof n->dim);
    memcpy(n->dim, s->dim, (size_t)s->rank * sizeof s->dim[0]);
}

static sw_status want_inputs(const sw_graph *g, const sw__node *n)
{
    const sw__custom *const c = n->attr.custom.op;
    if (n->n_in != (uint32_t)c->n_in)
        return sw__fail(SW_ERR_ARGUMENT, "'%s' takes %d inputs, not %u", c->name, c->n_in, n->n_in);
    for (int i = 0; i < c->n_in; i++) {
        char x[SW__TEXT_BYTES];
        if (sw__in(g, n, (uint32_t)i)->dtype == (uint8_t)c->in_type[i]) continue;
        return sw__fail(SW_ERR_SHAPE, "'%s': operand %d, %s, must be %s (sw_cast)", c->name, i + 1,
                        sw__value_text(g, n->in[i], x), sw_dtype_name(c->in_type[i]));
    }
    return SW_OK;
}

sw_status sw__infer_custom(const sw_graph *g, sw__node *n)
{
    sw_shape out[SW_OP_MAX_OUT];
    SW_TRY(want_inputs(g, n));
    SW_TRY(result_shapes(g, n, out));
    take_shape(n, n->attr.custom.op->out_type[0], &out[0]);
    return SW_OK;
}

/* The gradient op is made by the rule below only: its operands are right. Output k is like the k-th differentiable
 * input, and the inputs come first among its operands. */
sw_status sw__infer_custom_grad(const sw_graph *g, sw__node *n)
{
    sw__take(n, sw__in(g, n, n->attr.custom.op->dx[0]));
    return SW_OK;
}

int sw__custom_outputs(const sw__node *n)
{
    const sw__custom *const c = n->attr.custom.op;
    return n->op == SW_OP_CUSTOM ? c->n_out + c->n_saved : c->n_dx;
}

sw_status sw__custom_output(const sw_graph *g, const sw__node *from, int k, sw__node *n)
{
    const sw__custom *const c = from->attr.custom.op;
    if (from->op == SW_OP_CUSTOM_GRAD) {
        sw__take(n, sw__in(g, from, c->dx[k]));
        return SW_OK;
    }
    sw_shape out[SW_OP_MAX_OUT];
    SW_TRY(result_shapes(g, from, out));
    take_shape(n, c->out_type[k], &out[k]);
    return SW_OK;
}

/* ---- in a graph -------------------------------------------------------------------------------------------------- */

sw_t sw_op_apply(sw_op_id op, const sw_t *in, int n)
{
    sw_graph *g = NULL;
    for (int i = 0; in != NULL && i < n && g == NULL; i++) g = in[i].graph;
    if (g == NULL) {
        sw__fail(SW_ERR_ARGUMENT, "sw_op_apply: no input is a value of a graph");
        return SW_NONE;
    }
    const sw__custom *const c = sw__custom_of(op);
    if (c == NULL) return sw__op_error(g, SW_OP_CUSTOM, SW_ERR_ARGUMENT, "there is no op with id %d", (int)op);
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    attr.custom.op = c;
    return sw_named(sw__node_add(g, SW_OP_CUSTOM, in, (uint32_t)n, &attr, NULL), c->name);
}

sw_t sw_op_output(sw_t applied, int k)
{
    if (!sw_valid(applied)) return applied;
    const sw__node *const n = sw__node_of(applied);
    const bool right = n->op == SW_OP_CUSTOM && k >= 0 && k < n->attr.custom.op->n_out;
    if (right) return sw__output_of(applied, k);
    char x[SW__TEXT_BYTES];
    return sw__graph_error(applied.graph, SW_ERR_ARGUMENT, "sw_op_output: %s has no output %d",
                           sw__value_text(applied.graph, applied.id, x), k);
}

/* ---- gradient ---------------------------------------------------------------------------------------------------- */

/* Operands of the gradient: inputs, results, and what arrived at each f32 output, zeros where nothing did. */
static uint32_t grad_operands(sw_graph *g, uint32_t id, const sw_t *dy, sw_t *in)
{
    const sw__custom *const c = g->nodes[id].attr.custom.op;
    uint32_t n = 0;
    for (int i = 0; i < c->n_in; i++) in[n++] = sw__arg(g, id, (uint32_t)i);
    for (int k = 0; k < c->n_out + c->n_saved; k++) in[n++] = sw__output_of(sw__value(g, id), k);
    for (int k = 0; k < c->n_out; k++) {
        if (c->out_type[k] != SW_F32) continue;
        in[n++] = sw_valid(dy[k]) ? dy[k] : sw__const_like(in[c->n_in + k], 0.0);
    }
    return n;
}

RULE(sw__grad_custom)
{
    const sw__attr attr = g->nodes[id].attr;
    const sw__custom *const c = attr.custom.op;
    sw_t in[SW_OP_MAX_IN + 2 * SW_OP_MAX_OUT] = { SW_NONE };
    if (!c->differentiable) {
        sw__graph_error(g, SW_ERR_UNSUPPORTED, "sw_grad: op '%s' (%%%u) has no gradient: give it a backward when it is "
                        "registered, or stop the gradient with sw_stop_gradient", c->name, id);
        return;
    }
    const uint32_t n = grad_operands(g, id, dy, in);
    const sw_t d = sw__node_add(g, SW_OP_CUSTOM_GRAD, in, n, &attr, NULL);
    const char *const own = g->nodes[id].name != NULL ? g->nodes[id].name : c->name;
    const char *const name = sw__arena_printf(&g->arena, "%s.grad", own);
    if (name == NULL) {
        sw__graph_error(g, SW_ERR_MEMORY, "out of memory for the names of gradients");
        return;
    }
    if (sw_valid(d)) sw__node_of(d)->name = name; /* the scope is in it already */
    for (int k = 0; k < c->n_dx; k++)
        if (want[c->dx[k]]) dx[c->dx[k]] = sw__output_of(d, k);
}

RULE(sw__grad_custom_grad)
{
    sw__graph_error(g, SW_ERR_UNSUPPORTED, "sw_grad: the gradient of op '%s' (%%%u) has no gradient itself: own ops "
                    "are differentiated once", g->nodes[id].attr.custom.op->name, id);
}
