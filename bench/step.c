/* step.c: one training step of a reference network, timed; the counterpart of torch_step.py, same JSON on stdout.
 *   step --model resnet18 --threads 2 [--batch 32] [--steps 30] [--warmup 10] [--init FILE] [--device cpu] [--profile]
 *        [--precision f32|bf16|f16] [--infer [--output FILE]] [--compile-only]
 *   step --list                                                                  the networks that can be built
 * A step is forward, loss, backward, update and reading the loss, on one fixed batch; with --infer it is the network's
 * output, read, and --output writes it as raw f32. --init takes the file that torch_step.py --save-init writes, so that
 * both start from the same weights and data. */
#include "networks.h"
#include <getopt.h>
#include <time.h>
#include <unistd.h>

/* Whether this library has the model. */
static bool is_there(const network *n)
{
    const size_t length = strcspn(n->model, ":");
    for (const sw_model_info *m = sw_model_list(); m->name; m++)
        if (strlen(m->name) == length && strncmp(m->name, n->model, length) == 0) return true;
    return false;
}

static int list(void)
{
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++)
        if (is_there(&networks[i])) puts(networks[i].name);
    return 0;
}

/* Age of this process from /proc: 10 ms resolution, like torch_step.py's. */
static double seconds_since_start(void)
{
    char line[4096];
    struct timespec now;
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "r");
    if (f && fgets(line, sizeof line, f)) {
        const char *p = strrchr(line, ')');
        for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
        if (p) ticks = strtoull(p, NULL, 10);
    }
    if (f) fclose(f);
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double peak_rss_mib(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtod(line + 6, NULL);
    if (f) fclose(f);
    return kib / 1024;
}

static void load(const bench *b)
{
    sw_safetensors *f = NULL;
    check(sw_safetensors_open(b->init, &f));
    for (int i = 0; i < sw_params_count(b->params); i++) {
        sw_var_info v;
        char name[300];
        sw_array a;
        check(sw_params_info(b->params, i, &v));
        if (v.kind == SW_VAR_STATE) continue;
        snprintf(name, sizeof name, "init.%s", v.name);
        check(sw_safetensors_array(f, name, &a));
        check(sw_params_set(b->params, i, a.dtype, a.data, v.elements));
    }
    sw_array x, y;
    check(sw_safetensors_array(f, "x", &x));
    check(sw_safetensors_array(f, "y", &y));
    put(b, "x", x.dtype, x.data, x_elements(b));
    put(b, "y", y.dtype, y.data, y_elements(b));
    sw_safetensors_close(f);
}

static void write_output(const bench *b)
{
    FILE *f = fopen(b->output, "wb");
    if (!f || fwrite(b->out, sizeof *b->out, (size_t)b->n_out, f) != (size_t)b->n_out || fclose(f) != 0) {
        fprintf(stderr, "step: cannot write %s\n", b->output);
        exit(1);
    }
}

/* Milliseconds, but for the first. */
typedef struct spent {
    double first_s; /* process start to the end of the first step */
    double open, record, params, compile;
    double *steps;  /* sorted */
} spent;

static void print(const bench *b, const spent *s, double loss)
{
    const sw_plan *plan = sw_program_plan(b->program);
    printf("{\"model\": \"%s\", \"batch\": %lld, \"dtype\": \"%s\", \"infer\": %s, \"threads\": %d, \"device\": \"%s\", ",
           b->net->name, (long long)b->batch, sw_dtype_name(b->type), b->infer ? "true" : "false", b->threads, b->device);
    if (s->steps)
        printf("\"steps\": %d, \"median_ms\": %.4f, \"min_ms\": %.4f, \"p90_ms\": %.4f, \"first_step_s\": %.3f, \"loss\": %.6f, ",
               b->steps, s->steps[b->steps / 2], s->steps[0], s->steps[b->steps * 9 / 10], s->first_s, loss);
    printf("\"open_ms\": %.1f, \"record_ms\": %.1f, \"params_ms\": %.1f, \"compile_ms\": %.1f, \"peak_rss_mib\": %.1f, "
           "\"plan_mib\": %.1f, \"launches\": %d, \"emulated\": %d, \"gflop\": %.4f}\n",
           s->open, s->record, s->params, s->compile, peak_rss_mib(), (double)plan->total / 1048576, plan->launches,
           plan->emulated, plan->flops * 1e-9);
}

static void print_profile(const bench *b)
{
    char *table = NULL;
    check(sw_program_profile(b->program, SW_PROFILE_TABLE, &table));
    fputs(table, stderr);
    sw_string_free(table);
}

static double since(double *start)
{
    const double now = now_ms(), ms = now - *start;
    *start = now;
    return ms;
}

static void make(bench *b, spent *s)
{
    double t = now_ms();
    check(sw_device_open(b->device, &(sw_device_options){.threads = b->threads}, &b->dev));
    s->open = since(&t);
    sw_graph *g = record(b);
    s->record = since(&t);
    check(sw_params_new(b->dev, g, 0, &b->params));
    s->params = since(&t);
    check(sw_compile(g, b->dev, &(sw_compile_options){.params = b->params, .profile = b->profile}, &b->program));
    s->compile = since(&t);
    sw_graph_free(g);
}

/* Returns the last loss. */
static double time_steps(bench *b, spent *s)
{
    if (b->init)
        load(b);
    else
        synthesize(b);
    if (b->infer) make_output(b);
    int64_t t = 0;
    double loss = step(b, t++);
    s->first_s = seconds_since_start();
    while (t < b->warmup) loss = step(b, t++);
    s->steps = malloc((size_t)b->steps * sizeof *s->steps);
    if (!s->steps) exit(1);
    for (int i = 0; i < b->steps; i++) {
        double start = now_ms();
        loss = step(b, t++);
        s->steps[i] = since(&start);
    }
    qsort(s->steps, (size_t)b->steps, sizeof *s->steps, by_value);
    return loss;
}

static void run(bench *b, bool compile_only)
{
    spent s = {0};
    make(b, &s);
    const double loss = compile_only ? 0 : time_steps(b, &s);
    print(b, &s, loss);
    if (b->output) write_output(b);
    if (b->profile && !compile_only) print_profile(b);
    free(s.steps);
    free(b->out);
    sw_program_free(b->program);
    sw_params_free(b->params);
    sw_device_close(b->dev);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"model", required_argument, 0, 'm'},  {"threads", required_argument, 0, 't'}, {"batch", required_argument, 0, 'b'},
        {"steps", required_argument, 0, 's'},  {"warmup", required_argument, 0, 'w'},  {"init", required_argument, 0, 'i'},
        {"device", required_argument, 0, 'd'}, {"profile", no_argument, 0, 'p'},       {"list", no_argument, 0, 'l'},
        {"output", required_argument, 0, 'o'}, {"infer", no_argument, 0, 'I'},         {"precision", required_argument, 0, 'P'},
        {"compile-only", no_argument, 0, 'C'}, {0, 0, 0, 0}};
    bench b = {.device = "cpu", .threads = 1, .steps = 30, .warmup = 10, .type = SW_F32};
    bool good = true, compile_only = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'm') b.net = find_network(optarg);
        if (c == 't') b.threads = atoi(optarg);
        if (c == 'b') b.batch = atoll(optarg);
        if (c == 's') b.steps = atoi(optarg);
        if (c == 'w') b.warmup = atoi(optarg);
        if (c == 'i') b.init = optarg;
        if (c == 'd') b.device = optarg;
        if (c == 'o') b.output = optarg;
        if (c == 'p') b.profile = true;
        if (c == 'I') b.infer = true;
        if (c == 'P') good = find_type(optarg, &b.type);
        if (c == 'C') compile_only = true;
        if (c == 'l') return list();
        if (c == '?') return 2;
    }
    if (!good || !b.net || b.steps < 1 || b.threads < 1 || (b.output && !b.infer)) {
        fprintf(stderr, "usage: step --list | --model NAME [--threads N] [--batch N] [--steps N] [--warmup N] "
                        "[--init FILE] [--device ID] [--precision f32|bf16|f16] [--infer [--output FILE]] [--profile] [--compile-only]\n");
        return 2;
    }
    if (!b.batch) b.batch = b.net->batch;
    run(&b, compile_only);
    return 0;
}
