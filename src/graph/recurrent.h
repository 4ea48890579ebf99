/* recurrent.h: the recurrent ops' operands and results by name, and their sizes: what lstm, gru, rnn and their
 * gradients have in common. Used by the shape rules, gradients and lowerings, and by every backend that takes them
 * whole.
 *
 * An op is one layer in one direction over all steps. The input's part of the gates, x W_ih^T + b_ih, comes in ready
 * (`gates` [B, T, G H]): it is one product over all steps. See decisions/070. */
#ifndef SW_GRAPH_RECURRENT_H
#define SW_GRAPH_RECURRENT_H

#include "graph/graph.h"

typedef enum sw__cell { SW_CELL_RNN = 0, SW_CELL_GRU, SW_CELL_LSTM } sw__cell;

/* Places among the inputs or outputs; -1: there is none.
 * Forward:  gates [B,T,GH], weight [GH,R], bias [GH], h0 [B,R], lstm: c0 [B,H], proj [R,H]; lengths [B]
 *           -> y [B,T,R], h_n [B,R], lstm: c_n [B,H]; lstm and gru: saved [B,T,SH]
 * Backward: dy [B,T,R], dh_n, lstm: dc_n, saved; gru and rnn: y; weight; gru: h0; lstm: c0, proj; lengths
 *           -> dgates [B,T,GH], dh0, lstm: dc0, dprojected [B,T,R] (without proj [B,T,0]); gru: dstate [B,T,GH]
 * saved: lstm i f g o c, gru r z n and W_hn h + b_hn. dprojected: the gradient of each step's h. dstate: that of
 * W_hh h + b_hh, which for gru is not that of `gates`. R is H, or proj_size. */
typedef struct sw__recurrent {
    sw__cell cell;
    bool backward, reverse, relu;
    int n_gates, n_saved;         /* G and S */
    int64_t batch, steps, hidden, state, rows; /* B, T, H, R, G H */
    /* inputs */
    int gates, weight, bias, h0, c0, proj, lengths, dy, dh, dc, saved, y, n_in;
    /* outputs */
    int out_h, out_c, out_saved, out_dh0, out_dc0, out_dproj, out_dstate;
} sw__recurrent;

/* first: the shape of output 0, which begins with B, T. */
sw__recurrent sw__recurrent_of(uint16_t op, const sw__attr *attr, const int64_t *first);

/* Shape of output k >= 1 of `from`; k stands in n's attribute. */
void sw__recurrent_output(const sw_graph *g, const sw__node *from, sw__node *n);

/* The step that is done as number s (0 … T-1), and the one before it in the direction of the op. */
static inline int64_t sw__recurrent_step(const sw__recurrent *r, int64_t s)
{
    return r->reverse ? r->steps - 1 - s : s;
}

#endif
