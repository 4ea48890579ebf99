/* cu_module.c: modules and their kernels: PTX, plain or in front of a CUBIN as the fake NVRTC gives it, and libraries
 * of cuDNN's, which are only held. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mark[8] = "FKCUBIN"; /* with its NUL */

/* ---- module globals ---------------------------------------------------------------------------------------------- */

static uint64_t make_global(void *user, size_t bytes, size_t align, const void *initial)
{
    fk_alloc *a = NULL;
    (void)user;
    (void)align; /* at most 256 */
    if (fk_allocate(fk_current->o.device, bytes > 0 ? bytes : 1, true, &a) != CUDA_SUCCESS) return 0;
    if (initial != NULL) memcpy(a->host, initial, bytes);
    else memset(a->host, 0, bytes);
    return a->lo;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* ".target sm_90a": 90, and whether it is for that GPU only. */
static int target_of(const char *ptx, bool *only)
{
    const char *const at = strstr(ptx, ".target sm_");
    char *end;
    if (at == NULL) return 0;
    const long sm = strtol(at + 11, &end, 10);
    *only = *end == 'a' || *end == 'f';
    return (int)sm;
}

/* A CUBIN runs on the GPUs of its generation that are not older, PTX on all that are not older. */
static CUresult check_target(const fk_guard *g, const char *ptx, bool is_cubin)
{
    bool only = false;
    const int sm = target_of(ptx, &only), mine = fk_device_gpu(fk_current->o.device)->sm;
    if (sm == 0) return fk_misuse(g, CUDA_ERROR_INVALID_PTX, "the PTX has no .target");
    if (sm == mine || (!only && sm < mine && (!is_cubin || sm / 10 == mine / 10))) return CUDA_SUCCESS;
    return is_cubin ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_PTX;
}

/* ".version 8.4" came with CUDA 12.4, 9.0 with 13.0: an older driver does not read it. */
static CUresult check_version(const char *ptx)
{
    const char *const at = strstr(ptx, ".version ");
    char *end = NULL;
    const long major = at != NULL ? strtol(at + 9, &end, 10) : 0,
               minor = end != NULL && *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return 1000 * (major + 4) + 10 * minor > fk_set.driver ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_SUCCESS;
}

static CUresult find_ptx(const fk_guard *g, const char *image, const char **ptx, bool *is_cubin)
{
    *is_cubin = memcmp(image, mark, sizeof mark) == 0;
    *ptx = *is_cubin ? image + sizeof mark : image;
    if (*is_cubin) return CUDA_SUCCESS;
    if (memcmp(image, "\177ELF", 4) == 0)
        return fk_misuse(g, CUDA_ERROR_INVALID_IMAGE, "a real CUBIN: the double runs what the fake NVRTC gives");
    return strstr(image, ".version") != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult load(const fk_guard *g, CUmodule *out, const void *image, char *log, size_t log_bytes)
{
    const char *ptx;
    bool is_cubin;
    char error[512] = "";
    if (out == NULL || image == NULL) return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "no module or no image");
    CUresult code = find_ptx(g, image, &ptx, &is_cubin);
    if (code == CUDA_SUCCESS && !is_cubin) code = check_version(ptx);
    if (code == CUDA_SUCCESS) code = check_target(g, ptx, is_cubin);
    if (code != CUDA_SUCCESS) return code;
    fk_module *const m = fk_new(FK_MODULE, sizeof *m, fk_current->o.device);
    if (m == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    m->ptx = ptx_load(ptx, &(ptx_memory){ .user = m, .global = make_global }, error, sizeof error);
    if (m->ptx == NULL) {
        fk_end(m);
        if (log != NULL && log_bytes > 0) snprintf(log, log_bytes, "%s", error);
        return fk_misuse(g, CUDA_ERROR_INVALID_PTX, "%s", error);
    }
    const unsigned char *const elf = (const unsigned char *)ptx + strlen(ptx) + 1;
    m->cubin_bytes = is_cubin && memcmp(elf, "\177ELF", 4) == 0 ? fk_cubin_bytes(elf) : 0;
    m->cubin = m->cubin_bytes > 0 ? malloc(m->cubin_bytes) : NULL;
    if (m->cubin != NULL) memcpy(m->cubin, elf, m->cubin_bytes);
    *out = (CUmodule)(void *)m;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuModuleLoadData(CUmodule *out, const void *image)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    return load(&guard, out, image, NULL, 0);
}

// NOLINTBEGIN(readability-non-const-parameter): CUDA's types
FK_EXPORT CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n, CUjit_option *options,
                                              void **values)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    char *log = NULL;
    size_t log_bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) log_bytes = (size_t)(uintptr_t)values[i];
    }
    return load(&guard, out, image, log, log_bytes);
}
// NOLINTEND(readability-non-const-parameter)

void fk_module_end(fk_module *m)
{
    for (fk_function *f = m->functions; f != NULL; f = f->next_function) fk_end(f);
    ptx_unload(m->ptx);
    free(m->cubin);
    m->ptx = NULL;
    m->cubin = NULL;
    m->cubin_bytes = 0;
    fk_end(m);
}

FK_EXPORT CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE | FK_RELEASE);
    CUresult code;
    fk_module *const m = fk_object_of(&guard, handle, FK_MODULE, &code);
    if (m == NULL) return code;
    fk_module_end(m);
    return fk_result(&guard, CUDA_SUCCESS);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static fk_function *add_function(fk_module *m, const char *name)
{
    fk_function *const f = fk_new(FK_FUNCTION, sizeof *f, m->o.device);
    if (f == NULL) return NULL;
    f->module = m;
    f->max_dynamic = -1;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->next_function = m->functions;
    m->functions = f;
    return f;
}

/* Without a CUBIN: what is declared, as far as a block of the largest size allows. */
static int guessed_registers(const ptx_info *k)
{
    const int most = k->max_threads < 258 ? 255 : 65536 / k->max_threads;
    return k->registers < 16 ? 16 : k->registers > most ? most : k->registers;
}

static void measure(fk_function *f, const char *name)
{
    const fk_module *const m = f->module;
    f->registers = f->stack = -1;
    if (m->cubin != NULL) {
        f->registers = fk_cubin_value(m->cubin, m->cubin_bytes, name, FK_CUBIN_REGISTERS);
        f->stack = fk_cubin_value(m->cubin, m->cubin_bytes, name, FK_CUBIN_STACK);
    }
    if (f->registers <= 0) f->registers = guessed_registers(&f->info);
    if (f->stack < 0) f->stack = (int)f->info.local_bytes;
}

FK_EXPORT CUresult CUDAAPI cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_module *const m = fk_object_of(&guard, handle, FK_MODULE, &code);
    if (m == NULL) return code;
    if (out == NULL || name == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no name or no place");
    const ptx_kernel *const k = m->ptx != NULL ? ptx_find(m->ptx, name) : NULL;
    if (k == NULL) return CUDA_ERROR_NOT_FOUND;
    fk_function *f = m->functions;
    while (f != NULL && f->kernel != k) f = f->next_function;
    if (f == NULL) {
        f = add_function(m, name);
        if (f == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        f->kernel = k;
        f->info = ptx_kernel_info(k);
        measure(f, name);
    }
    *out = (CUfunction)(void *)f;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuFuncGetParamInfo(CUfunction handle, size_t i, size_t *offset, size_t *size)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    const fk_function *const f = fk_object_of(&guard, handle, FK_FUNCTION, &code);
    if (f == NULL) return code;
    if (offset == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for an answer");
    size_t bytes = 0;
    if (i >= (size_t)f->info.n_params) return CUDA_ERROR_INVALID_VALUE; /* how a caller finds out how many there are */
    ptx_param(f->kernel, (int)i, offset, &bytes);
    if (size != NULL) *size = bytes;
    return CUDA_SUCCESS;
}

size_t fk_function_dynamic_limit(const fk_function *f)
{
    if (f->max_dynamic >= 0) return (size_t)f->max_dynamic;
    return f->info.shared_bytes < 48 << 10 ? (48 << 10) - f->info.shared_bytes : 0;
}

FK_EXPORT CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute what, CUfunction handle)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    const fk_function *const f = fk_object_of(&guard, handle, FK_FUNCTION, &code);
    if (f == NULL) return code;
    if (value == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for the answer");
    const int sm = fk_device_gpu(f->o.device)->sm;
    const struct { CUfunction_attribute what; int value; } all[] = {
        { CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f->info.max_threads },
        { CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, (int)f->info.shared_bytes },
        { CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 0 },
        { CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f->stack },
        { CU_FUNC_ATTRIBUTE_NUM_REGS, f->registers },
        { CU_FUNC_ATTRIBUTE_PTX_VERSION, sm },
        { CU_FUNC_ATTRIBUTE_BINARY_VERSION, sm },
        { CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, 0 },
        { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)fk_function_dynamic_limit(f) },
        { CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].what != what) continue;
        *value = all[i].value;
        return CUDA_SUCCESS;
    }
    return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "the double does not know attribute %d", (int)what);
}

FK_EXPORT CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute what, int value)
{
    FK_ENTER(FK_CONTEXT);
    CUresult code;
    fk_function *const f = fk_object_of(&guard, handle, FK_FUNCTION, &code);
    if (f == NULL) return code;
    if (what == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS; /* a hint */
    if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "attribute %d cannot be set", (int)what);
    const int most = (fk_device_gpu(f->o.device)->shared_optin_kib << 10) - (int)f->info.shared_bytes;
    if (value < 0 || value > most)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%s: %d bytes of dynamic shared memory, the GPU has %d left",
                         f->name, value, most);
    f->max_dynamic = value;
    return CUDA_SUCCESS;
}

/* ---- libraries: enough for cuDNN to plan ------------------------------------------------------------------------- */

// NOLINTBEGIN(readability-non-const-parameter): CUDA's types
FK_EXPORT CUresult CUDAAPI cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *jit, void **jit_values,
                                             unsigned int n_jit, CUlibraryOption *options, void **values,
                                             unsigned int n)
{
    FK_ENTER(FK_UNSAFE);
    (void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    if (out == NULL || image == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no library or no image");
    fk_module *const m = fk_new(FK_MODULE, sizeof *m, fk_current != NULL ? fk_current->o.device : 0);
    if (m == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUlibrary)(void *)m;
    return CUDA_SUCCESS;
}
// NOLINTEND(readability-non-const-parameter)

FK_EXPORT CUresult CUDAAPI cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    FK_ENTER(0);
    CUresult code;
    fk_module *const m = fk_object_of(&guard, library, FK_MODULE, &code);
    if (m == NULL) return code;
    if (out == NULL || name == NULL) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no name or no place");
    fk_function *const f = add_function(m, name);
    if (f == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUkernel)(void *)f;
    return CUDA_SUCCESS;
}

FK_EXPORT CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
    FK_ENTER(FK_RELEASE);
    CUresult code;
    fk_module *const m = fk_object_of(&guard, library, FK_MODULE, &code);
    if (m == NULL) return code;
    fk_module_end(m);
    return fk_result(&guard, CUDA_SUCCESS);
}
