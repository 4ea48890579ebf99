/* ops_source.c: public builders of values that come from nowhere: constants, literals, counting, random numbers.
 * Between swoop/graph.h and sw__node_add. Inputs and variables are in graph.c. */
#include "graph/build.h"

/* A node that only says a type and a shape; false and the error recorded if they are not legal. */
static bool shape_node(sw_graph *g, sw__op op, sw_dtype type, int rank, const int64_t *shape, sw__node *n)
{
    if (g == NULL || g->status != SW_OK) return false;
    if (sw_dtype_size(type) == 0 || rank < 0 || rank > SW_MAX_RANK || (rank > 0 && shape == NULL)) {
        sw__op_error(g, op, SW_ERR_ARGUMENT, "type %d, rank %d, shape %s: the type must be a SW_F32 and the like, "
                     "the rank 0 to %d, and a rank above 0 needs a shape", (int)type, rank,
                     shape == NULL ? "NULL" : "given", SW_MAX_RANK);
        return false;
    }
    *n = (sw__node){ .dtype = (uint8_t)type, .rank = (uint8_t)rank };
    for (int i = 0; i < rank; i++) n->dim[i] = shape[i];
    return true;
}

/* Both views of the value: for integers and bool what a cast gives, for floats the double as it is. It is not rounded
 * to the type: a backend that computes in double (ref) has the full constant. */
static sw__attr const_attr(sw_dtype type, double value)
{
    sw__attr attr;
    memset(&attr, 0, sizeof attr);
    uint64_t element = 0; /* large and aligned enough for every type */
    const bool is_float = sw__dtype_is_float(type);
    sw__convert(&element, is_float ? SW_I64 : type, &value, SW_F64, 1);
    sw__convert(&attr.constant.ivalue, SW_I64, &element, is_float ? SW_I64 : type, 1);
    attr.constant.value = is_float ? value : (double)attr.constant.ivalue;
    return attr;
}

sw_t sw_full(sw_graph *g, sw_dtype type, int rank, const int64_t *shape, double value)
{
    sw__node n;
    if (!shape_node(g, SW_OP_CONST, type, rank, shape, &n)) return (sw_t){ g, 0 };
    const sw__attr attr = const_attr(type, value);
    return sw__node_add(g, SW_OP_CONST, NULL, 0, &attr, &n);
}

sw_t sw_const(sw_graph *g, sw_dtype type, double value)
{
    return sw_full(g, type, 0, NULL, value);
}

sw_t sw_literal(sw_graph *g, sw_dtype type, int rank, const int64_t *shape, const void *data)
{
    sw__node n;
    if (!shape_node(g, SW_OP_LITERAL, type, rank, shape, &n)) return (sw_t){ g, 0 };
    const int64_t elements = sw__dims_product(n.dim, rank);
    size_t bytes;
    if (elements < 0 || !sw__mul_size((size_t)elements, sw_dtype_size(type), &bytes))
        return sw__op_error(g, SW_OP_LITERAL, SW_ERR_SHAPE, "a negative axis, or more bytes than there can be");
    if (bytes > 0 && data == NULL) return sw__op_error(g, SW_OP_LITERAL, SW_ERR_ARGUMENT, "the data is NULL");
    void *const copy = sw__arena_alloc(&g->arena, bytes);
    if (copy == NULL) return sw__graph_error(g, SW_ERR_MEMORY, "out of memory: %zu bytes for a literal", bytes);
    if (bytes > 0) memcpy(copy, data, bytes);
    const sw__attr attr = { .literal = { copy, bytes } };
    return sw__node_add(g, SW_OP_LITERAL, NULL, 0, &attr, &n);
}

sw_t sw_iota(sw_graph *g, sw_dtype type, int rank, const int64_t *shape, int axis)
{
    sw__node n;
    if (!shape_node(g, SW_OP_IOTA, type, rank, shape, &n)) return (sw_t){ g, 0 };
    const sw__attr attr = { .axis = { axis < 0 ? axis + rank : axis, false, 0 } };
    return sw__node_add(g, SW_OP_IOTA, NULL, 0, &attr, &n);
}

sw_t sw_random_bits(sw_graph *g, sw_t counter, uint32_t stream, int rank, const int64_t *shape)
{
    sw__node n;
    if (!shape_node(g, SW_OP_RANDOM, SW_U32, rank, shape, &n)) return (sw_t){ g, 0 };
    /* Philox's key has two words: the stream, and both halves of the seed in one. */
    const sw__attr attr = { .random = { (uint32_t)(g->seed ^ g->seed >> 32), stream } };
    const bool counted = counter.graph != NULL;
    return sw__node_add(g, SW_OP_RANDOM, counted ? &counter : NULL, counted ? 1 : 0, &attr, &n);
}

/* The upper 24 bits as a fraction: every value is exact in f32, and 1 is never reached. */
sw_t sw_rand(sw_graph *g, sw_t counter, uint32_t stream, int rank, const int64_t *shape)
{
    const sw_t bits = sw_random_bits(g, counter, stream, rank, shape);
    if (!sw_valid(bits)) return bits;
    return sw_mul_scalar(sw_cast(sw_shr(bits, sw__const_like(bits, 8)), SW_F32), 0x1p-24);
}
