/* nvrtc_case.h: NVRTC, as far as tests need it: text to PTX, for no GPU in particular. Skipped, and said so, where
 * there is none. */
#ifndef SW_TESTS_NVRTC_CASE_H
#define SW_TESTS_NVRTC_CASE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int (*nvrtcCreateProgram)(void **program, const char *text, const char *name, int n, const char *const *headers,
                              const char *const *names);
    int (*nvrtcCompileProgram)(void *program, int n, const char *const *options);
    int (*nvrtcGetProgramLogSize)(void *program, size_t *n);
    int (*nvrtcGetProgramLog)(void *program, char *log);
    int (*nvrtcGetPTXSize)(void *program, size_t *n);
    int (*nvrtcGetPTX)(void *program, char *ptx);
    int (*nvrtcDestroyProgram)(void **program);
} nvrtc;

static bool nvrtc_find(void *library, const char *name, void *pointer)
{
    void *const symbol = dlsym(library, name);
    if (symbol) memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool nvrtc_load(void)
{
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                         "/usr/local/cuda/lib64/libnvrtc.so" };
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library && nvrtc_find(library, "nvrtcCreateProgram", &nvrtc.nvrtcCreateProgram) &&
           nvrtc_find(library, "nvrtcCompileProgram", &nvrtc.nvrtcCompileProgram) &&
           nvrtc_find(library, "nvrtcGetProgramLogSize", &nvrtc.nvrtcGetProgramLogSize) &&
           nvrtc_find(library, "nvrtcGetProgramLog", &nvrtc.nvrtcGetProgramLog) &&
           nvrtc_find(library, "nvrtcGetPTXSize", &nvrtc.nvrtcGetPTXSize) &&
           nvrtc_find(library, "nvrtcGetPTX", &nvrtc.nvrtcGetPTX) &&
           nvrtc_find(library, "nvrtcDestroyProgram", &nvrtc.nvrtcDestroyProgram);
}

/* PTX for "compute_90" (free), or NULL; and the compiler's words. With "sm_90" they also have what ptxas makes of
 * it. */
static char *nvrtc_ptx(const char *text, const char *arch, char *log, size_t log_size)
{
    void *program = NULL;
    size_t n = 0;
    char option[64], *ptx = NULL;
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    const char *const options[] = { option, "--ptxas-options=-v" };
    *log = '\0';
    if (nvrtc.nvrtcCreateProgram(&program, text, "kernels.cu", 0, NULL, NULL) != 0) return NULL;
    if (nvrtc.nvrtcCompileProgram(program, 2, options) == 0) {
        if (nvrtc.nvrtcGetPTXSize(program, &n) == 0 && (ptx = malloc(n)) != NULL) nvrtc.nvrtcGetPTX(program, ptx);
    }
    if (nvrtc.nvrtcGetProgramLogSize(program, &n) == 0 && n < log_size) nvrtc.nvrtcGetProgramLog(program, log);
    nvrtc.nvrtcDestroyProgram(&program);
    return ptx;
}

#endif
