/* test_cli_verify.c: what the command does to be sure of a run: findings before the first step, steps beside another device,
 * steps done again (`swoop verify`); and the keys for averages, frozen layers and weights of classes. */
#include "cli_run.h"
#include "base/base.h"

/* Changes the first digit of a field, counted from 0, of the row that begins so. */
static void tamper(const char *path, const char *row, int column)
{
    char *const text = slurp(path), *p = strstr(text, row);
    assert_non_null(p);
    for (p++; column > 0; column--) p = strchr(p, ',') + 1;
    *p = *p == '0' ? '1' : '0';
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    sw__free(text);
}

static void test_verify(void **state)
{
    (void)state;
    must("train " MLP "--epochs 3 --name v");
    has_not(out, "warning ");
    char *const hashes = slurp("runs/v/hashes.csv");
    assert_memory_equal(hashes, "step,fc1.weight,fc1.bias,fc2.weight,fc2.bias,(optimizer)\n1,", 59);
    assert_int_equal(count(hashes, "\n"), 1 + 10 + 3 + 1); /* the first ten, 21, 42, 63 and 50 */
    sw__free(hashes);
    must("verify runs/v");
    has(out, "equal   runs/v: steps 43 to 63 come to the same bits, compared after 2 of them: 5 tensors");
    must("verify runs/v --from start --steps 9");
    has(out, "steps 1 to 9 come to the same bits, compared after 9 of them");
    must("verify runs/last --from start -q");
    assert_string_equal(out, "");
    assert_int_equal(run("verify runs/v --steps 2"), 1);
    has(err, "no hash was recorded in the 2 steps after step 42");
    tamper("runs/v/hashes.csv", "\n50,", 3);
    assert_int_equal(run("verify runs/v"), 5);
    has(out, "differs runs/v: after step 50 fc2.weight differs; it is the first that was compared");
    has(out, "its data or starting weights may have");
    assert_int_equal(run("verify runs/v --from start --json"), 5);
    json_t *const e = json_lines(out, "verify");
    assert_true(json_is_false(json_object_get(e, "equal")));
    assert_int_equal((int)number(e, "step"), 50);
    assert_int_equal((int)number(e, "same_to"), 42);
    assert_int_equal((int)number(e, "differing"), 1);
    assert_string_equal(json_string_value(json_object_get(e, "tensor")), "fc2.weight");
    json_decref(e);
}

/* Another device has other bits, and is said to be another. */
static void test_elsewhere(void **state)
{
    (void)state;
    must("train " MLP "--epochs 1 --name e");
    assert_int_equal(run("verify runs/e --from start --device ref"), 5);
    has(out, "note    the device was cpu, and is ref: bits may differ");
    has_not(out, "its data or starting weights");
    run("verify runs/e --threads 2");
    has(out, "there were 1 threads, and are 2: bits may differ");
    must("train " MLP "--epochs 1 --name bare --no-hashes");
    assert_false(there("runs/bare/hashes.csv"));
    assert_int_equal(run("verify runs/bare"), 1);
    has(err, "the run recorded no hashes");
}

/* A run with everything that keeps state between steps; stopped and gone on with, its hashes are those of the whole. */
static void test_state(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "--ema 0.98 --clip-value 0.5 --lr-scale '*.bias=2,fc1.*=0.5'",
        "--swa-start 2 --swa-lr 0.0005",
        "--freeze 'fc1.*' --freeze-epochs 2",
        "--schedule plateau --warmup 0 --plateau-patience 0 --lr 0.05 --plateau-threshold 0.5",
        "--schedule multistep --warmup 0 --milestones 1,3 --class-weights balanced",
    };
    for (size_t i = 0; i < SW_COUNT(keys); i++) {
        char line[400];
        snprintf(line, sizeof line, "train " MLP "--epochs 4 --name whole%d %s --test test", (int)i, keys[i]);
        must(line);
        has(out, "test    loss ");
        snprintf(line, sizeof line, "train " MLP "--epochs 4 --name part%d %s --test test", (int)i, keys[i]);
        char limited[500];
        snprintf(limited, sizeof limited, "%s --steps 30 --save-every 7", line);
        must(limited);
        snprintf(limited, sizeof limited, "train --resume runs/part%d --steps 84", (int)i);
        must(limited);
        snprintf(limited, sizeof limited, "verify runs/whole%d --from start", (int)i);
        must(limited);
        snprintf(limited, sizeof limited, "verify runs/whole%d", (int)i);
        must(limited);
        if (strstr(keys[i], "plateau") || strstr(keys[i], "multistep")) { /* no schedule that ends: the same to the bit */
            snprintf(limited, sizeof limited, "cmp runs/whole%d/last.safetensors runs/part%d/last.safetensors", (int)i, (int)i);
            assert_int_equal(system(limited), 0);
        }
    }
}

/* The best and the last model are of the averaged weights, and eval finds what training found. */
static void test_average(void **state)
{
    (void)state;
    must("train " MLP "--epochs 3 --lr 0.01 --ema 0.9 --name average --json");
    json_t *const r = json_lines(out, "result");
    const double loss = number(r, "val_loss");
    json_decref(r);
    must("eval runs/average/last.safetensors --data digits --json");
    must("eval runs/average --split val --json --threads 1");
    json_t *const e = json_lines(out, "eval");
    assert_close(number(e, "loss"), loss, 1e-6); /* the last is the best */
    json_decref(e);
    must("train " MLP "--epochs 3 --lr 0.01 --name raw --json");
    json_t *const raw = json_lines(out, "result");
    assert_true(fabs(number(raw, "val_loss") - loss) > 1e-4);
    json_decref(raw);
}

static void test_preflight(void **state)
{
    (void)state;
    must("train " MLP "--epochs 1 --name f --freeze 'fc1.*'");
    has(out, "note    frozen: 2 of 4 parameters (1040 of 1210 values) are frozen: fc1.weight, fc1.bias");
    must("train " MLP "--epochs 1 --name s --no-shuffle --init constant");
    has(out, "warning gradient: the first gradient of fc1.weight is 0 in every element");
    char *const log = slurp("runs/s/log.txt");
    has(log, "warning gradient: ");
    sw__free(log);
    must("train " MLP "--epochs 1 --name s --init constant --no-preflight");
    has_not(out, "warning");
    must("train " MLP "--epochs 1 --name s --init constant --preflight=false");
    has_not(out, "warning");
}

static void test_shadow(void **state)
{
    (void)state;
    must("train " MLP "--epochs 1 --name shadow --shadow ref:10");
    has(out, "shadow  2 steps beside another device: every op within its bound");
    must("train " MLP "--epochs 1 --name unseen");
    assert_int_equal(system("cmp runs/shadow/last.safetensors runs/unseen/last.safetensors"), 0);
    must("train --model cnn:4,8 --data digits --device cpu --threads 1 --epochs 1 --precision bf16 --shadow ref:20 --name b");
    must("train --model cnn:4,8 --data digits --device cpu --threads 1 --epochs 1 --precision f16 --shadow ref:20 --name h");
    has(out, "shadow  1 steps beside");
    has_not(out, "warning");
    assert_int_equal(run("train " MLP "--epochs 1 --shadow often"), 1);
    has(err, "not DEVICE:STEPS");
    assert_int_equal(run("train " MLP "--epochs 1 --shadow ref:0"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify),  cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_state),
        cmocka_unit_test(test_average), cmocka_unit_test(test_preflight), cmocka_unit_test(test_shadow),
    };
    return cmocka_run_group_tests_name("cli_verify", tests, set_up, tear_down);
}
