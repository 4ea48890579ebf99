/* test_cli_tasks.c: the command on masks, sequences and texts: trained, evaluated, predicted, planned, and written on from a
 * prompt; and what it refuses. The networks are small and the data easy, so that what is learnt can be told in a second or two. */
#include "cli_run.h"
#include "io/json.h"
#include "swoop/swoop.h"

#define CPU " --device cpu --threads 1 "

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *const f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text, int times)
{
    sw__text t = { 0 };
    for (int i = 0; i < times; i++) sw__text_add(&t, "%s", text);
    write_file(name, t.s, t.len);
    sw__text_free(&t);
}

static void write_array(const char *name, sw_dtype type, int rank, const int64_t *shape, void *data)
{
    sw_array a = { .dtype = type, .rank = rank, .data = data };
    memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    a.bytes = (size_t)sw_array_count(&a) * sw_dtype_size(type);
    assert_int_equal(sw_npy_write(name, &a), SW_OK);
}

/* ---- masks --------------------------------------------------------------------------------------------------------- */

enum { IMAGES = 24, HEIGHT = 8, WIDTH = 12, PIXELS = HEIGHT * WIDTH };

/* Dark, middle and bright pixels, of class 0, 1 and 2. */
static void make_masks(void)
{
    static float x[IMAGES * PIXELS];
    static uint8_t y[IMAGES * PIXELS];
    sw__rng r;
    sw__rng_init(&r, 1, 2);
    for (int i = 0; i < IMAGES * PIXELS; i++) {
        y[i] = (uint8_t)sw__rng_below(&r, 3);
        x[i] = (float)y[i] + 0.2f * (float)sw__rng_uniform(&r);
    }
    write_array("images.npy", SW_F32, 4, (int64_t[]){ IMAGES, 1, HEIGHT, WIDTH }, x);
    write_array("masks.npy", SW_U8, 3, (int64_t[]){ IMAGES, HEIGHT, WIDTH }, y);
    write_array("masks1.npy", SW_U8, 4, (int64_t[]){ IMAGES, 1, HEIGHT, WIDTH }, y);
}

#define UNET "train --model unet:8,2 --data images.npy:masks.npy --val-split 0.25 --batch-size 6 --lr 0.02" CPU

static void test_masks(void **state)
{
    (void)state;
    make_masks();
    must(UNET "--epochs 30 --name masks");
    has(out, "3 classes, 1x8x12, a class for each of 8x12");
    has(out, "6 val (25 %, seed 0)");
    must("eval runs/masks --json" CPU);
    json_t *e = json_lines(out, "eval");
    assert_true(number(e, "acc") > 0.8); /* of three classes a third by chance */
    assert_int_equal(json_array_size(json_object_get(e, "classes")), 3);
    json_decref(e);
    must("predict runs/masks images.npy --out labels.npy" CPU);
    sw_array p, truth;
    assert_int_equal(sw_npy_read("labels.npy", &p), SW_OK);
    assert_int_equal(sw_npy_read("masks.npy", &truth), SW_OK);
    assert_true(p.dtype == SW_I64 && p.rank == 3 && p.shape[0] == IMAGES && p.shape[1] == HEIGHT && p.shape[2] == WIDTH);
    int right = 0;
    for (int i = 0; i < IMAGES * PIXELS; i++) right += ((const int64_t *)p.data)[i] == ((const uint8_t *)truth.data)[i];
    assert_true(right > IMAGES * PIXELS * 8 / 10);
    must("predict runs/masks images.npy --format csv" CPU);
    assert_int_equal(count(out, "\n"), 1 + IMAGES * PIXELS);
    has(out, "index,position,label,class,probability\n0,0,");
    must("predict runs/masks images.npy --json" CPU);
    json_t *const labels = json_lines(out, "labels"), *const shape = json_lines(out, "shape");
    assert_int_equal(json_array_size(labels), PIXELS);
    assert_int_equal(json_integer_value(json_array_get(shape, 1)), WIDTH);
    for (int i = 0; i < PIXELS; i++) /* the last image's */
        assert_int_equal(json_integer_value(json_array_get(labels, (size_t)i)), ((const int64_t *)p.data)[(IMAGES - 1) * PIXELS + i]);
    json_decref(labels);
    json_decref(shape);
    sw_array_free(&p);
    sw_array_free(&truth);
}

static void test_mask_classes(void **state)
{
    (void)state;
    make_masks();
    must(UNET "--epochs 1 --num-classes 5 --name five --class-weights balanced");
    has(out, "5 classes");
    must("eval runs/five --json" CPU);
    json_t *e = json_lines(out, "eval");
    assert_int_equal(json_array_size(json_object_get(e, "classes")), 5);
    json_decref(e);
    must("train --model unet:4,2 --data images.npy:masks1.npy --epochs 1 --name one" CPU);
    must("train --model unet:4,2 --data images.npy:masks.npy --epochs 1 --grad-accum 3 --name micro" CPU);
    assert_int_equal(run(UNET "--num-classes 2"), 1);
    has(err, "there are 2 classes");
    assert_int_equal(run("train --model mlp:4 --data images.npy:masks.npy" CPU), 1);
    has(err, "masks are what model unet learns");
    assert_int_equal(run("predict runs/five images.npy --json --top 2" CPU), 1);
    has(err, "--top of a mask is for csv");
}

/* ---- sequences ------------------------------------------------------------------------------------------------------ */

enum { WORDS = 8, LONGEST = 3, ROWS = 32, COLUMNS = 24 };

/* An image of bright bars for each label: where they begin says which of two labels it is. */
static void make_words(void)
{
    static float x[WORDS * ROWS * COLUMNS];
    static int32_t y[WORDS * LONGEST], n[WORDS];
    memset(x, 0, sizeof x);
    for (int i = 0; i < WORDS; i++) {
        n[i] = 1 + i % LONGEST;
        for (int k = 0; k < LONGEST; k++) {
            y[i * LONGEST + k] = k < n[i] ? 1 + (i >> k & 1) : 0;
            for (int r = 0; k < n[i] && r < ROWS / 2; r++)
                for (int c = 2; c < 6; c++) x[(i * ROWS + r + (y[i * LONGEST + k] == 2 ? ROWS / 2 : 0)) * COLUMNS + 8 * k + c] = 1;
        }
    }
    const sw_named_array arrays[] = {
        { "x", { .dtype = SW_F32, .rank = 4, .shape = { WORDS, 1, ROWS, COLUMNS }, .data = x, .bytes = sizeof x } },
        { "y", { .dtype = SW_I32, .rank = 2, .shape = { WORDS, LONGEST }, .data = y, .bytes = sizeof y } },
        { "y_lengths", { .dtype = SW_I32, .rank = 1, .shape = { WORDS }, .data = n, .bytes = sizeof n } },
    };
    assert_int_equal(sw_safetensors_write("words.safetensors", arrays, 3, NULL, 0), SW_OK);
}

static void test_sequences(void **state)
{
    (void)state;
    make_words();
    must("train --model crnn:2,16 --data words.safetensors --val-split 0 --val words.safetensors --batch-size 8 --epochs 150 --lr 0.01 "
         "--schedule constant --monitor val_acc --name words" CPU);
    has(out, "3 classes, 1x32x24, sequences of up to 3 labels");
    must("eval runs/words --split train --json" CPU);
    json_t *e = json_lines(out, "eval");
    assert_true(number(e, "acc") >= 0.9); /* whole answers, all of them learnt by heart */
    assert_true(number(e, "label_errors") <= 0.1);
    json_decref(e);
    must("eval runs/words --split train" CPU);
    has(out, "for each label");
    must("predict runs/words words.safetensors" CPU);
    has(out, "index,labels\n0,");
    assert_int_equal(count(out, "\n"), 1 + WORDS);
    must("predict runs/words words.safetensors --json" CPU);
    assert_int_equal(count(out, "\"labels\": ["), WORDS);
    must("predict runs/words words.safetensors --out steps.npy" CPU);
    sw_array p;
    assert_int_equal(sw_npy_read("steps.npy", &p), SW_OK);
    double sum = 0;
    for (int c = 0; c < 3; c++) sum += (double)((const float *)p.data)[c];
    assert_close(sum, 1, 1e-5); /* probabilities of a step */
    sw_array_free(&p);
    assert_int_equal(run("train --model crnn:2,16 --data words.safetensors --monitor acc" CPU), 1);
    has(err, "monitor val_acc");
    assert_int_equal(run("train --model crnn:2,16 --data words.safetensors --loss mse" CPU), 1);
    assert_int_equal(run("train --model mlp:4 --data digits --loss ctc" CPU), 1);
    has(err, "sequences are integers [samples, labels]");
}

/* ---- texts ---------------------------------------------------------------------------------------------------------- */

static void test_texts(void **state)
{
    (void)state;
    write_text("reviews.tsv", "good\tit works, thank you\nbad\tnever again\ngood\tthank you all\nbad\tdo not buy, never\n", 12);
    must("train --model transformer:1x2x8 --data reviews.tsv --sequence 24 --epochs 12 --lr 0.01 --batch-size 8 --name reviews" CPU);
    has(out, "2 classes, 24 tokens a sample");
    must("eval runs/reviews" CPU);
    has(out, "0 bad");
    has(out, "1 good");
    write_text("new.tsv", "many thank you\nnever ever\n", 1);
    must("predict runs/reviews new.tsv" CPU);
    has(out, "0,1,good,");
    has(out, "1,0,bad,");
    must("train --model transformer:1x2x8 --data reviews.tsv --sequence 24 --class-weights balanced --epochs 1 --name again" CPU);
    assert_int_equal(run("predict runs/reviews --prompt never" CPU), 1);
    has(err, "does not say what comes next");
    static int64_t x[6 * 5], y[6] = { 0, 1, 0, 1, 0, 1 };
    for (int i = 0; i < 30; i++) x[i] = i % 7;
    write_array("codes.npy", SW_I64, 2, (int64_t[]){ 6, 5 }, x);
    write_array("kinds.npy", SW_I64, 1, (int64_t[]){ 6 }, y);
    must("train --model transformer:1x2x8x7 --data codes.npy:kinds.npy --epochs 1 --val-split 0 --name codes" CPU);
    has(out, "5 tokens a sample");
    must("predict runs/codes codes.npy" CPU);
    assert_int_equal(run("train --model transformer:1x2x8x6 --data codes.npy:kinds.npy --val-split 0" CPU), 1);
    has(err, "transformer:2x4x64x7");
}

/* ---- writing on ----------------------------------------------------------------------------------------------------- */

#define NEXT "train --model gpt:1x2x16 --sequence 12 --batch-size 16 --lr 0.02 --epochs 6 "

static void test_prompt(void **state)
{
    (void)state;
    write_text("abc.txt", "ab\xc3\xa9" "c\n", 400); /* a b é c \n, again and again */
    must(NEXT "--data abc.txt --name abc" CPU);
    has(out, "12 tokens a sample");
    must("eval runs/abc" CPU);
    has(out, "0 \"\\n\"");
    must("predict runs/abc --prompt ab --length 9 --temperature 0" CPU);
    assert_string_equal(out, "ab\xc3\xa9" "c\nab\xc3\xa9" "c\na\n");
    must("predict runs/abc --prompt 'c' --length 30 --temperature 0 --json" CPU); /* more than the window */
    json_t *r = json_lines(out, "result");
    assert_string_equal(json_string_value(json_object_get(r, "text")), "\nab\xc3\xa9" "c\nab\xc3\xa9" "c\nab\xc3\xa9" "c\nab\xc3\xa9"
                                                                       "c\nab\xc3\xa9" "c\nab\xc3\xa9" "c");
    assert_int_equal(number(r, "tokens"), 30);
    json_decref(r);
    must("predict runs/abc --prompt ab --length 60 --temperature 3 --seed 5" CPU);
    char *const first = sw__strdup(out);
    must("predict runs/abc --prompt ab --length 60 --temperature 3 --seed 5" CPU);
    assert_string_equal(out, first);
    must("predict runs/abc --prompt ab --length 60 --temperature 3 --seed 6" CPU);
    assert_string_not_equal(out, first);
    sw__free(first);
    must("predict runs/abc --prompt ab --length 9 --temperature 30 --top 1" CPU); /* of one there is nothing to draw */
    assert_string_equal(out, "ab\xc3\xa9" "c\nab\xc3\xa9" "c\na\n");
    must("predict runs/abc abc.txt" CPU); /* what comes after each sample */
    has(out, "index,label,class,probability\n");
}

static void test_prompt_errors(void **state)
{
    (void)state;
    write_text("abc.txt", "abc\n", 400);
    must(NEXT "--data abc.txt --steps 2 --name some" CPU);
    assert_int_equal(run("predict runs/some --prompt 'abx' --length 3" CPU), 1);
    has(err, "the character 'x' at byte 2 is none of the 4");
    assert_string_equal(out, ""); /* not half of it */
    assert_int_equal(run("predict runs/some --prompt \"$(printf 'a\\377')\" --length 3" CPU), 1);
    has(err, "byte 1 begins no UTF-8");
    assert_int_equal(run("predict runs/some --prompt '' --length 3" CPU), 1);
    has(err, "it is empty");
    assert_int_equal(run("predict runs/some --prompt a --temperature warm" CPU), 2);
    assert_int_equal(run("predict runs/some --prompt a --temperature -1" CPU), 2);
    assert_int_equal(run("predict runs/some --prompt a --top 0" CPU), 2);
    assert_int_equal(run("predict runs/some abc.txt --prompt a" CPU), 2);
    has(err, "takes no data");
    assert_int_equal(run("predict runs/some abc.txt --temperature 1" CPU), 2);
    must("train " MLP "--epochs 1 --name digits");
    assert_int_equal(run("predict runs/digits --prompt a" CPU), 1);
    has(err, "does not say what comes next");
}

/* Bytes that are no character yet, or none at all, do not reach the output; numbers stay numbers. */
static void test_prompt_bytes(void **state)
{
    (void)state;
    write_text("bytes.txt", "\xc3\xa9\xff" "a", 300);
    must("train --model lstm:16,32 --sequence 7 --batch-size 8 --lr 0.02 --epochs 16 --data bytes.txt --format bytes --name bytes" CPU);
    must("predict runs/bytes --prompt a --length 6 --temperature 0" CPU); /* é, wrong, a, and half of an é */
    assert_string_equal(out, "a\xc3\xa9\xef\xbf\xbd" "a\xc3\xa9\n");
    must("predict runs/bytes --prompt a --length 5 --temperature 0" CPU);
    assert_string_equal(out, "a\xc3\xa9\xef\xbf\xbd" "a\xef\xbf\xbd\n");
    must("predict runs/bytes --prompt a --length 100 --temperature 9" CPU);
    assert_int_equal(sw__utf8_check(out, strlen(out)), strlen(out));
    static int64_t x[40 * 4], y[40 * 4];
    for (int i = 0; i < 160; i++) {
        x[i] = i % 5;
        y[i] = (i + 1) % 5;
    }
    write_array("x.npy", SW_I64, 2, (int64_t[]){ 40, 4 }, x);
    write_array("y.npy", SW_I64, 2, (int64_t[]){ 40, 4 }, y);
    must("train --model gru:8,16 --batch-size 8 --lr 0.02 --epochs 20 --data x.npy:y.npy --name numbers" CPU);
    must("predict runs/numbers --prompt '2 3' --length 4 --temperature 0" CPU);
    assert_string_equal(out, "2 3 4 0 1 2\n");
    assert_int_equal(run("predict runs/numbers --prompt '2 5' --length 4" CPU), 1);
    has(err, "tokens from 0 to 4");
}

/* ---- plans of tokens ------------------------------------------------------------------------------------------------- */

static double planned(const char *arguments, const char *key)
{
    char line[400];
    snprintf(line, sizeof line, "plan --json --device cpu --threads 1 %s", arguments);
    must(line);
    json_t *const plans = json_lines(out, "plans");
    const double value = number(json_array_get(plans, 0), key);
    json_decref(plans);
    return value;
}

static void test_plan_tokens(void **state)
{
    (void)state;
    write_text("plan.txt", "abcdefghij", 100);
    static const char *const models[] = { "gpt:2x2x16", "lstm:8,16", "gru:8" };
    for (size_t i = 0; i < SW_COUNT(models); i++) { /* what data of that shape would take */
        char shape[200], data[200];
        snprintf(shape, sizeof shape, "--model %s --shape 24 --num-classes 10 --batch-size 4", models[i]);
        snprintf(data, sizeof data, "--model %s --data plan.txt --sequence 24 --batch-size 4", models[i]);
        assert_true(planned(shape, "parameters") == planned(data, "parameters") && planned(shape, "flops") == planned(data, "flops"));
        assert_true(planned(shape, "flops") > 0);
    }
    assert_true(planned("--model transformer:2x2x16 --shape 24 --num-classes 3", "parameters") > 256 * 16);
    must("plan --model gpt:nano --shape 64 --num-classes 65 --device cpu");
    has(out, "64 tokens to 65 classes");
    must("plan --model unet:4,2 --shape 3x16x16 --num-classes 4 --device cpu");
    must("plan --model crnn:4,8 --shape 1x32x64 --num-classes 20 --device cpu");
    assert_int_equal(run("plan --tokens --model gpt:nano --data plan.txt --device cpu"), 2);
    has(err, "give it, such as 128");
    assert_int_equal(run("plan --model gpt:nano --shape 3x8x8 --num-classes 65 --device cpu"), 1);
}

/* ---- what would be ignored, or passed over in silence ------------------------------------------------------------------ */

static void test_schedule_keys(void **state)
{
    (void)state;
    assert_int_equal(run("train " MLP "--epochs 1 --gamma 0.5"), 1);
    has(err, "gamma is given, but schedule is cosine, which does not read it; those that do: step, multistep, exponential, plateau");
    assert_int_equal(run("train " MLP "--epochs 1 --schedule constant --min-lr 1e-5"), 1);
    assert_int_equal(run("train " MLP "--epochs 1 --schedule step --milestones 3"), 1);
    assert_int_equal(run("train " MLP "--epochs 1 --schedule onecycle --warmup 0.2"), 1);
    assert_int_equal(run("train " MLP "--epochs 1 --plateau-patience 2"), 1);
    must("train " MLP "--epochs 1 --schedule step --gamma 0.5 --name stepped");
    must("train --config runs/stepped/config.yaml --name stepped2"); /* which has all keys */
}

static void test_nothing_learnt(void **state)
{
    (void)state;
    static float x[16 * 4];
    static int64_t y[16];
    for (int i = 0; i < 64; i++) x[i] = 3000 + (float)(i % 7);
    for (int i = 0; i < 16; i++) y[i] = i % 2;
    write_array("large.npy", SW_F32, 2, (int64_t[]){ 16, 4 }, x);
    write_array("two.npy", SW_I64, 1, (int64_t[]){ 16 }, y);
    assert_int_equal(run("train --model mlp:4 --data large.npy:two.npy --normalize none --val-split 0 --precision f16 --steps 2 "
                         "--no-preflight --name overflows" CPU), 4);
    has(err, "all 2 steps were skipped, as their gradients overflow f16");
}

static void test_refused(void **state)
{
    (void)state;
    write_text("abc.txt", "abc\n", 400);
    assert_int_equal(run(NEXT "--data abc.txt --class-weights balanced --name weighted" CPU), 1);
    has(err, "the tokens that come next");
    assert_int_equal(run("train " MLP "--epochs 1 --shadow nosuch:1 --name shadowless"), 3);
    has(err, "shadow");
    assert_false(there("runs/shadowless"));
}

/* Bytes of what was given that are no text, in messages: neither a terminal nor JSON gets them. */
static void test_raw_bytes(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "train --model \"$(printf 'a\\033[31m\\377')\" --data digits", "train --model lenet --data \"$(printf 'no\\033such\\200')\"",
        "eval \"$(printf 'run\\001\\302\\233s')\"", "predict \"$(printf 'run\\037')\"", "\"$(printf 'tr\\033ain')\"",
        "train --lr \"$(printf '1\\0332')\"", "train \"$(printf -- '--l\\033r')\" 3", "plan --shape \"$(printf '3\\0333')\" --model lenet",
    };
    for (size_t i = 0; i < SW_COUNT(commands); i++) {
        assert_int_not_equal(run(commands[i]), 0);
        assert_int_equal(sw__utf8_check(err, strlen(err)), strlen(err));
        for (const char *p = err; *p != '\0'; p++)
            if ((unsigned char)*p < 0x20 && *p != '\n') fail_msg("%s: byte %d in: %s", commands[i], *p, err);
        has_not(err, "\302\233");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),         cmocka_unit_test(test_mask_classes), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_texts),         cmocka_unit_test(test_prompt),       cmocka_unit_test(test_prompt_errors),
        cmocka_unit_test(test_prompt_bytes),  cmocka_unit_test(test_plan_tokens),  cmocka_unit_test(test_schedule_keys),
        cmocka_unit_test(test_nothing_learnt), cmocka_unit_test(test_refused),     cmocka_unit_test(test_raw_bytes),
    };
    return cmocka_run_group_tests_name("cli tasks", tests, set_up, tear_down);
}
