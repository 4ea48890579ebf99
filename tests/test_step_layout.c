/* test_step_layout.c: images keep one layout through a training step on the CPU: no convolution of a resnet reorders an
 * image but the first, whose input comes row-major from outside, and nothing as large as an image is copied. What a
 * convolution may reorder is its weights, and only where it is not in Winograd's form. Read from the plan's notes;
 * nothing is run. */
#include "exec/exec.h"
#include "swoop/swoop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void ok(sw_status st)
{
    if (st != SW_OK) fail_msg("%s", sw_error());
}

static sw_program *training_step(sw_device *d)
{
    static const int64_t images[] = { 8, 3, 32, 32 }, labels[] = { 8 };
    sw_graph *g = NULL;
    sw_program *p = NULL;
    ok(sw_graph_new(&g));
    const sw_t x = sw_input(g, "x", SW_F32, 4, images), y = sw_input(g, "y", SW_I64, 1, labels);
    const sw_t loss = sw_output(sw_cross_entropy(sw_model_build("resnet8", x, 10), y), "loss");
    ok(sw_optimizer_apply(&(sw_optimizer){ .kind = SW_SGD, .lr = 0.1, .momentum = 0.9 }, loss, NULL, 0));
    ok(sw_compile(g, d, NULL, &p));
    sw_graph_free(g);
    return p;
}

/* "…, 2 reorders" */
static int reorders_in(const char *note)
{
    const char *const comma = strrchr(note, ',');
    assert_non_null(comma);
    assert_non_null(strstr(comma, "reorder"));
    return (int)strtol(comma + 1, NULL, 10);
}

static void test_reorders(void **state)
{
    (void)state;
    sw_device *d = NULL;
    ok(sw_device_open("cpu", &(sw_device_options){ .threads = 1 }, &d));
    sw_program *const p = training_step(d);
    int first = 0, winograd = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const sw__launch *const l = &p->launches[i];
        if (strcmp(l->kind, "copy") == 0 && l->bytes >= 8 * 16 * 8 * 8 * 4)
            fail_msg("'%s' copies %.0f bytes", l->name, l->bytes);
        if (strncmp(l->kind, "conv", 4) != 0 || l->packs > 0) continue;
        const char *const note = d->backend->op_note(l->built);
        const int n = reorders_in(note);
        const bool in_winograd = strncmp(note, "winograd", 8) == 0;
        winograd += in_winograd;
        if (in_winograd) assert_int_equal(n, 0);
        if (n > 1) first++;
        if (n > 2) fail_msg("%s '%s': %s", l->kind, l->name, note);
    }
    assert_int_equal(first, 2); /* the first convolution and its weights' gradient: x, and weights */
    assert_true(winograd >= 12);
    sw_program_free(p);
    sw_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_reorders) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
