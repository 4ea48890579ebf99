/* cu_call.c: how every call of the fake libcuda begins and ends: the lock, the settings of the environment, injected
 * failures, reports, the sticky error, and what is said when the process ends. See cu.h. */
#include "cu.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

fk_settings fk_set;
CUresult fk_sticky = CUDA_SUCCESS;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int depth; /* of the lock */
static long n_reports;
static int exit_status;
static pid_t process;
static bool initialised;
static uint64_t random_state;

enum { MOST_REPORTS = 40, MOST_FAILURES = 16, MOST_NAMES = 256 };
static struct { char name[48]; long at, calls; int code; } failures[MOST_FAILURES];
static int n_failures;
static struct { char name[48]; long calls; } counts[MOST_NAMES];
static long n_calls;

/* ---- lock, settings ---------------------------------------------------------------------------------------------- */

void fk_lock(void)
{
    pthread_mutex_lock(&lock);
    depth++;
}

void fk_unlock(void)
{
    depth--;
    pthread_mutex_unlock(&lock);
}

void fk_pause(void)
{
    const int held = depth;
    for (int i = 0; i < held; i++) fk_unlock();
    usleep(50);
    for (int i = 0; i < held; i++) fk_lock();
}

static uint64_t number(const char *name, uint64_t other)
{
    const char *const text = getenv(name);
    return text != NULL && *text != '\0' ? fk_gpu_bytes(text) : other;
}

/* CUDA_VISIBLE_DEVICES: numbers, in the order in which they are then known; the first bad one ends the list. */
static void choose_devices(int n)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int sm[FK_DEVICES];
    for (int i = 0; i < n; i++) fk_set.physical[i] = i;
    fk_set.n_devices = n;
    if (text == NULL) return;
    memcpy(sm, fk_set.sm, sizeof sm);
    fk_set.n_devices = 0;
    while (*text != '\0' && fk_set.n_devices < n) {
        char *end;
        const long i = strtol(text, &end, 10);
        if (end == text || i < 0 || i >= n) break;
        fk_set.physical[fk_set.n_devices] = (int)i;
        fk_set.sm[fk_set.n_devices++] = sm[i];
        text = *end == ',' ? end + 1 : end;
    }
}

static void note_status(int status, void *data)
{
    (void)data;
    exit_status = status;
}

__attribute__((constructor)) static void begin(void)
{
    fk_set.memory = number("FAKECUDA_MEM", 0);
    fk_set.instructions = number("FAKECUDA_INSTRUCTIONS", 1u << 28);
    fk_set.operations = (uint32_t)number("FAKECUDA_OPERATIONS", FK_SEQ_MAX);
    fk_set.driver = (int)number("FAKECUDA_DRIVER", CUDA_VERSION);
    fk_set.strict = number("FAKECUDA_STRICT", 0) != 0;
    fk_set.races = number("FAKECUDA_RACES", 1) != 0;
    fk_set.uninit = number("FAKECUDA_UNINIT", 0) != 0;
    fk_set.poison = number("FAKECUDA_POISON", 0) != 0;
    random_state = number("FAKECUDA_SEED", 1);
    choose_devices(fk_gpu_list(fk_set.sm, FK_DEVICES));
    fk_fail_set(getenv("FAKECUDA_FAIL"));
    process = getpid();
    on_exit(note_status, NULL);
}

/* Runs after the handlers that the program itself gave to atexit, so what these release is no leak. */
__attribute__((destructor)) static void end(void)
{
    if (process != getpid()) return; /* a fork that never was CUDA's */
    fk_leaks(-1);
    if (n_reports > 0) fprintf(stderr, "fakecuda: %ld reports\n", n_reports);
    if (n_reports == 0 || !fk_set.strict || exit_status != 0) return;
    fflush(NULL);
    _exit(97);
}

/* splitmix64 */
FK_EXPORT uint64_t fk_random(void)
{
    fk_lock();
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    fk_unlock();
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

FK_EXPORT void fk_seed(uint64_t seed)
{
    fk_lock();
    random_state = seed;
    fk_unlock();
}

uint64_t fk_random_below(uint64_t n)
{
    return fk_random() % n;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

FK_EXPORT void fk_report(const char *fmt, ...)
{
    fk_lock();
    if (++n_reports <= MOST_REPORTS) {
        va_list args;
        fputs("fakecuda: ", stderr);
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fputc('\n', stderr);
    }
    if (n_reports == MOST_REPORTS) fputs("fakecuda: further reports are only counted\n", stderr);
    fk_unlock();
}

FK_EXPORT long fk_reports(void)
{
    return n_reports;
}

CUresult fk_misuse(const fk_guard *g, CUresult code, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fk_report("%s: %s", g->name, text);
    return code;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* The name without _v2 and the like. */
static void plain_name(const char *name, char out[48])
{
    snprintf(out, 48, "%s", name);
    char *const v = strrchr(out, '_');
    if (v != NULL && v[1] == 'v' && v[2] >= '0' && v[2] <= '9') *v = '\0';
}

static void add_failure(const char *text, size_t n)
{
    char copy[96], *colon;
    snprintf(copy, sizeof copy, "%.*s", (int)n, text);
    colon = strchr(copy, ':');
    if (colon == NULL || n_failures == MOST_FAILURES) {
        fprintf(stderr, "fakecuda: FAKECUDA_FAIL: '%s' is not function:n:code\n", copy);
        return;
    }
    *colon = '\0';
    plain_name(copy, failures[n_failures].name);
    failures[n_failures].at = strtol(colon + 1, &colon, 10);
    failures[n_failures].code = *colon == ':' ? (int)strtol(colon + 1, NULL, 10) : CUDA_ERROR_UNKNOWN;
    failures[n_failures++].calls = 0;
}

FK_EXPORT void fk_fail_set(const char *spec)
{
    fk_lock();
    n_failures = 0;
    n_calls = 0;
    memset(counts, 0, sizeof counts);
    while (spec != NULL && *spec != '\0') {
        const size_t n = strcspn(spec, ",");
        add_failure(spec, n);
        spec += n;
        spec += *spec == ',';
    }
    fk_unlock();
}

static void count(const char *name)
{
    n_calls++;
    for (int i = 0; i < MOST_NAMES; i++) {
        if (counts[i].name[0] == '\0') memcpy(counts[i].name, name, sizeof counts[i].name);
        if (strcmp(counts[i].name, name) != 0) continue;
        counts[i].calls++;
        return;
    }
}

FK_EXPORT int fk_fail(const char *function)
{
    char name[48];
    int code = 0;
    plain_name(function, name);
    fk_lock();
    count(name);
    for (int i = 0; i < n_failures; i++) {
        if (strcmp(failures[i].name, name) != 0 && strcmp(failures[i].name, "*") != 0) continue;
        if (++failures[i].calls == failures[i].at) code = failures[i].code;
    }
    fk_unlock();
    return code;
}

FK_EXPORT long fk_calls(const char *function)
{
    char name[48];
    long n = 0;
    if (function == NULL) return n_calls;
    plain_name(function, name);
    fk_lock();
    for (int i = 0; i < MOST_NAMES; i++)
        if (strcmp(counts[i].name, name) == 0) n = counts[i].calls;
    fk_unlock();
    return n;
}

/* ---- enter and leave --------------------------------------------------------------------------------------------- */

bool fk_is_sticky(CUresult code)
{
    return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_ADDRESS ||
           code == CUDA_ERROR_LAUNCH_TIMEOUT || code == CUDA_ERROR_ASSERT ||
           (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

FK_EXPORT void fk_lose(int code)
{
    fk_lock();
    if (fk_sticky == CUDA_SUCCESS) fk_sticky = (CUresult)code;
    fk_unlock();
}

FK_EXPORT void fk_heal(void)
{
    fk_lock();
    fk_sticky = CUDA_SUCCESS;
    fk_unlock();
}

static CUresult may_call(const fk_guard *g, int flags)
{
    if ((flags & FK_NO_INIT) == 0 && !initialised)
        return fk_misuse(g, CUDA_ERROR_NOT_INITIALIZED, "called before cuInit");
    if ((flags & FK_NO_INIT) == 0 && process != getpid())
        return fk_misuse(g, CUDA_ERROR_NOT_INITIALIZED, "called in a fork of the process that called cuInit");
    if (fk_sticky != CUDA_SUCCESS && (flags & (FK_ANYWAY | FK_RELEASE)) == 0) return fk_sticky;
    if (g->told != CUDA_SUCCESS && (flags & FK_RELEASE) == 0) return g->told;
    if ((flags & FK_CONTEXT) != 0 && fk_current == NULL)
        return fk_misuse(g, CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread");
    if ((flags & FK_CONTEXT) != 0 && !fk_current->o.live)
        return fk_misuse(g, CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was released");
    fk_graph *const capture = (flags & FK_UNSAFE) != 0 ? fk_capture_forbids(false) : NULL;
    return capture == NULL ? CUDA_SUCCESS
                           : fk_capture_break(g, capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                              "forbidden while a stream is capturing");
}

fk_guard fk_enter(const char *name, int flags)
{
    fk_guard g = { .code = CUDA_SUCCESS };
    fk_lock();
    plain_name(name, g.name);
    g.told = (CUresult)fk_fail(g.name);
    if (fk_is_sticky(g.told)) fk_lose((int)g.told);
    g.code = may_call(&g, flags);
    return g;
}

void fk_leave(fk_guard *g)
{
    (void)g;
    fk_unlock();
}

CUresult fk_result(const fk_guard *g, CUresult code)
{
    if (g->told != CUDA_SUCCESS) return g->told;
    return fk_sticky != CUDA_SUCCESS ? fk_sticky : code;
}

FK_EXPORT CUresult CUDAAPI cuInit(unsigned int flags)
{
    FK_ENTER(FK_NO_INIT);
    if (flags != 0) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    if (fk_set.n_devices <= 0) return CUDA_ERROR_NO_DEVICE;
    initialised = true;
    process = getpid();
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    FK_ENTER(FK_NO_INIT | FK_ANYWAY);
    if (version == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the version");
    *version = fk_set.driver;
    return CUDA_SUCCESS;
}

/* NVRTC opens the driver too, and asks for tables that only the real one has. */
FK_EXPORT CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *id)
{
    FK_ENTER(FK_NO_INIT | FK_ANYWAY);
    (void)id;
    if (table != NULL) *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
