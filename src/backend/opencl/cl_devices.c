/* cl_devices.c: which OpenCL devices there are, what they can do, and why one cannot be used. See cl.h. */
#include "backend/opencl/cl.h"

#include <pthread.h>
#include <stdio.h>

static sw__cl_entry entries[SW_CL_MAX_DEVICES];
static int n_entries;

/* "" on failure; without the blanks that some drivers have at the ends. */
static void device_text(const sw__cl_api *cl, cl_device_id id, cl_device_info what, char *out, size_t size)
{
    char text[512] = "";
    if (cl->clGetDeviceInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS) *text = '\0';
    const char *from = text + strspn(text, " ");
    size_t n = strlen(from);
    while (n > 0 && from[n - 1] == ' ') n--;
    snprintf(out, size, "%.*s", (int)SW_MIN(n, size - 1), from);
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == '\0' || p[n] == ' ')) return true;
    return false;
}

#define GET(WHAT, INTO) (void)cl->clGetDeviceInfo(e->id, WHAT, sizeof(INTO), &(INTO), NULL)

static void find_limits(const sw__cl_api *cl, sw__cl_entry *e)
{
    size_t sizes[8] = {0};
    cl_uint dimensions = 0;
    cl_bool unified = CL_TRUE;
    GET(CL_DEVICE_TYPE, e->type);
    GET(CL_DEVICE_MAX_COMPUTE_UNITS, e->units);
    GET(CL_DEVICE_MAX_CLOCK_FREQUENCY, e->clock);
    GET(CL_DEVICE_GLOBAL_MEM_SIZE, e->memory);
    GET(CL_DEVICE_MAX_MEM_ALLOC_SIZE, e->max_alloc);
    GET(CL_DEVICE_LOCAL_MEM_SIZE, e->local);
    GET(CL_DEVICE_MAX_WORK_GROUP_SIZE, e->max_group);
    GET(CL_DEVICE_MAX_PARAMETER_SIZE, e->max_parameter);
    GET(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, dimensions);
    GET(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, e->vector);
    GET(CL_DEVICE_HOST_UNIFIED_MEMORY, unified);
    e->unified = unified != CL_FALSE;
    if (dimensions >= 3 && dimensions <= 8) GET(CL_DEVICE_MAX_WORK_ITEM_SIZES, sizes);
    for (int i = 0; i < 3; i++) e->max_local[i] = sizes[i];
}

static void find_extensions(const sw__cl_api *cl, sw__cl_entry *e)
{
    static char text[16384]; /* the list is made once, under pthread_once */
    if (cl->clGetDeviceInfo(e->id, CL_DEVICE_EXTENSIONS, sizeof text - 1, text, NULL) != CL_SUCCESS) *text = '\0';
    e->fp64 = has_word(text, "cl_khr_fp64");
    e->fp16 = has_word(text, "cl_khr_fp16");
    e->subgroups = has_word(text, "cl_khr_subgroups") || has_word(text, "cl_intel_subgroups");
}

/* What kernels count on; the rest is asked for where it is wanted. */
static void find_faults(const sw__cl_api *cl, sw__cl_entry *e)
{
    cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
    int major = 0, minor = 0;
    GET(CL_DEVICE_AVAILABLE, available);
    GET(CL_DEVICE_COMPILER_AVAILABLE, compiler);
    GET(CL_DEVICE_ENDIAN_LITTLE, little);
    const bool version = sscanf(e->device_version, "OpenCL %d.%d", &major, &minor) == 2; // NOLINT(cert-err34-c): counted
    const char *why = NULL;
    if (!available) why = "the driver says it is not available: another process may hold it, or it has failed";
    else if (!compiler) why = "its driver has no compiler for kernels";
    else if (!little) why = "big-endian devices are not supported";
    else if (!version || major < 1 || (major == 1 && minor < 2)) why = "its driver is older than OpenCL 1.2";
    else if (e->max_group < 1 || e->max_local[0] < 1 || e->units < 1) why = "its driver does not tell its limits";
    if (why != NULL) snprintf(e->unusable, sizeof e->unusable, "%s", why);
}

static void add_device(const sw__cl_api *cl, cl_platform_id platform, cl_device_id id)
{
    sw__cl_entry *const e = &entries[n_entries++];
    e->platform = platform;
    e->id = id;
    (void)cl->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof e->platform_name - 1, e->platform_name, NULL);
    device_text(cl, id, CL_DEVICE_NAME, e->name, sizeof e->name);
    device_text(cl, id, CL_DEVICE_VENDOR, e->vendor, sizeof e->vendor);
    device_text(cl, id, CL_DEVICE_VERSION, e->device_version, sizeof e->device_version);
    device_text(cl, id, CL_DRIVER_VERSION, e->driver, sizeof e->driver);
    find_limits(cl, e);
    find_extensions(cl, e);
    find_faults(cl, e);
}

static void make_list(void)
{
    const sw__cl_api *cl;
    cl_platform_id platforms[16];
    cl_uint n_platforms = 0;
    if (!sw__cl_is_there(&cl)) return;
    if (cl->clGetPlatformIDs(16, platforms, &n_platforms) != CL_SUCCESS) return; /* -1001: no driver is installed */
    for (cl_uint p = 0; p < SW_MIN(n_platforms, 16u); p++) {
        cl_device_id ids[SW_CL_MAX_DEVICES];
        cl_uint n = 0;
        if (cl->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, SW_CL_MAX_DEVICES, ids, &n) != CL_SUCCESS) continue;
        for (cl_uint i = 0; i < n && i < SW_CL_MAX_DEVICES && n_entries < SW_CL_MAX_DEVICES; i++)
            add_device(cl, platforms[p], ids[i]);
    }
}

int sw__cl_devices(const sw__cl_entry **list)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_list);
    if (list != NULL) *list = entries;
    return n_entries;
}
