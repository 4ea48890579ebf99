/* generate.c: a model of sequences goes on from a prompt, token by token: the likeliest, or drawn by chance. The library side
 * of `swoop predict RUN --prompt`. Over infer.c. The whole window is computed anew for each token: a program has one shape. */
#include "io/json.h"
#include "train/infer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAW_STREAM 0x44524157 /* of the seed's random numbers */

typedef struct ranked { double weight; int64_t token; } ranked;

typedef struct generator {
    sw__infer model;
    const sw_generate_options *o;
    int64_t *tokens, n; /* the prompt, then what was made */
    size_t capacity;
    int64_t window, classes;
    float *logits;                /* [window, classes] */
    ranked *rank;                 /* [classes] */
    sw__rng rng;
} generator;

/* ---- the prompt as tokens ---------------------------------------------------------------------------------------- */

static sw_status add_token(generator *g, int64_t token)
{
    SW_TRY(sw__grow(&g->tokens, &g->capacity, (size_t)g->n + 1, sizeof *g->tokens, "tokens"));
    g->tokens[g->n++] = token;
    return SW_OK;
}

/* The character at s, of those that the model knows. */
static sw_status find_character(const generator *g, const char *s, size_t at, int64_t *token, size_t *length)
{
    const sw__model_about *const a = &g->model.about;
    for (int64_t c = 0; c < a->classes; c++) {
        const char *const name = a->class_names[c];
        const size_t n = name ? strlen(name) : 0;
        if (n == 0 || strncmp(s + at, name, n) != 0) continue;
        *token = c;
        *length = n;
        return SW_OK;
    }
    char shown[8];
    size_t n = 1;
    while (n < 4 && ((unsigned char)s[at + n] & 0xc0) == 0x80) n++;
    snprintf(shown, sizeof shown, "%.*s", (int)n, s + at);
    return sw__fail(SW_ERR_ARGUMENT, "prompt: the character '%s' at byte %zu is none of the %lld that the model has learnt",
                    shown, at, (long long)a->classes);
}

static sw_status read_characters(generator *g)
{
    const char *const s = g->o->prompt;
    const size_t n = strlen(s), good = sw__utf8_check(s, n);
    if (good != n) return sw__fail(SW_ERR_ARGUMENT, "prompt: byte %zu begins no UTF-8 character", good);
    for (size_t at = 0, length = 1; at < n; at += length) {
        int64_t token = 0;
        SW_TRY(find_character(g, s, at, &token, &length));
        SW_TRY(add_token(g, token));
    }
    return SW_OK;
}

static sw_status read_bytes(generator *g)
{
    for (const char *s = g->o->prompt; *s; s++) SW_TRY(add_token(g, (unsigned char)*s));
    return SW_OK;
}

static sw_status read_numbers(generator *g)
{
    const char *s = g->o->prompt;
    for (char *end; *(s += strspn(s, " ,\t\n")); s = end) {
        const long long token = *s >= '0' && *s <= '9' ? strtoll(s, &end, 10) : -1;
        if (token < 0 || token >= g->model.about.classes)
            return sw__fail(SW_ERR_ARGUMENT, "prompt: this model was trained on numbers, not on text: tokens from 0 to %lld with "
                            "spaces between, but here is '%.20s'", (long long)g->model.about.classes - 1, s);
        SW_TRY(add_token(g, token));
    }
    return SW_OK;
}

static sw_status read_prompt(generator *g)
{
    static sw_status (*const readers[])(generator *) = {
        [SW__CODING_NUMBERS] = read_numbers, [SW__CODING_CHARACTERS] = read_characters, [SW__CODING_BYTES] = read_bytes,
        [SW__CODING_LINES] = read_bytes};
    SW_TRY(readers[g->model.about.coding](g));
    if (g->n == 0) return sw__fail(SW_ERR_ARGUMENT, "prompt: it is empty, but the model goes on from something: one character will do");
    return SW_OK;
}

/* ---- one token ----------------------------------------------------------------------------------------------------- */

/* The last tokens that the window holds, from its beginning; what comes after them no causal model looks at. */
static sw_status get_window(void *context, int64_t index, void *x, void *y)
{
    const generator *const g = context;
    const int64_t n = SW_MIN(g->n, g->window);
    (void)index;
    (void)y;
    memset(x, 0, (size_t)g->window * sizeof(int64_t));
    memcpy(x, g->tokens + g->n - n, (size_t)n * sizeof(int64_t));
    return SW_OK;
}

static int by_weight(const void *a, const void *b)
{
    const ranked *const x = a, *const y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Softmax of logits / temperature over the likeliest `top`, then one of them by chance; without a temperature the first. */
static int64_t draw(generator *g, const float *logits)
{
    for (int64_t i = 0; i < g->classes; i++) g->rank[i] = (ranked){(double)logits[i], i};
    qsort(g->rank, (size_t)g->classes, sizeof *g->rank, by_weight);
    if (g->o->temperature == 0) return g->rank[0].token;
    const int64_t top = g->o->top > 0 ? SW_MIN(g->o->top, g->classes) : g->classes;
    const double most = g->rank[0].weight;
    double sum = 0;
    for (int64_t i = 0; i < top; i++) sum += g->rank[i].weight = exp((g->rank[i].weight - most) / g->o->temperature);
    double left = sw__rng_uniform(&g->rng) * sum;
    for (int64_t i = 0; i < top; i++)
        if ((left -= g->rank[i].weight) < 0) return g->rank[i].token;
    return g->rank[0].token; /* rounding */
}

static sw_status next_token(generator *g, int64_t *token)
{
    const int64_t zero = 0, at = SW_MIN(g->n, g->window) - 1;
    SW_TRY(sw_trainer_predict(g->model.trainer, g->model.data, &zero, 1, g->logits));
    const float *const row = g->logits + at * g->classes;
    for (int64_t i = 0; i < g->classes; i++)
        if (!isfinite(row[i])) return sw__fail(SW_ERR_DIVERGED, "%s: the model's outputs are not finite", g->model.file);
    *token = draw(g, row);
    return add_token(g, *token);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static sw_status check_options(const sw_generate_options *o)
{
    if (!o || !o->prompt) return sw__fail(SW_ERR_ARGUMENT, "sw_run_generate: options or prompt is NULL");
    if (o->length < 0) return sw__fail(SW_ERR_ARGUMENT, "length is %lld, and must be 0 or more", (long long)o->length);
    if (o->top < 0) return sw__fail(SW_ERR_ARGUMENT, "top is %lld, and must be 0 (all) or more", (long long)o->top);
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return sw__fail(SW_ERR_ARGUMENT, "temperature is %g, and must be 0 (the likeliest) or more", o->temperature);
    return SW_OK;
}

static sw_status check_model(const sw__model_about *a, const char *file)
{
    const bool next = a->tokens && a->target == SW_TARGET_CLASS && a->x_rank == 1 && a->y_rank != 0;
    if (next) return SW_OK;
    return sw__fail(SW_ERR_ARGUMENT, "%s: model %s does not say what comes next: text is written by gpt, lstm and gru that were "
                    "trained on text", file, sw__model_text(a->model));
}

static sw_status prepare(generator *g)
{
    sw__infer *const m = &g->model;
    g->window = m->about.x_shape[0];
    g->classes = m->about.outputs;
    const sw_dataset_callback c = {.name = "the prompt", .count = 1, .tokens = true, .x_rank = 1, .x_shape = {g->window},
                                   .target = SW_TARGET_NONE, .get = get_window, .context = g};
    SW_TRY(sw_dataset_from_callback(&c, &m->data));
    SW_TRY(sw__infer_start(m, g->o->device, g->o->threads));
    SW_TRY(sw__trainer_prepare(m->trainer, m->data, SW__PREDICT));
    if (sw_trainer_output_size(m->trainer) != g->window * g->classes)
        return sw__fail(SW_ERR_SHAPE, "%s: the model gives no logits for each of its %lld positions", m->file,
                        (long long)g->window);
    SW_TRY(sw_trainer_load(m->trainer, m->file, NULL));
    g->logits = sw__malloc((size_t)(g->window * g->classes) * sizeof *g->logits);
    g->rank = sw__malloc((size_t)g->classes * sizeof *g->rank);
    if (!g->logits || !g->rank) return sw__no_memory((size_t)(g->window * g->classes) * sizeof *g->logits, "logits");
    sw__rng_init(&g->rng, g->o->seed, DRAW_STREAM);
    return SW_OK;
}

/* A token as it is written. */
static sw_status tell(const generator *g, int64_t token, sw_token_fn each, void *context)
{
    const sw__model_about *const a = &g->model.about;
    char text[32] = {0};
    size_t n = 1;
    if (a->coding == SW__CODING_BYTES) {
        text[0] = (char)(unsigned char)token;
    } else if (a->coding == SW__CODING_NUMBERS) {
        n = (size_t)snprintf(text, sizeof text, "%lld", (long long)token);
    } else {
        const char *const name = token < a->classes && a->class_names[token] ? a->class_names[token] : "";
        snprintf(text, sizeof text, "%s", name);
        n = SW_MAX(strlen(text), (size_t)1); /* U+0000 has the name "" */
    }
    return each(context, &(sw_token){.token = token, .text = text, .n = n, .number = a->coding == SW__CODING_NUMBERS});
}

sw_status sw_run_generate(const char *path, const sw_generate_options *o, sw_token_fn each, void *context)
{
    SW_TRY(check_options(o));
    if (!each) return sw__fail(SW_ERR_ARGUMENT, "sw_run_generate: each is NULL");
    generator g = {.o = o};
    sw_status st = sw__infer_find(&g.model, path);
    if (st == SW_OK) st = check_model(&g.model.about, g.model.file);
    if (st == SW_OK) st = read_prompt(&g);
    if (st == SW_OK) st = prepare(&g);
    for (int64_t i = 0; i < o->length && st == SW_OK; i++) {
        int64_t token = 0;
        st = next_token(&g, &token);
        if (st == SW_OK) st = tell(&g, token, each, context);
    }
    sw__infer_close(&g.model);
    sw__free(g.tokens);
    sw__free(g.logits);
    sw__free(g.rank);
    return st;
}
