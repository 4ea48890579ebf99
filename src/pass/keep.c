/* keep.c: schedule -> schedule: what a program computes from variables and constants alone comes first, and its results stay
 * where they are, so that runs begin behind it until a variable is written (exec/program.c). After the schedule is
 * built and before the backend plans it; then, of inputs that an op wants packed, the steps that pack them. */
#include "pass/sched.h"

/* ---- what stays the same ----------------------------------------------------------------------------------------- */

/* Of one step: true if something was learnt. A storage of which one part varies varies as a whole. */
static bool look_at(const sw__step *s, bool *fixed, bool *varies)
{
    bool v = false, news = false;
    for (int k = 0; k < s->n_in + s->n_out; k++) v |= varies[s->refs[k].storage];
    if (!v) return false;
    for (int k = s->n_in; k < s->n_in + s->n_out; k++) {
        news |= !varies[s->refs[k].storage];
        varies[s->refs[k].storage] = true;
    }
    news |= *fixed;
    *fixed = false;
    return news;
}

static sw_status sort_fixed(sw__schedule *s, const bool *fixed)
{
    sw__step *sorted = sw__malloc(((size_t)s->n_steps + 1) * sizeof *sorted);
    if (!sorted) return sw__no_memory(((size_t)s->n_steps + 1) * sizeof *sorted, "steps");
    uint32_t n = 0;
    for (int first = 1; first >= 0; first--) {
        for (uint32_t i = 0; i < s->n_steps; i++)
            if (fixed[i] == (first == 1)) sorted[n++] = s->steps[i];
        if (first) s->n_once = n;
    }
    if (n) memcpy(s->steps, sorted, n * sizeof *sorted);
    sw__free(sorted);
    return SW_OK;
}

/* What the first steps write and others read, or the user. */
static void keep_results(sw__schedule *s)
{
    for (uint32_t i = 0; i < s->n_once; i++) {
        const sw__step *first = &s->steps[i];
        for (int k = first->n_in; k < first->n_in + first->n_out; k++) {
            const int32_t storage = first->refs[k].storage;
            bool wanted = false;
            for (uint32_t j = s->n_once; j < s->n_steps && !wanted; j++)
                for (int r = 0; r < s->steps[j].n_in; r++) wanted |= s->steps[j].refs[r].storage == storage;
            for (uint32_t j = 0; j < s->n_outputs; j++) wanted |= s->outputs[j].storage == storage;
            if (wanted && s->storages[storage].kind == SW_STORE_ARENA) s->storages[storage].kind = SW_STORE_KEPT;
        }
    }
}

sw_status sw__schedule_keep(sw__schedule *s)
{
    bool *fixed = sw__malloc((size_t)s->n_steps + 1), *varies = sw__calloc((size_t)s->n_storages + 1, sizeof *varies);
    sw_status st = fixed && varies ? SW_OK : sw__no_memory((size_t)s->n_steps + s->n_storages, "what varies");
    if (st == SW_OK) {
        memset(fixed, true, s->n_steps);
        for (uint32_t i = 0; i < s->n_storages; i++) varies[i] = s->storages[i].kind == SW_STORE_INPUT;
        for (bool news = true; news;) {
            news = false;
            for (uint32_t i = 0; i < s->n_steps; i++) news |= look_at(&s->steps[i], &fixed[i], varies);
        }
        st = sort_fixed(s, fixed);
    }
    if (st == SW_OK) keep_results(s);
    s->keeps = st == SW_OK;
    sw__free(fixed);
    sw__free(varies);
    return st;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

bool sw__schedule_fixed(const sw__schedule *s, uint32_t step, int input)
{
    if (!s->keeps || step < s->n_once) return false;
    const sw__storage_kind kind = (sw__storage_kind)s->storages[s->steps[step].refs[input].storage].kind;
    return kind == SW_STORE_VAR || kind == SW_STORE_GROUP || kind == SW_STORE_CONST || kind == SW_STORE_KEPT;
}

/* Behind the last of the first steps that writes what is packed, so that this one's memory is free at once: what is only
 * packed, and read by nobody else, goes back to the arena. */
static uint32_t place_of(sw__schedule *s, int32_t storage)
{
    bool others = false;
    uint32_t at = s->n_once;
    for (uint32_t i = 0; i < s->n_outputs; i++) others |= s->outputs[i].storage == storage;
    for (uint32_t i = s->n_once; i < s->n_steps; i++)
        for (int k = 0; k < s->steps[i].n_in; k++) others |= s->steps[i].refs[k].storage == storage;
    if (!others && s->storages[storage].kind == SW_STORE_KEPT) s->storages[storage].kind = SW_STORE_ARENA;
    for (uint32_t i = 0; i < s->n_once; i++)
        for (int k = s->steps[i].n_in; k < s->steps[i].n_in + s->steps[i].n_out; k++)
            if (s->steps[i].refs[k].storage == storage) at = i + 1;
    return at;
}

sw_status sw__schedule_pack(sw__schedule *s, uint32_t step, int input, size_t bytes, const sw__traits *t, uint32_t *at)
{
    const size_t align = SW_MAX(t->alignment, (size_t)1);
    SW_TRY(sw__grow(&s->storages, &s->cap_storages, s->n_storages + 1u, sizeof *s->storages, "storages"));
    SW_TRY(sw__grow(&s->steps, &s->cap_steps, s->n_steps + 1u, sizeof *s->steps, "steps"));
    sw__step pack = {.kind = SW_STEP_PACK, .op = s->steps[step].op, .name = s->steps[step].name, .n_in = 1, .n_out = 1,
                     .workspace = -1, .bytes = 2 * (double)bytes};
    pack.refs = sw__arena_alloc(&s->arena, 2 * sizeof *pack.refs);
    if (!pack.refs) return sw__no_memory(2 * sizeof *pack.refs, "a step");
    const int32_t to = (int32_t)s->n_storages++;
    s->storages[to] = (sw__storage){.kind = SW_STORE_KEPT, .dtype = SW_U8, .stored = SW_U8, .elements = (int64_t)bytes,
                                    .bytes = (bytes + align - 1) / align * align, .first = -1, .last = -1, .reuse = -1};
    const int64_t dim = (int64_t)bytes;
    pack.refs[0] = s->steps[step].refs[input];
    sw__dense_ref(&pack.refs[1], to, 0, SW_U8, 1, &dim, NULL);
    s->steps[step].refs[input].storage = to;
    s->steps[step].refs[input].offset = 0;
    *at = place_of(s, pack.refs[0].storage);
    memmove(&s->steps[*at + 1], &s->steps[*at], (s->n_steps - *at) * sizeof *s->steps);
    s->steps[*at] = pack;
    s->n_steps++;
    s->n_once++;
    return SW_OK;
}
