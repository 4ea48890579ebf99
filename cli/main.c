/* main.c: the command `swoop`: picks a command from the table and runs it.
 * At the top of the house; the commands are in files of their own. */
#include "cli.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_command *const commands[] = { &cli_train, &cli_eval, &cli_predict, &cli_devices, &cli_plan,
                                             &cli_kernels, &cli_tune, &cli_verify };

static const cli_command *find(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(commands); i++) {
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    }
    return NULL;
}

static int help(FILE *f, int code)
{
    const char *const bold = cli_paint(f, CLI_BOLD), *const plain = cli_paint(f, CLI_PLAIN);
    fprintf(f, "%sswoop%s trains and runs deep neural networks.\n\n%sswoop COMMAND [options]%s\n\n", bold, plain, bold,
            plain);
    for (size_t i = 0; i < CLI_COUNT(commands); i++) fprintf(f, "  %-10s %s\n", commands[i]->name, commands[i]->about);
    fprintf(f,
            "\n%sExamples%s\n"
            "  swoop train --model lenet --data fashion-mnist --epochs 5\n"
            "  swoop eval runs/train\n"
            "  swoop predict runs/train fashion-mnist --top 3\n"
            "  swoop devices\n"
            "  swoop plan --model resnet18 --shape 3x32x32 --num-classes 10\n"
            "\nswoop COMMAND --help says more about one; swoop --version prints the version.\n",
            bold, plain);
    return code;
}

static int unknown(const char *name)
{
    const char *names[CLI_COUNT(commands)];
    for (size_t i = 0; i < CLI_COUNT(commands); i++) names[i] = commands[i]->name;
    const char *const near = cli_nearest(name, names, CLI_COUNT(commands));
    if (near != NULL) return cli_error(CLI_USAGE, "unknown command '%.100s'; did you mean '%s'?", name, near);
    return cli_error(CLI_USAGE, "unknown command '%.100s'\n  swoop --help lists the commands", name);
}

static int run(int argc, char **argv)
{
    static char *help_arguments[] = { NULL, "--help", NULL };
    int i = 1; /* --json and the like may stand in front of the command, and count there (cli_start) */
    while (i < argc && (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--no-color") == 0)) i++;
    if (i >= argc) return help(stderr, CLI_USAGE);
    const char *const name = argv[i];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return help(stdout, CLI_GOOD);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("swoop %s\n", sw_version());
        return CLI_GOOD;
    }
    if (strcmp(name, "help") == 0) {
        const cli_command *const about = i + 1 < argc ? find(argv[i + 1]) : NULL;
        if (i + 1 >= argc) return help(stdout, CLI_GOOD);
        if (about == NULL) return unknown(argv[i + 1]);
        return about->run(about, 2, help_arguments);
    }
    const cli_command *const command = find(name);
    if (command != NULL) return command->run(command, argc - i, argv + i);
    if (name[0] == '-')
        return cli_error(CLI_USAGE, "unknown option %.100s; the command comes first: swoop COMMAND [options]", name);
    return unknown(name);
}

/* Threads of libgomp that wait spin for milliseconds, which on a machine with other work makes a step ten times slower; a
 * thousand turns are enough on an idle one (docs/decisions/021-spinning.md). It reads its environment when it is loaded, that
 * is before main: so the command starts itself anew, once. */
static void wait_briefly(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL) return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0) (void)execv("/proc/self/exe", argv); /* or else as it is */
}

/* PoCL wakes its threads for every kernel, and beside other work the system puts them on one processor, where one waits for
 * the other (docs/decisions/038-pocl-threads.md). Each gets a processor of its own; PoCL counts them from 0, so only where
 * the process may use all. */
static void spread_pocl(void)
{
    cpu_set_t set;
    const long n = sysconf(_SC_NPROCESSORS_CONF);
    if (getenv("POCL_AFFINITY") != NULL || getenv("POCL_MAX_PTHREAD_COUNT") != NULL) return;
    if (n < 1 || n > CPU_SETSIZE || sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != n) return;
    (void)setenv("POCL_AFFINITY", "1", 1);
}

int main(int argc, char **argv)
{
    wait_briefly(argv);
    spread_pocl();
    cli_start(argc, argv);
    sw_on_build(cli_on_build, NULL);
    return cli_finish(run(argc, argv));
}
