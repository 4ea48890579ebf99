/* nvrtc.c: libnvrtc.so.13 of the double: passes on to the toolkit's own library, and puts the PTX in front of the CUBIN
 * ("FKCUBIN", NUL, PTX, NUL, the real CUBIN), which the fake libcuda runs; who asks takes it for an opaque image. */
#include "fake.h"

#include <nvrtc.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED 0
#endif

#define EXPORT __attribute__((visibility("default")))

static const char mark[8] = "FKCUBIN"; /* with its NUL */
static void *real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the real library -------------------------------------------------------------------------------------------- */

/* By its full path, past this one; deep binding, or it would find its own functions here. */
static bool open_at(const char *folder, const char *sub)
{
    char path[1024];
    if (folder == NULL || real != NULL) return real != NULL;
    snprintf(path, sizeof path, "%s/%slibnvrtc.so.13", folder, sub);
    const int deep = SANITIZED ? 0 : RTLD_DEEPBIND; /* address sanitizer refuses it */
    real = dlopen(path, RTLD_NOW | RTLD_LOCAL | deep);
    return real != NULL;
}

static void open_real(void)
{
    static const char *const variables[] = { "FAKECUDA_TOOLKIT", "CUDA_HOME", "CUDA_PATH" };
    static const char *const folders[] = { "/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-13.0", "/opt/cuda",
                                           "/usr" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (open_at(getenv(variables[i]), "lib64/") || open_at(getenv(variables[i]), "lib/")) return;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (open_at(folders[i], "lib64/") || open_at(folders[i], "lib/") ||
            open_at(folders[i], "lib/x86_64-linux-gnu/"))
            return;
    fprintf(stderr, "fakecuda: no libnvrtc.so.13 in CUDA_HOME, CUDA_PATH or /usr/local/cuda: nothing compiles\n");
}

static void *find(const char *name)
{
    pthread_once(&once, open_real);
    return real != NULL ? dlsym(real, name) : NULL;
}

/* FAKECUDA_FAIL counts these calls with the driver's, if that is there. */
static nvrtcResult told(const char *name)
{
    int (*fail)(const char *) = NULL;
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *const symbol = driver != NULL ? dlsym(driver, "fk_fail") : NULL;
    if (symbol == NULL) return NVRTC_SUCCESS;
    memcpy(&fail, &symbol, sizeof fail);
    return (nvrtcResult)fail(name);
}

/* Leaves the function where it is to fail or there is no library; otherwise real_ is the real function. */
#define ENTER(name)                                                                                                    \
    __typeof__(&name) real_;                                                                                           \
    void *const symbol_ = find(#name);                                                                                 \
    const nvrtcResult told_ = told(#name);                                                                             \
    if (told_ != NVRTC_SUCCESS) return told_;                                                                          \
    if (symbol_ == NULL) return NVRTC_ERROR_INTERNAL_ERROR;                                                            \
    memcpy(&real_, &symbol_, sizeof real_)

#define PASS(name, parameters, args)                                                                                   \
    EXPORT nvrtcResult name parameters                                                                                 \
    {                                                                                                                  \
        ENTER(name);                                                                                                   \
        return real_ args;                                                                                             \
    }

PASS(nvrtcVersion, (int *major, int *minor), (major, minor))
PASS(nvrtcCreateProgram,
     (nvrtcProgram *program, const char *text, const char *name, int n, const char *const *headers,
      const char *const *names),
     (program, text, name, n, headers, names))
PASS(nvrtcDestroyProgram, (nvrtcProgram *program), (program))
PASS(nvrtcCompileProgram, (nvrtcProgram program, int n, const char *const *options), (program, n, options))
PASS(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *bytes), (program, bytes))
PASS(nvrtcGetProgramLog, (nvrtcProgram program, char *log), (program, log))
PASS(nvrtcGetPTXSize, (nvrtcProgram program, size_t *bytes), (program, bytes))
PASS(nvrtcGetPTX, (nvrtcProgram program, char *ptx), (program, ptx))
PASS(nvrtcAddNameExpression, (nvrtcProgram program, const char *name), (program, name))
PASS(nvrtcGetLoweredName, (nvrtcProgram program, const char *name, const char **lowered), (program, name, lowered))

/* FAKECUDA_NVRTC_ARCHS ("75,80") leaves others out, as an older or a newer NVRTC does. */
static bool is_left(int arch)
{
    const char *text = getenv("FAKECUDA_NVRTC_ARCHS");
    if (text == NULL || *text == '\0') return true;
    for (char *end; *text != '\0'; text = *end == ',' ? end + 1 : end) {
        if (strtol(text, &end, 10) == arch) return true;
        if (end == text) return false;
    }
    return false;
}

/* archs NULL: they are only counted. */
static nvrtcResult supported(int *n, int *archs)
{
    int all[256];
    nvrtcResult (*count)(int *), (*list)(int *);
    void *const symbols[] = { find("nvrtcGetNumSupportedArchs"), find("nvrtcGetSupportedArchs") };
    if (symbols[0] == NULL || symbols[1] == NULL) return NVRTC_ERROR_INTERNAL_ERROR;
    memcpy(&count, &symbols[0], sizeof count);
    memcpy(&list, &symbols[1], sizeof list);
    int found = 0;
    nvrtcResult code = count(&found);
    if (code == NVRTC_SUCCESS && found > 256) code = NVRTC_ERROR_INTERNAL_ERROR;
    if (code == NVRTC_SUCCESS) code = list(all);
    *n = 0;
    for (int i = 0; i < found && code == NVRTC_SUCCESS; i++) {
        if (!is_left(all[i])) continue;
        if (archs != NULL) archs[*n] = all[i];
        ++*n;
    }
    return code;
}

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *n)
{
    const nvrtcResult code = told("nvrtcGetNumSupportedArchs");
    return code == NVRTC_SUCCESS ? supported(n, NULL) : code;
}

EXPORT nvrtcResult nvrtcGetSupportedArchs(int *archs)
{
    int n;
    const nvrtcResult code = told("nvrtcGetSupportedArchs");
    return code == NVRTC_SUCCESS ? supported(&n, archs) : code;
}

/* ---- the image --------------------------------------------------------------------------------------------------- */

static nvrtcResult size_by(const char *name, nvrtcProgram program, size_t *bytes)
{
    nvrtcResult (*size)(nvrtcProgram, size_t *);
    void *const symbol = find(name);
    if (symbol == NULL) return NVRTC_ERROR_INTERNAL_ERROR;
    memcpy(&size, &symbol, sizeof size);
    return size(program, bytes);
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    size_t ptx = 0;
    ENTER(nvrtcGetCUBINSize);
    const nvrtcResult code = real_(program, bytes);
    if (code != NVRTC_SUCCESS || *bytes == 0) return code; /* 0: compiled for a virtual architecture */
    const nvrtcResult also = size_by("nvrtcGetPTXSize", program, &ptx);
    *bytes += sizeof mark + ptx; /* ptx counts its NUL */
    return also;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *image)
{
    size_t ptx = 0;
    nvrtcResult (*get_ptx)(nvrtcProgram, char *);
    ENTER(nvrtcGetCUBIN);
    void *const symbol = find("nvrtcGetPTX");
    if (symbol == NULL) return NVRTC_ERROR_INTERNAL_ERROR;
    memcpy(&get_ptx, &symbol, sizeof get_ptx);
    nvrtcResult code = size_by("nvrtcGetPTXSize", program, &ptx);
    if (code != NVRTC_SUCCESS) return code;
    memcpy(image, mark, sizeof mark);
    code = get_ptx(program, image + sizeof mark);
    return code != NVRTC_SUCCESS ? code : real_(program, image + sizeof mark + ptx);
}

/* Needs no library: it is asked for when there is none. */
EXPORT const char *nvrtcGetErrorString(nvrtcResult code)
{
    const char *(*string)(nvrtcResult);
    void *const symbol = find("nvrtcGetErrorString");
    if (symbol == NULL) return "NVRTC_ERROR (the toolkit's libnvrtc was not found)";
    memcpy(&string, &symbol, sizeof string);
    return string(code);
}

/* The real cuDNN looks for it and complains where it is missing; engines that compile are not asked for. */
EXPORT int __nvrtcCPEx(void); // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
int __nvrtcCPEx(void) // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
{
    return 1;
}
