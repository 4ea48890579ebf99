/* build.c: says that a GPU's kernels are being compiled, which takes seconds once per device and network: a line that
 * goes away on a terminal, a line with -v elsewhere. Told by the library (sw_on_build); main.c connects the two. */
#include "cli.h"

enum { WORTH_TELLING = 2 }; /* seconds; who waited that long may know afterwards why */

static void put_line(const sw_build_event *e)
{
    const int room = cli_columns() - 32; /* a line that is longer would not go away as a whole */
    const bool cut = cli.tty_err && !e->done && room > 0 && cli_width(e->device) > (size_t)room;
    fprintf(stderr, "%s %d %s for ", e->done ? "compiled" : "compiling", e->kernels,
            e->kernels == 1 ? "kernel" : "kernels");
    if (cut) cli_pad(stderr, e->device, room, false);
    else cli_put(stderr, e->device);
    if (!e->done) fprintf(stderr, " %s", cli_sign("\xe2\x80\xa6", "..."));
    else fprintf(stderr, " in %.1f s%s", e->seconds, e->kept ? " (cached for the next time)" : "");
}

void cli_on_build(void *context, const sw_build_event *e)
{
    (void)context;
    if (cli.quiet) return;
    const bool tell = e->done && !e->failed && (cli.verbose > 0 || (cli.tty_err && e->seconds >= WORTH_TELLING));
    if (cli.tty_err) fputs("\r\033[K", stderr);
    if (tell || (cli.tty_err && !e->done)) put_line(e);
    if (tell) fputc('\n', stderr);
    fflush(stderr);
}
