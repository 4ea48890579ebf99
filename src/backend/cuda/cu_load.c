/* cu_load.c: NVIDIA's libraries, opened at run time: the driver, NVRTC (the newest that the driver can serve) and NVML.
 * What is missing, too old or lacks a function is a text that says what to install. See cu.h. */
#include "backend/cuda/cu.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static sw__cu_libraries lib;

/* ---- where libraries are ------------------------------------------------------------------------------------------- */

/* SWOOP_WITHOUT names libraries that are to be passed over: "cudnn,cublasLt". */
static bool is_left_out(const char *library)
{
    const char *list = getenv("SWOOP_WITHOUT");
    char word[64];
    while (list != NULL && *list != '\0') {
        const size_t n = strcspn(list, ", ");
        snprintf(word, sizeof word, "%.*s", (int)SW_MIN(n, sizeof word - 1), list);
        if (*word != '\0' && strstr(library, word) != NULL) return true;
        list += n + strspn(list + n, ", ");
    }
    return false;
}

/* Stays open: NVIDIA's libraries have threads, and what they registered cannot be taken back. */
static void *open_path(const char *path, char *found, size_t size)
{
    void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) snprintf(found, size, "%s", path);
    return handle;
}

static void *open_below(const char *root, const char *name, char *found, size_t size)
{
    static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    char path[512];
    void *handle = NULL;
    for (size_t i = 0; i < SW_COUNT(folders) && root != NULL && *root != '\0' && handle == NULL; i++) {
        snprintf(path, sizeof path, "%.300s/%s/%.100s", root, folders[i], name);
        handle = open_path(path, found, size);
    }
    return handle;
}

/* Toolkits beside each other, newest last in the alphabet. */
static void *open_numbered(const char *name, char *found, size_t size)
{
    glob_t list;
    void *handle = NULL;
    if (glob("/usr/local/cuda-*", 0, NULL, &list) != 0) return NULL;
    for (size_t i = list.gl_pathc; i > 0 && handle == NULL; i--)
        handle = open_below(list.gl_pathv[i - 1], name, found, size);
    globfree(&list);
    return handle;
}

void *sw__cu_open_library(const char *pattern, int newest, int oldest, int *version, char *path, size_t size)
{
    const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda"};
    const char *const number = strstr(pattern, "%d");
    if (is_left_out(pattern)) return NULL;
    for (int v = newest; v >= oldest; v--) {
        char name[128];
        if (number == NULL) snprintf(name, sizeof name, "%.100s", pattern);
        else snprintf(name, sizeof name, "%.*s%d%.40s", (int)SW_MIN(number - pattern, 60), pattern, v, number + 2);
        void *handle = open_path(name, path, size);
        for (size_t i = 0; i < SW_COUNT(roots) && handle == NULL; i++) handle = open_below(roots[i], name, path, size);
        if (handle == NULL) handle = open_numbered(name, path, size);
        *version = v;
        if (handle != NULL || number == NULL) return handle;
    }
    return NULL;
}

/* ---- the driver ---------------------------------------------------------------------------------------------------- */

#define CUDA_VERSION(v) (v) / 1000, (v) % 1000 / 10

static const char *name_of(sw__cu_result code)
{
    const char *text = NULL;
    return lib.cu.cuGetErrorName(code, &text) == SW_CU_OK && text != NULL ? text : "unknown error";
}

static void explain_start(sw__cu_result code)
{
    const char *what = "is the kernel module loaded (nvidia-smi tells), and may this user open /dev/nvidia*?";
    if (code == SW_CU_NO_DEVICE) what = "no NVIDIA GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES";
    if (code == SW_CU_STUB_LIBRARY)
        what = "this is the toolkit's stub, found before the driver: take its folder out of LD_LIBRARY_PATH";
    if (code == SW_CU_SYSTEM_DRIVER_MISMATCH)
        what = "libcuda.so.1 and the kernel module are of two versions: restart after an update, or install them anew";
    if (code == SW_CU_COMPAT_NOT_SUPPORTED)
        what = "the compatibility package of the driver does not serve this GPU: update the driver itself";
    snprintf(lib.no_driver, sizeof lib.no_driver, "cuInit: %s (%u): %s", name_of(code), code, what);
}

static void lacks(char *text, size_t size, const char *library, const char *function, int since, const char *need)
{
    if (*text == '\0')
        snprintf(text, size, "%.200s has no %s, which came with CUDA %d.%d: install %s", library, function,
                 CUDA_VERSION(since), need);
}

static void load_driver(void)
{
    if (is_left_out("libcuda.so.1")) {
        snprintf(lib.no_driver, sizeof lib.no_driver, "SWOOP_WITHOUT leaves out libcuda.so.1");
        return;
    }
    void *const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(lib.no_driver, sizeof lib.no_driver, "the CUDA driver cannot be opened (%.150s): install NVIDIA's, %s "
                 "(Debian: nvidia-driver, Ubuntu: nvidia-driver-580)", dlerror(), SW_CU_DRIVER_TEXT);
        return;
    }
#define FIND(name, since, parameters)                                                                                  \
    if (!sw__symbol(handle, #name, &lib.cu.name, sizeof lib.cu.name))                                                        \
        lacks(lib.no_driver, sizeof lib.no_driver, "libcuda.so.1", #name, since, SW_CU_DRIVER_TEXT);
    SW_CU_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, since, parameters) (void)sw__symbol(handle, #name, &lib.cu.name, sizeof lib.cu.name);
    SW_CU_OPTIONAL(FIND)
#undef FIND
    if (*lib.no_driver != '\0') return;
    sw__cu_result code = lib.cu.cuDriverGetVersion(&lib.driver);
    const bool old = code == SW_CU_OK && lib.driver < SW_CU_DRIVER;
    if (code == SW_CU_OK && !old) code = lib.cu.cuInit(0);
    if (code != SW_CU_OK) explain_start(code);
    if (old)
        snprintf(lib.no_driver, sizeof lib.no_driver, "the NVIDIA driver is for CUDA %d.%d: install %s",
                 CUDA_VERSION(lib.driver), SW_CU_DRIVER_TEXT);
}

/* ---- NVRTC --------------------------------------------------------------------------------------------------------- */

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void find_archs(void)
{
    int count = 0, archs[256] = {0};
    if (lib.nvrtc.nvrtcGetNumSupportedArchs(&count) != 0 || count < 1 || count > (int)SW_COUNT(archs) ||
        lib.nvrtc.nvrtcGetSupportedArchs(archs) != 0) {
        snprintf(lib.no_nvrtc, sizeof lib.no_nvrtc, "NVRTC does not tell which GPUs it compiles for: install it anew");
        return;
    }
    qsort(archs, (size_t)count, sizeof *archs, compare_ints);
    lib.n_archs = SW_MIN(count, (int)SW_COUNT(lib.archs));
    memcpy(lib.archs, archs + (count - lib.n_archs), (size_t)lib.n_archs * sizeof *archs);
}

/* A user's own CUDA C may include cuda_fp16.h and others: those of the same toolkit. */
static void find_headers(void)
{
    Dl_info info = {0};
    void *function = NULL;
    char path[320];
    memcpy(&function, &lib.nvrtc.nvrtcVersion, sizeof function);
    const char *const library = dladdr(function, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "";
    const char *const end = strstr(library, "/lib");
    if (end == NULL) return;
    snprintf(path, sizeof path, "%.*s/include/cuda_fp16.h", (int)SW_MIN(end - library, 200), library);
    FILE *const f = fopen(path, "rbe");
    if (f == NULL) return;
    fclose(f);
    snprintf(lib.include, sizeof lib.include, "%.*s/include", (int)SW_MIN(end - library, 200), library);
}

/* What a newer major version compiles, an older driver does not take. */
static void load_nvrtc(void)
{
    int major = 0, minor = 0, soname = 0;
    char path[512] = "", need[96];
    const int newest = lib.driver / 1000;
    void *const handle = sw__cu_open_library("libnvrtc.so.%d", newest, 12, &soname, path, sizeof path);
    snprintf(need, sizeof need, "NVRTC of CUDA %s%d (Debian, Ubuntu: the package cuda-nvrtc-%d-0 or later)",
             newest > 12 ? "12 to " : "", newest, newest);
    if (handle == NULL && is_left_out("libnvrtc.so")) {
        snprintf(lib.no_nvrtc, sizeof lib.no_nvrtc, "SWOOP_WITHOUT leaves out libnvrtc.so, which compiles the kernels");
        return;
    }
    if (handle == NULL) {
        snprintf(lib.no_nvrtc, sizeof lib.no_nvrtc, "there is no libnvrtc.so.%d%s: install %s, or point CUDA_HOME at the "
                 "toolkit", newest, newest > 12 ? " or older" : "", need);
        return;
    }
#define FIND(name, since, parameters)                                                                                  \
    if (!sw__symbol(handle, #name, &lib.nvrtc.name, sizeof lib.nvrtc.name))                                                  \
        lacks(lib.no_nvrtc, sizeof lib.no_nvrtc, path, #name, since, need);
    SW_NVRTC_FUNCTIONS(FIND)
#undef FIND
    if (*lib.no_nvrtc != '\0') return;
    if (lib.nvrtc.nvrtcVersion(&major, &minor) != 0 || major < 12)
        snprintf(lib.no_nvrtc, sizeof lib.no_nvrtc, "%.200s is of CUDA %d.%d: install %s", path, major, minor,
                 need);
    if (*lib.no_nvrtc == '\0') find_archs();
    if (*lib.no_nvrtc != '\0') return;
    lib.nvrtc_version = major * 1000 + minor * 10;
    find_headers();
}

/* ---- NVML ---------------------------------------------------------------------------------------------------------- */

/* Tells more about devices; without it less is told, and nothing else is missing. */
static void load_nvml(void)
{
    void *const handle = is_left_out("libnvidia-ml.so.1") ? NULL : dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        sw__log(SW_LOG_INFO, "cuda: no libnvidia-ml.so.1: power, temperature and free memory are not told");
        return;
    }
#define FIND(name, since, parameters)                                                                                  \
    if (!sw__symbol(handle, #name, &lib.nvml.name, sizeof lib.nvml.name))                                                    \
        sw__log(SW_LOG_INFO, "cuda: libnvidia-ml.so.1 has no %s", #name);
    SW_NVML_FUNCTIONS(FIND)
#undef FIND
    const sw__cu_result code = lib.nvml.nvmlInit_v2 != NULL ? lib.nvml.nvmlInit_v2() : 999;
    if (code != 0) {
        sw__log(SW_LOG_INFO, "cuda: NVML does not start (%u): power, temperature and free memory are not told", code);
        memset(&lib.nvml, 0, sizeof lib.nvml);
        return;
    }
    if (lib.nvml.nvmlSystemGetDriverVersion == NULL ||
        lib.nvml.nvmlSystemGetDriverVersion(lib.driver_name, sizeof lib.driver_name) != 0)
        lib.driver_name[0] = '\0';
}

static void load(void)
{
    load_driver();
    if (*lib.no_driver != '\0') {
        snprintf(lib.no_nvrtc, sizeof lib.no_nvrtc, "%s", lib.no_driver);
        sw__log(SW_LOG_INFO, "cuda: %s", lib.no_driver);
        return;
    }
    load_nvrtc();
    if (*lib.no_nvrtc != '\0') sw__log(SW_LOG_INFO, "cuda: %s", lib.no_nvrtc);
    load_nvml();
}

const sw__cu_libraries *sw__cu_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return &lib;
}

/* ---- libraries that need not be there -------------------------------------------------------------------------------- */

void *sw__cu_open_vendor(sw__cu_vendor *v)
{
    const char *const wish = getenv(v->variable);
    char path[512];
    int version = 0;
    (void)dlerror(); /* of a symbol that another library lacks: forgotten */
    void *const handle = wish != NULL && *wish != '\0' ? dlopen(wish, RTLD_NOW | RTLD_LOCAL)
                         : sw__cu_open_library(v->pattern, v->newest, v->oldest, &version, path, sizeof path);
    if (handle != NULL) return handle;
    const char *const why = dlerror();
    snprintf(v->failure, sizeof v->failure, "%s cannot be opened (%.200s): %s", v->name,
             why != NULL ? why : "SWOOP_WITHOUT leaves it out", v->install);
    return NULL;
}

void sw__cu_vendor_symbol(sw__cu_vendor *v, void *handle, const char *name, void *pointer, size_t size)
{
    if (!sw__symbol(handle, name, pointer, size))
        snprintf(v->failure, sizeof v->failure, "%s has no %s: %s", v->name, name, v->install);
}
