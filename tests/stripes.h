/* stripes.h: images that any network learns: 6 x 6, noise, and a bright stripe that says the class. For tests that train. */
#ifndef STRIPES_H
#define STRIPES_H

#include "swoop/data.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* n of them in x and y, which the data set borrows; class after class or (sorted) all of one and then the next. */
static sw_dataset *make_stripes(float (*x)[1][6][6], int64_t *y, int n, int classes, bool sorted, float noise)
{
    for (int i = 0; i < n; i++) {
        y[i] = sorted ? i * classes / n : i % classes;
        for (int r = 0; r < 6; r++)
            for (int c = 0; c < 6; c++)
                x[i][0][r][c] = noise * (float)((i * 31 + r * 17 + c * 7) % 23) / 23.0f + (r / 2 == y[i] ? 1.0f : 0.0f);
    }
    const sw_array ax = {.dtype = SW_F32, .rank = 4, .shape = {n, 1, 6, 6}, .data = x, .bytes = (size_t)n * sizeof *x};
    const sw_array ay = {.dtype = SW_I64, .rank = 1, .shape = {n}, .data = y, .bytes = (size_t)n * sizeof *y};
    sw_dataset *d = NULL;
    if (sw_dataset_from_memory(&ax, &ay, NULL, &d) != SW_OK) fail_msg("stripes: %s", sw_error());
    return d;
}

#endif
