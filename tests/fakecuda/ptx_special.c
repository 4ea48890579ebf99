/* ptx_special.c: special registers (%tid.x, …): registers like others, set for each group when a block starts; the
 * clocks are read when they are named. */
#include "ptx_inner.h"

#include <string.h>

enum {
    TID = 0,
    NTID = 3,
    CTAID = 6,
    NCTAID = 9,
    LANEID = 12,
    WARPID,
    NWARPID,
    SMID,
    NSMID,
    GRIDID,
    MASK_EQ,
    MASK_LE,
    MASK_LT,
    MASK_GE,
    MASK_GT,
    DYNAMIC,
    TOTAL,
    CLOCK,
    CLOCK64,
    TIMER,
    TIMER_LOW
};
static const struct { const char *name; int number, bytes;
} specials[] = { { "%tid.x", TID, 4 },
                 { "%tid.y", TID + 1, 4 },
                 { "%tid.z", TID + 2, 4 },
                 { "%ntid.x", NTID, 4 },
                 { "%ntid.y", NTID + 1, 4 },
                 { "%ntid.z", NTID + 2, 4 },
                 { "%ctaid.x", CTAID, 4 },
                 { "%ctaid.y", CTAID + 1, 4 },
                 { "%ctaid.z", CTAID + 2, 4 },
                 { "%nctaid.x", NCTAID, 4 },
                 { "%nctaid.y", NCTAID + 1, 4 },
                 { "%nctaid.z", NCTAID + 2, 4 },
                 { "%laneid", LANEID, 4 },
                 { "%warpid", WARPID, 4 },
                 { "%nwarpid", NWARPID, 4 },
                 { "%smid", SMID, 4 },
                 { "%nsmid", NSMID, 4 },
                 { "%gridid", GRIDID, 8 },
                 { "%lanemask_eq", MASK_EQ, 4 },
                 { "%lanemask_le", MASK_LE, 4 },
                 { "%lanemask_lt", MASK_LT, 4 },
                 { "%lanemask_ge", MASK_GE, 4 },
                 { "%lanemask_gt", MASK_GT, 4 },
                 { "%dynamic_smem_size", DYNAMIC, 4 },
                 { "%total_smem_size", TOTAL, 4 },
                 { "%clock", CLOCK, 4 },
                 { "%clock64", CLOCK64, 8 },
                 { "%globaltimer", TIMER, 8 },
                 { "%globaltimer_lo", TIMER_LOW, 4 } };

int32_t ptx_special(ptx_reader *r, const ptx_token *t, int *bytes)
{
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        if (!ptx_is(t, specials[i].name)) continue;
        int32_t *const at = &r->k->special[specials[i].number];
        if (*at == PTX_NONE) *at = ptx_register(r, specials[i].bytes);
        *bytes = specials[i].bytes;
        const int32_t d = *at;
        if (specials[i].number >= CLOCK) {
            ptx_inst *const clock = ptx_emit(r);
            clock->exec = ptx_clock, clock->d = d, clock->wide = specials[i].bytes == 8, clock->line = t->line;
        }
        return d;
    }
    ptx_error(r, "'%.*s' is neither declared nor a special register that is known", t->n, t->s);
    *bytes = 4;
    return 0;
}

static uint32_t value(const ptx_group *g, int number, int lane)
{
    const ptx_run_state *const run = g->run;
    const ptx_launch *const l = run->l;
    const uint32_t t = (uint32_t)ptx_thread(g, lane), in_warp = t % WARP, one = 1u << in_warp;
    switch (number) {
    case TID: return t % l->block[0];
    case TID + 1: return t / l->block[0] % l->block[1];
    case TID + 2: return t / l->block[0] / l->block[1];
    case LANEID: return in_warp;
    case WARPID: return t / WARP;
    case NWARPID: return (uint32_t)(run->n_threads + WARP - 1) / WARP;
    case NSMID: return 1;
    case MASK_EQ: return one;
    case MASK_LE: return one | (one - 1);
    case MASK_LT: return one - 1;
    case MASK_GE: return ~(one - 1);
    case MASK_GT: return ~(one | (one - 1));
    case DYNAMIC: return (uint32_t)l->dynamic_shared;
    case TOTAL: return (uint32_t)run->shared_bytes;
    default: break;
    }
    if (number >= NTID && number < NTID + 3) return l->block[number - NTID];
    if (number >= CTAID && number < CTAID + 3) return run->block[number - CTAID];
    if (number >= NCTAID && number < NCTAID + 3) return l->grid[number - NCTAID];
    return 0;
}

/* first: in a launch; later blocks differ only by their number. */
void ptx_specials_set(ptx_group *g, bool first)
{
    for (int k = 0; k < PTX_SPECIALS; k++) {
        const int32_t at = g->run->k->special[k];
        if (at == PTX_NONE || k >= CLOCK || (!first && (k < CTAID || k > CTAID + 2))) continue;
        uint32_t *const narrow = ptx_at(g, at);
        uint64_t *const wide = ptx_at(g, at);
        for (int i = 0; i < LANES; i++) {
            const uint32_t v = value(g, k, i);
            if (k == GRIDID) wide[i] = v;
            else narrow[i] = v;
        }
    }
}
