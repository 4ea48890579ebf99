/* sequences.c: how far what a model reads (greedily, from the classes of its steps) is from the answers: labels that are
 * wrong, missing or too many. Beneath trainer.c's evaluation of models that learn by CTC. */
#include "train/trainer.h"

/* Levenshtein's distance with one row; row has room for n + 1. */
static int64_t distance(const int64_t *a, int64_t m, const int64_t *b, int64_t n, int64_t *row)
{
    for (int64_t j = 0; j <= n; j++) row[j] = j;
    for (int64_t i = 1; i <= m; i++) {
        int64_t before = row[0]; /* [i - 1][j - 1] */
        row[0] = i;
        for (int64_t j = 1; j <= n; j++) {
            const int64_t above = row[j], same = before + (a[i - 1] != b[j - 1]);
            row[j] = SW_MIN(same, SW_MIN(above, row[j - 1]) + 1);
            before = above;
        }
    }
    return row[n];
}

sw_status sw__sequences_score(const sw_trainer *t, const float *outputs, const int64_t *y, int64_t n, sw__sequences *sum)
{
    const int64_t classes = t->output_classes, steps = t->output_size / classes, room = t->y_shape[0];
    int64_t *const read = sw__malloc((size_t)(steps + room + 1) * sizeof *read);
    if (!read) return sw__no_memory((size_t)(steps + room + 1) * sizeof *read, "what was read");
    int64_t *const row = read + steps;
    for (int64_t i = 0; i < n; i++, outputs += steps * classes, y += room) {
        int64_t length = 0;
        while (length < room && y[length] >= 0) length++;
        const int64_t m = sw_ctc_greedy(outputs, steps, classes, read), errors = distance(read, m, y, length, row);
        sum->right += errors == 0;
        sum->errors += errors;
        sum->labels += length;
    }
    sw__free(read);
    return SW_OK;
}
