/* op_recurrent_f64.c: lstm, gru, rnn and their gradients on the cpu in double: op_recurrent.c with plain loops in place
 * of tiles. Called by op_recurrent.c's plan. */
#include "backend/cpu/recurrent.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

#define REAL double
#define SIGMOID sigmoid
#define TANH tanh
#define BOTH(a, b, s, t) (void)(*(s) = sigmoid(a), *(t) = tanh(b))
#define FORWARD cell_forward
#define BACKWARD cell_backward
static void FORWARD SW__CELL_FORWARD(double);
static void BACKWARD SW__CELL_BACKWARD(double);
#include "backend/cpu/recurrent_rows.h"

struct run;
static void product(const struct run *x, const sw__step_matrix *m, const double *a, int64_t a_pitch, const double *bias,
                    bool add, double *c, int64_t c_pitch);
#include "backend/cpu/recurrent_run.h"

static void product(const run *x, const sw__step_matrix *m, const double *a, int64_t a_pitch, const double *bias,
                    bool add, double *c, int64_t c_pitch)
{
    const double *const w = x->ptr[m->in];
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t j = 0; j < m->n; j++) {
            double sum = add ? c[i * c_pitch + j] : bias != NULL ? bias[j] : 0;
            for (int64_t k = 0; k < m->k; k++) sum += a[i * a_pitch + k] * w[k * m->wk + j * m->wn];
            c[i * c_pitch + j] = sum;
        }
}

sw_status sw__cpu_recurrent_f64(sw__cpu_plan *p, void *const *ptr)
{
    const sw__recurrent_plan *const s = p->state;
    SW_TRY(sw__cpu_check_steps(p, ptr));
    const int threads = (int)s->threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int64_t i = 0; i < s->threads; i++) run_part(p, ptr, i);
    return SW_OK;
}
