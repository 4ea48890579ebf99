/* test_cli.c: the command as a user meets it: the built program is run, its output, errors and exit codes are looked
 * at. Everything happens in a fresh folder under TMPDIR, on the digits that ship with swoop. */
#include "base/base.h"
#include "swoop/config.h"
#include "swoop/io.h"
#include "swoop/nn.h"
#include "cli_run.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>

/* The longest line in columns, escapes left out; each carriage return begins a line anew. */
static int longest(const char *text, bool only_redrawn)
{
    int most = 0, now = 0;
    bool redrawn = false;
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '\r' || *p == '\n') {
            now = 0;
            redrawn = p[0] == '\r' && p[1] != 033; /* what only takes the line away is followed by another */
        } else if (*p == 033) {
            while (*p != '\0' && *p != 'm' && *p != 'K') p++;
            if (*p == '\0') break;
        } else if ((*p & 0xc0) != 0x80 && (redrawn || !only_redrawn)) {
            most = ++now > most ? now : most;
        }
    }
    return most;
}

/* ---- help, usage, errors
 * --------------------------------------------------------------------------------------------- */

static void test_help(void **state)
{
    (void)state;
    static const char *const commands[] = { "train",   "eval", "predict", "devices",
                                            "plan",    "kernels", "tune", "verify" };
    must("--help");
    assert_true(longest(out, false) <= 80);
    for (size_t i = 0; i < SW_COUNT(commands); i++) has(out, commands[i]);
    must("--version");
    has(out, sw_version());
    assert_int_equal(run(""), 2);
    has(err, "swoop COMMAND");
    for (size_t i = 0; i < SW_COUNT(commands); i++) {
        char arguments[64], other[64];
        snprintf(arguments, sizeof arguments, "%s --help", commands[i]);
        must(arguments);
        has(out, "Examples");
        has(out, "--json");
        has(out, "130 interrupted");
        assert_string_equal(err, "");
        assert_true(longest(out, false) <= 80);
        char *const first = sw__strdup(out);
        snprintf(other, sizeof other, "help %s", commands[i]);
        must(other);
        assert_string_equal(out, first);
        sw__free(first);
    }
    must("train --help");
    for (int k = 0; k < SW_KEY_COUNT; k++) { /* every key is there, as it is typed */
        char flag[64];
        snprintf(flag, sizeof flag, "  --%s", sw_config_about((sw_key)k)->name);
        for (char *p = flag; *p != '\0'; p++) *p = *p == '_' ? '-' : *p;
        has(out, flag);
    }
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int code;
        const char *message;
    } cases[] = {
        { "trian", 2, "did you mean 'train'" },
        { "frobnicate", 2, "unknown command" },
        { "--epochs 3", 2, "the command comes first" },
        { "help trian", 2, "did you mean 'train'" },
        { "train", 2, "there is no data" },
        { "train --epohcs 3", 2, "did you mean 'epochs'" },
        { "train --quite", 2, "did you mean 'quiet'" },
        { "train --quiet=1", 2, "takes no value" },
        { "train --epochs", 2, "needs a value" },
        { "train --epochs three --data digits", 2, "must be a whole number" },
        { "train --lr -1 --data digits", 2, "above 0" },
        { "train a.yaml b.yaml", 2, "one argument too many" },
        { "train a.yaml --config b.yaml", 2, "two run files" },
        { "train a.yaml", 1, "a.yaml" },
        { "train .", 2, "--resume" },
        { "train --data digits", 2, "--model" },
        { "train --data digits --model mlp --project=", 1, "project is empty" },
        { "train --data digits --model mlp --name=", 1, "name is ''" },
        { "train --data digits --model mlp --name ../else", 1, "without /" },
        { "train --data digits --model mlp --name last", 1, "choose another" },
        { "train --data digits --model mlp --loss mse", 1, "use cross_entropy" },
        { "train --data digits --model mlp --device null", 3, "computes nothing" },
        { "train --data digits --model mlp --threads 1025", 2, "at most 1024" },
        { "train --data digits --model mlp --num-classes 16777216", 2, "at most 16777215" },
        { "train --data digits --model mlp --val fashion-mnist:no", 1, "fashion-mnist" },
        { "train --data digits --model mpl", 1, "mlp" },
        { "train --data nowhere --model mlp", 1, "nowhere" },
        { "train --data digits --model mlp --device cuda:7", 3, "cuda:7" },
        { "train --data digits --model mlp --device ''", 3, "no device ''" },
        { "train --data digits --model mlp --device cpu --optimizer adam --nesterov", 1, "nesterov is of sgd" },
        { "train --data digits --model mlp --device cpu --momentum 0.5", 1, "adamw has betas" },
        { "train --data digits --model mlp --device cpu --min-lr 0.5", 1, "min_lr 0.5 is above lr 0.001" },
        { "tune --device cpu", 1, "compiles no kernels" },
        { "tune --data digits --model mlp --device ref", 1, "compiles no kernels" },
        { "tune --model mlp --device cpu", 2, "without data" },
        { "tune --device cpu --no-tune", 2, "forbid" },
        { "tune --device cpu --table no/such/folder", 1, "cannot be written" },
        { "tune .", 2, "is a folder" },
        { "train --resume nowhere", 1, "nowhere" },
        { "train -x", 2, "-q, -v and -h" },
        { "eval", 2, "which model" },
        { "eval nowhere", 1, "nowhere" },
        { "eval nowhere --split half", 2, "test|val|train" },
        { "eval nowhere --slpit test", 2, "did you mean --split" },
        { "eval nowhere --threads 0", 2, "whole number from 1" },
        { "eval nowhere --threads 1025", 2, "to 1024" },
        { "eval nowhere --threads", 2, "needs a value" },
        { "predict", 2, "which model" },
        { "predict nowhere", 1, "nowhere" },
        { "predict nowhere --top 0", 2, "--top" },
        { "predict nowhere --format npy", 2, "--out" },
        { "predict nowhere --format npy --out x.npy --top 2", 2, "--top" },
        { "predict nowhere --format csv --json", 2, "--out" },
        { "predict nowhere digits --data digits", 2, "two data sets" },
        { "verify", 2, "which run" },
        { "verify nowhere", 1, "nowhere" },
        { "verify nowhere --from end", 2, "checkpoint|start" },
        { "train --data digits --model mlp --no-epochs", 2, "unknown key" },
        { "train --data digits --model mlp --device cpu --freeze nix.*", 1, "no parameter has a name like 'nix.*'" },
        { "train --data digits --model mlp --device cpu --freeze fc1.*,,fc2.*", 1, "an empty pattern" },
        { "train --data digits --model mlp --device cpu --freeze-epochs 2", 1, "freeze does not say which" },
        { "train --data digits --model mlp --device cpu --lr-scale fc1.*=x", 1, "not PATTERN=FACTOR" },
        { "train --data digits --model mlp --device cpu --schedule multistep", 1, "needs milestones" },
        { "train --data digits --model mlp --device cpu --milestones 3", 1, "schedule is cosine" },
        { "train --data digits --model mlp --device cpu --schedule multistep --milestones 30,20", 1, "'20' is no whole" },
        { "train --data digits --model mlp --device cpu --class-weights 1,2", 1, "2 weights for 10 classes" },
        { "train --data digits --model mlp --device cpu --class-weights heavy", 1, "'heavy' is no weight" },
        { "train --data digits --model mlp --device cpu --ema 0.9 --swa-start 2", 1, "two averages" },
        { "train --data digits --model mlp --device cpu --swa-lr 0.1", 1, "swa_start is not given" },
        { "train --data digits --model mlp --device cpu --grad-accum 65", 1, "a batch of 64 samples cannot be cut" },
        { "train --data digits --model mlp --device cpu --lr 0", 2, "must be above 0" },
        { "train --data digits --model mlp --device cpu --class-weights 0,0,0,0,0,0,0,0,0,0", 1, "all are 0" },
        { "train --data digits --model mlp --device cpu --nesterov", 1, "nesterov is of sgd, but optimizer is adamw" },
        { "train --data digits --model mlp --device cpu --stochastic-rounding", 1, "but precision is f32" },
        { "train --data digits --model mlp --device cpu --kernels nowhere", 1, "which has none to load" },
        { "train --data digits --model mlp --device cpu --shadow null:2", 1, "device null computes nothing" },
        { "train --data digits --model mlp --device cpu --init kaiming", 1, "neither a file nor one of default" },
        { "train --data digits --model mobilenet_v2:1,2 --device cpu", 1, "width in percent: one positive number" },
        { "train --data digits --model lenet: --device cpu", 1, "nothing comes after lenet" },
        { "devices -- --all", 2, "one argument too many" },
    };
    char *const never = getenv("SWOOP_NO_TUNE") != NULL ? sw__strdup(getenv("SWOOP_NO_TUNE")) : NULL;
    setenv("SWOOP_NO_TUNE", "1", 1);
    assert_int_equal(run("tune --device cpu"), 2);
    has(err, "SWOOP_NO_TUNE");
    unsetenv("SWOOP_NO_TUNE");
    for (size_t i = 0; i < SW_COUNT(cases); i++) {
        char arguments[200];
        const int code = run(cases[i].arguments);
        if (code != cases[i].code) fail_msg("swoop %s: exit %d\n%s", cases[i].arguments, code, err);
        assert_memory_equal(err, "swoop: error: ", 14);
        has(err, cases[i].message);
        if (strstr(cases[i].arguments, "--json") == NULL) assert_string_equal(out, "");
        snprintf(arguments, sizeof arguments, "--json %s", cases[i].arguments);
        assert_int_equal(run(arguments), cases[i].code);
        json_t *const e = json_lines(out, "error");
        assert_int_equal((int)number(e, "code"), cases[i].code);
        has(json_string_value(json_object_get(e, "message")), cases[i].message);
        json_decref(e);
    }
    assert_false(there("runs")); /* none of them left anything */
    if (never != NULL) setenv("SWOOP_NO_TUNE", never, 1);
    sw__free(never);
}

static void test_bad_run_file(void **state)
{
    (void)state;
    FILE *const f = fopen("bad.yaml", "w");
    assert_non_null(f);
    fputs("model: mlp:16\ndata: digits\nepohcs: 2\n", f);
    fclose(f);
    assert_int_equal(run("train bad.yaml"), 1);
    has(err, "bad.yaml:3");
    has(err, "did you mean 'epochs'");
}

/* ---- devices
 * --------------------------------------------------------------------------------------------------------- */

static void test_devices(void **state)
{
    (void)state;
    must("devices");
    has(out, "DEVICE");
    has(out, "\ncpu ");
    has(out, "\ndefault: ");
    has_not(out, "\nref ");
    must("devices --all");
    has(out, "\nref ");
    must("devices --json --all");
    json_t *const list = json_lines(out, "devices");
    assert_true(json_array_size(list) >= 3);
    json_decref(list);
#ifdef SWOOP_HAVE_OPENCL /* what is not there is named, with what to install */
    const char *const library = getenv("SWOOP_OPENCL_LIBRARY");
    char *const kept = library != NULL ? sw__strdup(library) : NULL;
    assert_int_equal(setenv("SWOOP_OPENCL_LIBRARY", "none", 1), 0);
    must("devices");
    has(out, "no opencl: OpenCL cannot be opened");
    has(out, "ocl-icd-libopencl1");
    must("devices --json");
    json_t *const without = json_lines(out, "missing");
    assert_non_null(json_string_value(json_object_get(without, "opencl")));
    json_decref(without);
    assert_int_equal(kept != NULL ? setenv("SWOOP_OPENCL_LIBRARY", kept, 1) : unsetenv("SWOOP_OPENCL_LIBRARY"), 0);
    sw__free(kept);
#endif
    must("devices --quiet");
    assert_string_equal(out, "");
    assert_int_equal(setenv("SWOOP_DEVICE", "ref", 1), 0);
    must("devices");
    has(out, "default: ref");
    assert_int_equal(setenv("SWOOP_DEVICE", "nothing", 1), 0);
    assert_int_equal(run("devices"), 3);
    has(err, "nothing");
    unsetenv("SWOOP_DEVICE");
}

/* ---- train
 * ----------------------------------------------------------------------------------------------------------- */

static void test_train(void **state)
{
    (void)state;
    must("train " MLP "--epochs 2 --name plain");
    static const char *const labels[] = { "data    digits",
                                          "\nmodel   mlp:16",
                                          "\ntrain   ",
                                          "\ndevice  cpu",
                                          "\nrun     runs/plain\n",
                                          "\nepoch 1/2  loss ",
                                          "  acc ",
                                          "  val_loss ",
                                          "  val_acc ",
                                          "  lr ",
                                          " samples/s  input wait ",
                                          "  mem ",
                                          "\nepoch 2/2  ",
                                          "\nbest    epoch ",
                                          "runs/plain/best.safetensors",
                                          "\nnext    swoop eval runs/plain" };
    for (size_t i = 0; i < SW_COUNT(labels); i++) has(out, labels[i]);
    assert_string_equal(err, "");
    has_not(out, "\r");
    has_not(out, "\033");
    assert_true(there("runs/plain/best.safetensors") && there("runs/plain/last.safetensors") &&
                there("runs/plain/config.yaml"));
    must("train " MLP "--epochs 1 --name plain --val test -v --log-every 5");
    has(out, "run     runs/plain-2\n");
    has(out, "  test_loss ");
    has(out, "  test_acc ");
    has_not(out, "val_loss ");
    has(err, "step 5  epoch 1/1  loss ");
    must("train " MLP "--epochs 1 --quiet");
    assert_string_equal(out, "");
    assert_string_equal(err, "");
    must("train " MLP "--steps 1 -q --name one");
    must("train " MLP "--dry-run --name dry");
    has(out, "dry run");
    assert_false(there("runs/dry"));
}

static void test_train_json(void **state)
{
    (void)state;
    must("train " MLP "--epochs 2 --name json --json --test test");
    assert_int_equal(count(out, "{\"epoch\": {"), 2);
    json_t *const note = json_lines(out, "note"), *const epoch = json_lines(out, "epoch"),
                  *const result = json_lines(out, "result");
    assert_int_equal((int)number(epoch, "epoch"), 2);
    assert_true(number(epoch, "samples_per_second") > 0);
    assert_close(number(epoch, "loss"), number(result, "loss"), 1e-12);
    assert_close(number(epoch, "val_loss"), number(result, "val_loss"), 1e-12);
    assert_int_equal((int)number(result, "epochs"), 2);
    assert_true(number(result, "test_acc") >= 0 && number(result, "test_acc") <= 1);
    assert_string_equal(json_string_value(json_object_get(result, "folder")), "runs/json");
    json_decref(note);
    json_decref(epoch);
    json_decref(result);
    must("train " MLP "--epochs 2 --name json -q --json"); /* the result alone, and the same again */
    assert_int_equal(count(out, "\n"), 1);
    json_decref(json_lines(out, "result"));
}

/* --profile: on the terminal's side a table within 100 columns, with --json one more object; both are files of the run. */
static void test_train_profile(void **state)
{
    (void)state;
    must("train " MLP "--steps 8 --name prof --profile 5");
    has(out, "% of the time not in kernels");
    has(out, "peak, measured:");
    has(out, "all launches");
    has(out, "runs/prof/profile.txt");
    assert_true(there("runs/prof/profile.txt") && there("runs/prof/profile.json") && there("runs/prof/trace.json"));
    must("train " MLP "--steps 8 --name prof-json --profile 5 --json");
    json_t *const profile = json_lines(out, "profile"), *const result = json_lines(out, "result");
    assert_true(number(profile, "kernel_seconds") > 0);
    assert_true(number(json_object_get(profile, "peak"), "bandwidth") > 0);
    assert_true(json_array_size(json_object_get(profile, "launches")) > 0);
    json_decref(profile);
    json_decref(result);
}

static void test_run_file(void **state)
{
    (void)state;
    FILE *const f = fopen("run.yaml", "w");
    assert_non_null(f);
    fputs("model: mlp:16\ndata: digits\nepochs: 7\ndevice: cpu\nlr: 0.002\nname: file\n", f);
    fclose(f);
    must("train run.yaml --epochs=1 --batch_size 32 --print-config");
    has(out, "epochs: 1\n"); /* the command line wins, wherever it stands */
    has(out, "batch_size: 32\n");
    has(out, "lr: 0.002\n");
    assert_false(there("runs/file"));
    must("train --epochs=1 --batch-size 32 --config run.yaml --print-config >all.yaml");
    char *const first = slurp("all.yaml");
    must("train all.yaml --print-config");
    assert_string_equal(out, first);
    sw__free(first);
    must("train all.yaml");
    has(out, "runs/file");
    must("train all.yaml --print-config --json");
    json_t *const lr = json_lines(out, "lr");
    assert_close(json_number_value(lr), 0.002, 1e-12);
    json_decref(lr);
}

static void test_diverged(void **state)
{
    (void)state;
    assert_int_equal(run("train " MLP "--epochs 20 --optimizer sgd --lr 1e6 --clip-grad 0 --name nan"), 4);
    has(err, "swoop: error: the loss is ");
    must("train " MLP "--epochs 20 --optimizer sgd --lr 1e6 --name nan --on-nan=continue");
    has(err, "skipped ");
    assert_true(count(err, "skipped ") < 20);
}

/* ---- interrupting, resuming
 * ------------------------------------------------------------------------------------------ */

/* Starts "swoop ARGUMENTS" with stdout in `out` and stderr in `err`. */
static pid_t start(const char *arguments)
{
    char line[600];
    snprintf(line, sizeof line, "exec '%s' %s >out 2>err", SWOOP_COMMAND, arguments);
    unlink("out");
    unlink("err");
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void wait_for(pid_t pid, const char *file, const char *part)
{
    for (int i = 0; i < 6000; i++) {
        const struct timespec pause = { 0, 10000000 };
        nanosleep(&pause, NULL);
        if (!there(file)) continue;
        char *const text = slurp(file);
        const bool found = strstr(text, part) != NULL;
        sw__free(text);
        if (found) return;
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid) fail_msg("ended with %d before '%s'", status, part);
    }
    kill(pid, SIGKILL);
    fail_msg("'%s' did not come", part);
}

static void interrupt(const char *arguments, const char *second_epoch, int signal_number)
{
    int status;
    const pid_t pid = start(arguments);
    wait_for(pid, "out", second_epoch);
    assert_int_equal(kill(pid, signal_number), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    forget();
    out = slurp("out");
    err = slurp("err");
}

static void test_interrupt(void **state)
{
    (void)state;
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    long long step = 0;
    for (size_t i = 0; i < SW_COUNT(signals); i++) {
        interrupt("train " MLP "--epochs 100000 --schedule constant --name stopped --exist-ok", " 2/100000",
                  signals[i]);
        has(err, "finishing this step");
        const char *const at = strstr(err, "interrupted at step ");
        assert_non_null(at);
        step = strtoll(at + strlen("interrupted at step "), NULL, 10);
        assert_true(step > 0);
        has(err, "swoop train --resume runs/stopped");
    }
    char arguments[200];
    snprintf(arguments, sizeof arguments, "train --resume runs/stopped --steps %lld", step + 5);
    must(arguments);
    has(out, "change  steps ");
    has(out, "run     runs/stopped\n");
    has(out, "best    ");
    assert_int_equal(run("train --resume runs/stopped --lr 0.5"), 1);
    has(err, "lr was ");
    interrupt("train " MLP "--epochs 100000 --json", "\"epoch\": 2", SIGTERM);
    json_t *const e = json_lines(out, "error");
    assert_int_equal((int)number(e, "code"), 130);
    json_decref(e);
    must("train --resume --epochs 1"); /* the last run */
    has(out, "nothing was left to do");
    assert_int_equal(run("train --resume --epochs 1 --name other"), 1);
    has(err, "name was ");
}

/* A cosine schedule that has come down to 0 begins again, and says so, when the run is given more epochs. */
static void test_resume_finished(void **state)
{
    (void)state;
    must("train " MLP "--epochs 1 --name finished");
    has_not(out, "nothing was left");
    must("train --resume runs/finished --epochs 2");
    has(out, "epoch 2/2");
    has(err, "begins again at lr 0.001");
    must("train " MLP "--epochs 1 --name steady --schedule constant");
    must("train --resume runs/steady --epochs 2");
    assert_string_equal(err, "");
}

/* Every optimiser and schedule from the command: the run's own file gives the same run again, and it goes on from its
 * checkpoint. */
static void test_rules(void **state)
{
    (void)state;
    static const char *const schedules[] = { "constant", "step",       "linear",   "exponential",
                                             "polynomial", "restarts", "onecycle", "plateau" };
    for (int k = 0; k < SW_OPTIMIZER_COUNT; k++) {
        const char *const name = sw_optimizer_name((sw_optimizer_kind)k), *const schedule = schedules[k % 8];
        char line[300];
        snprintf(line, sizeof line, "train " MLP "--epochs 2 --optimizer %s --schedule %s --name r-%s", name,
                 schedule, name);
        must(line);
        has(out, name);
        snprintf(line, sizeof line, "runs/r-%s/config.yaml", name);
        char *const keys = slurp(line); /* what an optimiser has not stays auto, so that another can be chosen over it */
        assert_int_equal(strstr(keys, "momentum: auto") == NULL, k == SW_SGD || k == SW_RMSPROP);
        assert_int_equal(strstr(keys, "eps: auto") != NULL, k == SW_LION);
        sw__free(keys);
        assert_int_equal(strstr(out, "warmup") == NULL, strcmp(schedule, "onecycle") == 0);
        snprintf(line, sizeof line, "train runs/r-%s/config.yaml --name again-%s --epochs 2", name, name);
        must(line);
        snprintf(line, sizeof line, "cmp runs/r-%s/last.safetensors runs/again-%s/last.safetensors", name, name);
        assert_int_equal(system(line), 0);
        snprintf(line, sizeof line, "train --resume runs/r-%s --epochs 3", name);
        must(line);
        has(out, "epoch 3/3");
        snprintf(line, sizeof line, "train " MLP "--epochs 1 --name w-%s --weights runs/r-%s/checkpoint/state.safetensors",
                 name, name);
        must(line);
    }
}

/* Whoever reads the output goes away: as with Ctrl-C, the state is saved. */
static void test_closed_pipe(void **state)
{
    (void)state;
    must("devices; ('" SWOOP_COMMAND "' train " MLP
         "--epochs 100000 --name piped; echo $? >code) | head -n 1 >/dev/null");
    char *const code = slurp("code");
    assert_string_equal(code, "130\n");
    sw__free(code);
    has(err, "swoop train --resume runs/piped");
    must("train --resume runs/piped --epochs 1 --dry-run");
}

/* A closed standard stream does not become the first file that is opened: nothing is printed into log.txt. */
static void test_closed_streams(void **state)
{
    (void)state;
    assert_int_equal(run("train " MLP "--epochs 1 --name closed >&-"), 1);
    has(err, "could not be written");
    char *const log = slurp("runs/closed/log.txt");
    has(log, "epoch   1 ");
    has_not(log, "\nepoch ");
    has_not(log, "\nrun ");
    sw__free(log);
    must("train " MLP "--epochs 1 --name closed --exist-ok <&- 2>&-");
}

/* The first signal waits for the step; the second does not. */
static void test_second_signal_kills(void **state)
{
    (void)state;
    int status;
    const pid_t pid = start(
        "train --data digits --model mlp:1024,1024,1024 --batch-size 1024 --device ref --epochs 100 --name heavy");
    wait_for(pid, "out", "\nrun ");
    assert_int_equal(kill(pid, SIGINT), 0);
    wait_for(pid, "err", "once more");
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

/* ---- eval, predict
 * --------------------------------------------------------------------------------------------------- */

static void make_run(void)
{
    if (!there("runs/model")) must("train " MLP "--epochs 3 --lr 0.01 --name model");
}

/* Kernels to a folder, and a run from it. What needs a device is left out where there is none. */
static void test_kernels(void **state)
{
    (void)state;
    assert_int_equal(run("kernels --model mlp:4 --data digits --device cpu"), 2);
    has(err, "--out DIR");
    assert_int_equal(run("kernels --model mlp:4 --device cpu --out k"), 2);
    has(err, "no data");
    assert_int_equal(run("kernels --model mlp:4 --data digits --device cpu --out k"), 1);
    has(err, "compiles no kernels");
    assert_false(there("k"));
    must("devices --json");
    if (strstr(out, "opencl:0") == NULL) return;
    must("kernels --model mlp:4 --data digits --val-split 0 --drop-last true --device opencl:0 --out k");
    assert_true(there("k/manifest.json") && there("k/kernels.txt"));
    must("train --model mlp:4 --data digits --val-split 0 --drop-last true --device opencl:0 --kernels k --steps 3 -q");
    assert_int_equal(run("train --model mlp:5 --data digits --val-split 0 --device opencl:0 --kernels k --steps 3"), 1);
    has(err, "has no kernel");
}

/* Only NVIDIA's GPUs round to TF32: no other device takes the wish and leaves it unheard. */
static void test_tf32(void **state)
{
    (void)state;
    assert_int_equal(run("train " MLP "--precision tf32 --epochs 1"), 1);
    has(err, "device cpu has no TF32");
    assert_int_equal(run("train " MLP "--precision f8 --epochs 1"), 2);
    has(err, "f32|tf32|bf16|f16");
}

/* Mixed precision from key to model file, and what uses the model in the same precision. */
static void test_half(void **state)
{
    (void)state;
    must("train " MLP "--precision bf16 --epochs 2 --name half");
    has(out, "bf16");
    must("eval runs/half");
    has(out, "acc ");
    must("train " MLP "--precision f16 --epochs 2 --name half16");
    has(out, "loss scale");
    must("predict runs/half16 digits");
    must("plan --model mlp:16 --data digits --device cpu --precision f16");
    has(out, "run on f32 copies");
}

static void test_eval(void **state)
{
    (void)state;
    make_run();
    must("eval runs/model --threads 1");
    static const char *const parts[] = { "model   mlp:16, runs/model/best.safetensors\n",
                                         "data    digits, test: 355 samples\n",
                                         "\nloss    ",
                                         "\nacc     ",
                                         "precision     recall         F1    samples\n",
                                         "\nmacro mean ",
                                         "true \\ predicted" };
    for (size_t i = 0; i < SW_COUNT(parts); i++) has(out, parts[i]);
    must("eval runs/model --json --split val");
    json_t *const e = json_lines(out, "eval");
    const json_t *const confusion = json_object_get(e, "confusion"), *const classes = json_object_get(e, "classes");
    assert_int_equal(json_array_size(confusion), 10);
    assert_int_equal(json_array_size(classes), 10);
    int64_t all = 0, right = 0;
    for (size_t t = 0; t < 10; t++) {
        int64_t row = 0;
        for (size_t p = 0; p < 10; p++) row += json_integer_value(json_array_get(json_array_get(confusion, t), p));
        assert_int_equal(row, (int64_t)number(json_array_get(classes, t), "samples"));
        all += row;
        right += json_integer_value(json_array_get(json_array_get(confusion, t), t));
    }
    assert_int_equal(all, (int64_t)number(e, "samples"));
    assert_close((double)right / (double)all, number(e, "acc"), 1e-9);
    assert_string_equal(json_string_value(json_object_get(e, "split")), "val");
    json_decref(e);
    must("eval runs/model/best.safetensors --data digits --split train");
    has(out, "data    digits, train: ");
    assert_int_equal(run("eval runs/model/best.safetensors"), 1);
    has(err, "--data");
    must("eval runs/model -q");
    assert_string_equal(out, "");
}

static void test_predict(void **state)
{
    (void)state;
    make_run();
    must("predict runs/model digits");
    assert_int_equal(count(out, "\n"), 356);
    assert_memory_equal(out, "index,label,class,probability\n0,", 32);
    int labels[355];
    const char *p = strchr(out, '\n');
    for (int i = 0; i < 355; i++, p = strchr(p + 1, '\n')) {
        char *comma;
        assert_int_equal(strtol(p + 1, &comma, 10), i);
        assert_int_equal(*comma, ',');
        labels[i] = (int)strtol(comma + 1, &comma, 10);
        assert_int_equal(*comma, ',');
    }
    must("predict runs/model digits --out all.npy");
    has(out, "355 samples");
    sw_array a;
    assert_int_equal(sw_npy_read("all.npy", &a), SW_OK);
    assert_true(a.dtype == SW_F32 && a.rank == 2 && a.shape[0] == 355 && a.shape[1] == 10);
    for (int i = 0; i < 355; i++) {
        const float *const row = (const float *)a.data + i * 10;
        double sum = 0;
        int best = 0;
        for (int k = 0; k < 10; k++) {
            sum += (double)row[k];
            if (row[k] > row[best]) best = k;
        }
        assert_close(sum, 1, 1e-5);
        assert_int_equal(best, labels[i]);
    }
    sw_array_free(&a);
    must("predict runs/model --data digits --format jsonl --top all --out all.jsonl");
    char *const rows = slurp("all.jsonl");
    assert_int_equal(count(rows, "\n"), 355);
    json_t *const top = json_lines(rows, "top");
    assert_int_equal(json_array_size(top), 10);
    for (size_t k = 1; k < 10; k++) {
        assert_true(number(json_array_get(top, k - 1), "probability") >= number(json_array_get(top, k), "probability"));
    }
    assert_int_equal((int)number(json_array_get(top, 0), "label"), labels[354]);
    json_decref(top);
    sw__free(rows);
    must("predict runs/model digits --top 3");
    has(out, "index,label,class,probability,label_2,class_2,probability_2,label_3,class_3,probability_3\n");
    must("predict runs/model digits --json");
    json_decref(json_lines(out, "probability"));
    must("predict runs/model digits --json --out again.csv");
    json_decref(json_lines(out, "result"));
}

/* Values in place of classes, from plain NPY files; and a file without labels for prediction. */
static void test_values(void **state)
{
    (void)state;
    float x[64][3], y[64];
    uint8_t images[2][8][8] = { { { 0 } } };
    for (int i = 0; i < 64; i++) {
        for (int k = 0; k < 3; k++) x[i][k] = (float)((i * 7 + k * 13) % 11) - 5;
        y[i] = 2 * x[i][0] - x[i][2];
    }
    const sw_array ax = { .dtype = SW_F32, .rank = 2, .shape = { 64, 3 }, .data = x, .bytes = sizeof x };
    const sw_array ay = { .dtype = SW_F32, .rank = 1, .shape = { 64 }, .data = y, .bytes = sizeof y };
    const sw_array ai = { .dtype = SW_U8, .rank = 3, .shape = { 2, 8, 8 }, .data = images, .bytes = sizeof images };
    assert_int_equal(sw_npy_write("x.npy", &ax), SW_OK);
    assert_int_equal(sw_npy_write("y.npy", &ay), SW_OK);
    assert_int_equal(sw_npy_write("images.npy", &ai), SW_OK);
    must("train --model mlp:8 --data x.npy:y.npy --device cpu --threads 1 --epochs 2 --name values");
    has(out, "val_loss");
    has_not(out, "acc");
    must("eval runs/values --threads 1");
    has(out, "\nloss    ");
    has_not(out, "acc");
    must("predict runs/values x.npy --threads 1");
    assert_memory_equal(out, "index,value\n0,", 14);
    assert_int_equal(count(out, "\n"), 65);
    must("predict runs/values x.npy --format jsonl");
    json_decref(json_lines(out, "value"));
    must("predict runs/values x.npy --out values.npy");
    sw_array a;
    assert_int_equal(sw_npy_read("values.npy", &a), SW_OK);
    assert_true(a.rank == 2 && a.shape[0] == 64 && a.shape[1] == 1);
    sw_array_free(&a);
    make_run();
    must("predict runs/model images.npy");
    assert_int_equal(count(out, "\n"), 3);
    assert_int_equal(run("predict runs/model x.npy"), 1);
    has(err, "x.npy");
}

static void write_npy(const char *path, sw_dtype type, int rank, int64_t rows, int64_t columns, void *data)
{
    const sw_array a = { .dtype = type,
                         .rank = rank,
                         .shape = { rows, columns },
                         .data = data,
                         .bytes = (size_t)(rows * columns) * sw_dtype_size(type) };
    assert_int_equal(sw_npy_write(path, &a), SW_OK);
}

/* Validation and test data of their own: single files have no splits; they must be of the training data's kind. */
static void test_data_beside(void **state)
{
    (void)state;
    enum { N = 60, M = 4 };
    float x[N][M], values[N];
    int64_t y[N], more[N];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < M; k++) x[i][k] = (float)((i * 7 + k * 3) % 11);
        y[i] = i % 3;
        more[i] = i % 4;
        values[i] = (float)i / (float)N;
    }
    write_npy("bx.npy", SW_F32, 2, N, M, x);
    write_npy("narrow.npy", SW_F32, 2, N, M / 2, x);
    write_npy("by.npy", SW_I64, 1, N, 1, y);
    write_npy("more.npy", SW_I64, 1, N, 1, more);
    write_npy("values.npy", SW_F32, 1, N, 1, values);
    must("train --model mlp:4 --data bx.npy:by.npy --val bx.npy:by.npy --test bx.npy:by.npy --epochs 1 --name beside");
    has(out, "60 train, 60 val (bx.npy:by.npy)");
    has(out, "test    loss ");
    assert_int_equal(run("train --model mlp:4 --data bx.npy:by.npy --val narrow.npy:by.npy"), 1);
    has(err, "its samples are 2, but those of bx.npy:by.npy are 4");
    assert_int_equal(run("train --model mlp:4 --data bx.npy:by.npy --val bx.npy:more.npy"), 1);
    has(err, "there are 3 classes");
    assert_int_equal(run("train --model mlp:4 --data bx.npy:by.npy --test bx.npy:values.npy"), 1);
    has(err, "its answers are values");
    must("train --model mlp:4 --data bx.npy:by.npy --val-split 0 --monitor val_acc --epochs 2 --swa-start 3 --device cpu");
    has(err, "no validation set: the best epoch is chosen by the training figure instead of val_acc");
    has(err, "swa_start is epoch 3, but training ends with epoch 2");
    assert_int_equal(run("train --model mlp:4 --data bx.npy:values.npy --monitor val_acc"), 1);
    has(err, "have no accuracy");
    assert_int_equal(run("train --model mlp:4 --data bx.npy:values.npy --loss cross_entropy"), 1);
    has(err, "use mse");
}

/* A value for each pixel: the model file says how many channels, not how many values. */
static void test_pixels(void **state)
{
    (void)state;
    static float x[6 * 32];
    for (int i = 0; i < 6 * 32; i++) x[i] = (float)((i * 7) % 11);
    const sw_array a = { .dtype = SW_F32, .rank = 4, .shape = { 6, 1, 4, 8 }, .data = x, .bytes = sizeof x };
    assert_int_equal(sw_npy_write("pixels.npy", &a), SW_OK);
    must("train --model unet:2,1 --data pixels.npy:pixels.npy --val-split 0.5 --epochs 1 --device cpu --name pixels");
    must("eval runs/pixels");
    has(out, "\nloss    ");
    must("predict runs/pixels pixels.npy --out pixels-out.npy");
    sw_array p;
    assert_int_equal(sw_npy_read("pixels-out.npy", &p), SW_OK);
    assert_true(p.rank == 2 && p.shape[0] == 6 && p.shape[1] == 32);
    sw_array_free(&p);
}

/* An output that cannot be written is an error, and leaves no half of a file. */
static void test_output_fails(void **state)
{
    (void)state;
    make_run();
    assert_int_equal(run("predict runs/model digits --out nowhere/x.csv"), 1);
    has(err, "nowhere/x.csv");
    assert_int_equal(run("predict runs/model digits --out nowhere/x.npy"), 1);
    assert_int_equal(mkfifo("pipe", 0600), 0); /* what is no file stays what it is */
    assert_int_equal(run("predict runs/model digits --out pipe --format npy"), 1);
    has(err, "pipe");
    struct stat s;
    assert_int_equal(stat("pipe", &s), 0);
    assert_true(S_ISFIFO(s.st_mode));
    assert_int_equal(run("predict runs/model --device null"), 3);
    assert_int_equal(run("eval runs/model --device null"), 3);
    if (!there("/dev/full")) return;
    assert_int_equal(run("predict runs/model digits >/dev/full"), 1);
    has(err, "No space left");
    assert_int_equal(run("eval runs/model >/dev/full"), 1);
    assert_int_equal(run("devices >/dev/full"), 1);
    assert_int_equal(run("predict runs/model digits --out /dev/full"), 1);
}

/* ---- the terminal
 * ---------------------------------------------------------------------------------------------------- */

/* Runs the command on a terminal of so many columns; everything that it wrote, in `out`. */
static int on_terminal(const char *arguments, unsigned short columns)
{
    const struct winsize size = { .ws_row = 24, .ws_col = columns };
    char line[600], block[4096];
    int master, status;
    snprintf(line, sizeof line, "exec '%s' %s", SWOOP_COMMAND, arguments);
    const pid_t pid = forkpty(&master, NULL, NULL, &size);
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    sw__text t = { 0 };
    for (ssize_t n; (n = read(master, block, sizeof block)) > 0 || (n < 0 && errno == EINTR);) {
        if (n > 0) sw__text_put(&t, block, (size_t)n);
    }
    close(master);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    forget();
    assert_false(t.failed);
    out = t.s != NULL ? t.s : sw__strdup("");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A GPU's first compile is announced: on a terminal in passing, elsewhere with -v; and no second time. */
static void test_compiling(void **state)
{
    (void)state;
    must("devices --json");
    if (strstr(out, "opencl:0") == NULL) return;
    const char *const old = getenv("SWOOP_CACHE_DIR");
    char *const kept = old != NULL ? sw__strdup(old) : NULL;
    const char *const train = "train --model mlp:7 --data digits --val-split 0.2 --device opencl:0 --steps 2";
    char line[200];
    assert_int_equal(setenv("SWOOP_CACHE_DIR", "cold", 1), 0);
    snprintf(line, sizeof line, "%s -v", train);
    must(line);
    has(err, "compiled ");
    has(err, " kernels for ");
    has(err, " s (cached for the next time)\n");
    must(line);
    assert_null(strstr(err, "compil"));
    assert_int_equal(setenv("SWOOP_CACHE_DIR", "colder", 1), 0);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_int_equal(on_terminal(train, 60), 0);
    has(out, "\r\033[Kcompiling ");
    char *const at = strstr(out, "compiling ");
    at[strcspn(at, "\r\n")] = '\0';
    assert_in_range(longest(at, false), 20, 60);
    if (kept != NULL) assert_int_equal(setenv("SWOOP_CACHE_DIR", kept, 1), 0);
    else assert_int_equal(unsetenv("SWOOP_CACHE_DIR"), 0);
    sw__free(kept);
}

static void test_terminal(void **state)
{
    (void)state;
    static const unsigned short columns[] = { 80, 60, 132 };
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_int_equal(setenv("LC_ALL", "C.UTF-8", 1), 0);
    for (size_t i = 0; i < SW_COUNT(columns); i++) {
        assert_int_equal(
            on_terminal("train --model mlp:64 --data digits --device ref --epochs 6 --lr 0.1 --name screen",
                        columns[i]),
            0);
        has(out, "\repoch 1/6  ");
        has(out, "\xe2\x94\x80"); /* the bar */
        has(out, "eta ");
        has(out, "\033[K");
        has(out, "\033[1m");                         /* colours */
        assert_int_equal(count(out, "val_loss"), 7); /* six epochs and the best */
        if (longest(out, false) > columns[i]) fail_msg("%d columns of %d:\n%s", longest(out, false), columns[i], out);
        assert_true(longest(out, true) <= columns[i] - 3); /* ^C has room behind it */
    }
    assert_int_equal(on_terminal("devices --all", 80), 0);
    assert_true(longest(out, false) <= 80);
    assert_int_equal(on_terminal("plan --model resnet8 --shape 3x32x32 --num-classes 10 --batch-size 64 --memory 30M "
                                 "--device cpu", 80), 0);
    has(out, "fullest at launch ");
    assert_true(longest(out, false) <= 80);
    assert_int_equal(setenv("NO_COLOR", "1", 1), 0);
    assert_int_equal(on_terminal("train --model mlp:64 --data digits --device ref --epochs 2 --name screen", 80), 0);
    has_not(out, "\033[1m");
    unsetenv("NO_COLOR");
    assert_int_equal(on_terminal("eval runs/screen --device ref --no-color", 80), 0);
    has_not(out, "\033");
    assert_int_equal(setenv("LC_ALL", "C", 1), 0); /* ASCII, then */
    assert_int_equal(on_terminal("train --model mlp:64 --data digits --device ref --epochs 2 --name screen", 80), 0);
    has(out, "--------");
    for (const char *p = out; *p != '\0'; p++) assert_true((*p & 0x80) == 0);
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    assert_int_equal(on_terminal("train --model mlp:64 --data digits --device ref --epochs 2 --name screen", 80), 0);
    has_not(out, "\033");
}

/* ---- the fresh folder
 * ------------------------------------------------------------------------------------------------ */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),         cmocka_unit_test(test_errors),
        cmocka_unit_test(test_bad_run_file), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_train),        cmocka_unit_test(test_train_json), cmocka_unit_test(test_train_profile),
        cmocka_unit_test(test_run_file),     cmocka_unit_test(test_diverged),
        cmocka_unit_test(test_interrupt),    cmocka_unit_test(test_second_signal_kills),
        cmocka_unit_test(test_kernels), cmocka_unit_test(test_tf32), cmocka_unit_test(test_half),        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_pixels), cmocka_unit_test(test_output_fails),
        cmocka_unit_test(test_terminal),     cmocka_unit_test(test_resume_finished), cmocka_unit_test(test_rules),
        cmocka_unit_test(test_compiling),
        cmocka_unit_test(test_closed_pipe),  cmocka_unit_test(test_closed_streams),
        cmocka_unit_test(test_data_beside),
    };
    return cmocka_run_group_tests_name("cli", tests, set_up, tear_down);
}
