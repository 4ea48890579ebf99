/* recurrent_simd.c: a step of lstm, gru or rnn of one sample in f32, once per instruction set. See recurrent.h. */
#include "backend/cpu/recurrent.h"
#include "kernel/tile_math_simd.h"

#define REAL float
#define EXP exp_f32
#define TANH tanh_f32
#define FORWARD SW__SIMD_NAME(sw__cell_forward)
#define BACKWARD SW__SIMD_NAME(sw__cell_backward)
#include "backend/cpu/recurrent_rows.h"
