/* dnn.c: a fake libcudnn.so.9 in front of the real one, which plans without a GPU when the GPU is described to it: so
 * what is accepted, which engines there are and what workspace they want is NVIDIA's own answer. Here every attribute
 * is also kept, a GPU is described as FAKECUDA_SM says, and execution is work in the fake libcuda's streams. The real
 * library: FAKECUDA_CUDNN, else where it was when this was built. FAKECUDA_CUDNN_VERSION: another version is told. */
#include "fake_dnn.h"
#include "gpu_json.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static const char kind_handle[] = "cudnn handle", kind_descriptor[] = "cudnn descriptor";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the real library -------------------------------------------------------------------------------------------- */

#define REAL_FUNCTIONS(X)                                                                                              \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnGetLastErrorString)                                                                                         \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendFinalize)

static struct {
    bool there;
#define REAL_POINTER(f) __typeof__(&f) f;
    REAL_FUNCTIONS(REAL_POINTER)
#undef REAL_POINTER
} real;

/* By its full path, and its own symbols before ours: a library of this one's name is loaded already. */
static void open_real(void)
{
    const char *const wish = getenv("FAKECUDA_CUDNN");
#ifdef __SANITIZE_ADDRESS__
    const int deep = 0; /* the sanitizer refuses it */
#else
    const int deep = RTLD_DEEPBIND;
#endif
    void *const l = dlopen(wish != NULL ? wish : FAKECUDA_REAL_CUDNN, RTLD_NOW | RTLD_LOCAL | deep);
    real.there = l != NULL;
    if (l == NULL) fprintf(stderr, "fakecuda: the real cuDNN is not here: %s\n", dlerror());
#define REAL_FIND(f) real.there = real.there && fk_link_one(l, #f, &real.f);
    REAL_FUNCTIONS(REAL_FIND)
#undef REAL_FIND
}

static bool ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_real);
    return real.there;
}

/* 0 where there is none: too old for anybody. */
FK_EXPORT size_t cudnnGetVersion(void)
{
    const char *const version = getenv("FAKECUDA_CUDNN_VERSION");
    if (version != NULL) return strtoul(version, NULL, 10);
    return ready() ? real.cudnnGetVersion() : 0;
}

FK_EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return ready() ? real.cudnnGetErrorString(status) : "the real cuDNN is not here";
}

FK_EXPORT void cudnnGetLastErrorString(char *message, size_t size)
{
    if (ready())
        real.cudnnGetLastErrorString(message, size);
    else if (size > 0)
        *message = '\0';
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

struct cudnnContext {
    void *stream, *context;
};

FK_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    void *context = NULL;
    if (!fk_link() || !ready() || fk.current(&context) != 0 || context == NULL) return CUDNN_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cudnnCreate");
    if (code != 0) return (cudnnStatus_t)code;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    (*out)->context = context;
    fk.made(kind_handle, *out);
    return CUDNN_STATUS_SUCCESS;
}

FK_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!fk.gone(kind_handle, handle)) return CUDNN_STATUS_BAD_PARAM;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

FK_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    const int code = fk.fail("cudnnSetStream");
    if (code != 0) return (cudnnStatus_t)code;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static fk_record *records[1024];

static fk_record **bucket(const void *descriptor)
{
    return &records[(uintptr_t)descriptor / 16 % 1024];
}

fk_record *fk_record_of(void *descriptor)
{
    fk_record *r = *bucket(descriptor);
    while (r != NULL && r->descriptor != descriptor) r = r->next;
    return r;
}

const void *fk_value_of(const fk_record *r, int name, int64_t *n)
{
    for (int i = 0; r != NULL && i < r->n; i++) {
        if (r->attribute[i].name != name) continue;
        *n = r->attribute[i].n;
        return r->attribute[i].bytes;
    }
    *n = 0;
    return NULL;
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_CHAR:
        return 1;
    default:
        return 4; /* enums, float, int32 */
    }
}

static bool keep(fk_record *r, int name, cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    const size_t bytes = (size_t)n * size_of(type);
    unsigned char *const copy = malloc(bytes + 1);
    fk_attribute *const all = realloc(r->attribute, ((size_t)r->n + 1) * sizeof *all);
    if (all != NULL) r->attribute = all;
    if (copy == NULL || all == NULL) {
        free(copy);
        return false;
    }
    memcpy(copy, values, bytes);
    for (int i = 0; i < r->n; i++) {
        if (all[i].name != name) continue;
        free(all[i].bytes);
        all[i] = (fk_attribute){ name, (int)type, n, copy };
        return true;
    }
    all[r->n++] = (fk_attribute){ name, (int)type, n, copy };
    return true;
}

static void forget(void *descriptor)
{
    for (fk_record **at = bucket(descriptor); *at != NULL; at = &(*at)->next) {
        fk_record *const r = *at;
        if (r->descriptor != descriptor) continue;
        *at = r->next;
        for (int i = 0; i < r->n; i++) free(r->attribute[i].bytes);
        free(r->attribute);
        free(r);
        return;
    }
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

FK_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    if (!ready() || !fk_link()) return CUDNN_STATUS_NOT_INITIALIZED;
    const int code = fk.fail("cudnnBackendCreateDescriptor");
    if (code != 0) return (cudnnStatus_t)code;
    const cudnnStatus_t st = real.cudnnBackendCreateDescriptor(type, out);
    if (st != CUDNN_STATUS_SUCCESS) return st;
    fk_record *const r = calloc(1, sizeof *r);
    if (r == NULL) abort();
    r->descriptor = *out;
    r->type = (int)type;
    pthread_mutex_lock(&lock);
    r->next = *bucket(*out);
    *bucket(*out) = r;
    pthread_mutex_unlock(&lock);
    fk.made(kind_descriptor, *out);
    return st;
}

FK_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    if (!fk.gone(kind_descriptor, descriptor)) return CUDNN_STATUS_BAD_PARAM;
    pthread_mutex_lock(&lock);
    forget(descriptor);
    pthread_mutex_unlock(&lock);
    return real.cudnnBackendDestroyDescriptor(descriptor);
}

/* The GPU of a handle, or of a number, is the one that is played; its description is what the real library gets. */
static cudnnStatus_t describe_gpu(cudnnBackendDescriptor_t descriptor)
{
    char json[2000];
    const fk_gpu *const gpu = fk_gpu_of(fk.sm());
    if (gpu == NULL) return CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH;
    fk_gpu_json(gpu, json, sizeof json);
    return real.cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                         (int64_t)strlen(json) + 1, json);
}

FK_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                 cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    const int code = fk.fail("cudnnBackendSetAttribute");
    if (code != 0) return (cudnnStatus_t)code;
    if (name == CUDNN_ATTR_DEVICEPROP_HANDLE || name == CUDNN_ATTR_DEVICEPROP_DEVICE_ID)
        return describe_gpu(descriptor);
    pthread_mutex_lock(&lock);
    fk_record *const r = fk_record_of(descriptor);
    const bool good = r != NULL && !r->finished && keep(r, (int)name, type, n, values);
    pthread_mutex_unlock(&lock);
    if (!good)
        fk.report("cudnnBackendSetAttribute: attribute %d of a descriptor that is not there or finished", (int)name);
    if (!good) return CUDNN_STATUS_BAD_PARAM;
    return real.cudnnBackendSetAttribute(descriptor, name, type, n, values);
}

/* What the heuristic found belongs to its graph. */
static void inherit(fk_record *from, int64_t n, void *const *to)
{
    for (int64_t i = 0; i < n && from != NULL; i++) {
        fk_record *const r = fk_record_of(to[i]);
        if (r != NULL) r->graph = from->graph;
    }
}

FK_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                 cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                                                 void *values)
{
    const int code = fk.fail("cudnnBackendGetAttribute");
    if (code != 0) return (cudnnStatus_t)code;
    int64_t given = 0;
    const cudnnStatus_t st = real.cudnnBackendGetAttribute(descriptor, name, type, room, &given, values);
    if (n != NULL) *n = given;
    if (st == CUDNN_STATUS_SUCCESS && name == CUDNN_ATTR_ENGINEHEUR_RESULTS && room > 0) {
        pthread_mutex_lock(&lock);
        inherit(fk_record_of(descriptor), given < room ? given : room, values);
        pthread_mutex_unlock(&lock);
    }
    return st;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Whether an engine rounds f32 for its tensor cores; asked of the real library. */
static bool rounds(void *config)
{
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t note[16];
    int64_t n = 0;
    bool found = false;
    if (real.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    if (real.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                      &engine) == CUDNN_STATUS_SUCCESS &&
        real.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 16, &n,
                                      note) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < n && i < 16; i++) found |= note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    real.cudnnBackendDestroyDescriptor(engine);
    return found;
}

static void *part_of(const fk_record *r, int name)
{
    int64_t n = 0;
    void *part = NULL;
    const void *const value = fk_value_of(r, name, &n);
    if (value != NULL && n == 1) memcpy(&part, value, sizeof part);
    return part;
}

static void note_plan(fk_record *r)
{
    void *const config = part_of(r, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const fk_record *const from = fk_record_of(config);
    int64_t n = 0;
    r->graph = from != NULL ? from->graph : NULL;
    r->tf32 = rounds(config);
    real.cudnnBackendGetAttribute(r->descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                  &r->workspace);
}

FK_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    const int code = fk.fail("cudnnBackendFinalize");
    if (code != 0) return (cudnnStatus_t)code;
    const cudnnStatus_t st = real.cudnnBackendFinalize(descriptor);
    pthread_mutex_lock(&lock);
    fk_record *const r = fk_record_of(descriptor);
    if (r != NULL && st == CUDNN_STATUS_SUCCESS) {
        r->finished = true;
        if (r->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
            note_plan(r);
        else if (r->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
            const fk_record *const g = fk_record_of(part_of(r, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
            r->graph = g != NULL ? g->graph : NULL;
        } else
            fk_graph_note(r);
    }
    pthread_mutex_unlock(&lock);
    return st;
}

/* ---- execution --------------------------------------------------------------------------------------------------- */

static bool fill_job(fk_record *plan, fk_record *pack, fk_dnn_job *job)
{
    int64_t n_ids = 0, n_pointers = 0, n = 0;
    const int64_t *const ids = fk_value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &n_ids);
    void *const *const pointers = fk_value_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &n_pointers);
    void *const *const workspace = fk_value_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &n);
    job->graph = plan != NULL ? plan->graph : NULL;
    if (job->graph == NULL || !plan->finished || pack == NULL || !pack->finished || ids == NULL ||
        n_ids != n_pointers || n_ids > FK_DNN_TENSORS) {
        fk.report("cudnnBackendExecute: plan or pack is not finished, or %lld ids for %lld pointers", (long long)n_ids,
                  (long long)n_pointers);
        return false;
    }
    job->tf32 = plan->tf32;
    job->workspace_bytes = plan->workspace;
    job->n = (int)n_ids;
    for (int i = 0; i < job->n; i++) {
        job->id[i] = ids[i];
        job->at[i] = (uintptr_t)pointers[i];
    }
    job->workspace = workspace != NULL ? (uintptr_t)*workspace : 0;
    return fk_dnn_check(job);
}

FK_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                            cudnnBackendDescriptor_t pack)
{
    void *context = NULL;
    const int code = fk.fail("cudnnBackendExecute");
    if (code != 0) return (cudnnStatus_t)code;
    if (handle == NULL || fk.current(&context) != 0 || context != handle->context) {
        fk.report("cudnnBackendExecute: the handle's context is not current");
        return CUDNN_STATUS_BAD_PARAM;
    }
    fk_dnn_job *const job = calloc(1, sizeof *job);
    if (job == NULL) return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    pthread_mutex_lock(&lock);
    const bool good = fill_job(fk_record_of(plan), fk_record_of(pack), job);
    pthread_mutex_unlock(&lock);
    if (!good) {
        free(job);
        return CUDNN_STATUS_BAD_PARAM;
    }
    return fk.work(handle->stream, "cudnnBackendExecute", fk_dnn_run, free, job) == 0 ? CUDNN_STATUS_SUCCESS
                                                                                      : CUDNN_STATUS_EXECUTION_FAILED;
}
