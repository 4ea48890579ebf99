/* kernels.c: `swoop kernels`: writes the kernels of a run to a folder, for compilers that run elsewhere.
 * Over sw_run_kernels. */
#include "progress.h"

static int write_kernels(sw_config *c, void *context)
{
    const char *const folder = *(const char **)context;
    progress p;
    if (folder == NULL) return cli_error(CLI_USAGE, "where to? --out DIR names the folder for the kernels");
    if (*sw_config_text(c, SW_KEY_DATA) == '\0')
        return cli_error(CLI_USAGE, "there is no data, which says how large batches are: --data fashion-mnist, or yours\n"
                                    "  swoop kernels --help has examples");
    progress_init(&p, c);
    const sw_run_callbacks callbacks = { .note = progress_note, .context = &p };
    const sw_status st = sw_run_kernels(c, folder, &callbacks);
    progress_clear(&p);
    if (st != SW_OK) return cli_fail(st, sw_config_text(c, SW_KEY_DEVICE));
    if (cli.json) {
        cli_json_open(stdout, NULL, '{');
        cli_json_text(stdout, "kernels", folder);
        cli_json_close(stdout, '}');
    } else if (!cli.quiet) {
        printf("kernels %s, with manifest.json    swoop train ... --kernels %s runs them\n", folder, folder);
    }
    return CLI_GOOD;
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *folder;
    static const cli_option options[] = {
        { "out", "DIR", "folder to write to; made if it is not there", CLI_TEXT, &folder, 0, 0 },
        { NULL, NULL, NULL, CLI_FLAG, NULL, 0, 0 },
    };
    return cli_with_config(self, options, NULL, argc, argv, write_kernels, &folder);
}

const cli_command cli_kernels = {
    .name = "kernels",
    .about = "write a run's GPU kernels as source and binary",
    .usage = "[RUN.yaml] --device DEVICE --out DIR [--KEY VALUE ...]",
    .text = "Compiles every program that the run would use on its device, for training and evaluation, and writes each as "
            "source and, where the driver gives it, as binary, with a manifest of all launches. For FPGAs and other "
            "offline compilers: put what they make beside the source as NAME.bin. --kernels DIR makes train run from such a "
            "folder.",
    .examples = "swoop kernels run.yaml --device cuda:0 --out kernels\n"
                "swoop kernels --model lenet --data digits --device opencl:0 --out kernels\n"
                "swoop train run.yaml --device opencl:0 --kernels kernels",
    .run = run,
};
