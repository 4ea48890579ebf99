/* cu_memory.c: device and pinned memory. Device addresses are mapped without any right, so that a host that follows one
 * crashes as it would with a GPU; the same bytes are mapped once more for the fake itself. Addresses grow with gaps
 * between and are never used twice, so a stale one is always recognised. See cu.h. */
#include "cu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGN = 256, NEW = 0xff, OLD = 0xfe };

static unsigned char *space, *alias; /* device addresses, and where the fake finds them */
static uint64_t space_bytes, next_offset = 1 << 20;
static fk_alloc **device_allocs, **pinned_allocs; /* by address; what was freed stays */
static size_t n_device, n_pinned;
static uint64_t used[FK_DEVICES], n_made;

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static bool reserve(uint64_t bytes, uint64_t base)
{
    const int none = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (base != 0 ? MAP_FIXED_NOREPLACE : 0);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is easy to recognise
    space = mmap((void *)base, bytes, PROT_NONE, none, -1, 0);
    if (space == MAP_FAILED) return false;
    const int file = memfd_create("fakecuda", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (file >= 0) close(file);
    if (alias != NULL && alias != MAP_FAILED) return true;
    munmap(space, bytes);
    alias = NULL;
    return false;
}

static bool has_space(void)
{
    static const uint64_t bases[] = { 0x700000000000, 0x500000000000, 0x300000000000, 0 };
    for (int shift = 40; shift >= 32 && space_bytes == 0; shift -= 2)
        for (int i = 0; i < 4 && space_bytes == 0; i++)
            if (reserve(1ull << shift, bases[i])) space_bytes = 1ull << shift;
    return space_bytes != 0;
}

static bool keep(fk_alloc ***list, size_t *n, fk_alloc *a)
{
    if ((*n & (*n + 1)) == 0 || *n == 0) { /* full: 0, 1, 3, 7 … */
        fk_alloc **const more = realloc(*list, (2 * *n + 1) * sizeof **list);
        if (more == NULL) return false;
        *list = more;
    }
    size_t i = (*n)++;
    for (; i > 0 && (*list)[i - 1]->lo > a->lo; i--) (*list)[i] = (*list)[i - 1];
    (*list)[i] = a;
    return true;
}

/* The last one that begins at or before the address. */
static fk_alloc *at_or_before(fk_alloc **list, size_t n, uint64_t address)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (list[mid]->lo <= address) lo = mid + 1;
        else hi = mid;
    }
    return lo > 0 ? list[lo - 1] : NULL;
}

static bool is_device_address(uint64_t address)
{
    return space_bytes > 0 && address - (uint64_t)(uintptr_t)space < space_bytes;
}

fk_alloc *fk_find(uint64_t address)
{
    fk_alloc *const a = is_device_address(address) ? at_or_before(device_allocs, n_device, address)
                                                   : at_or_before(pinned_allocs, n_pinned, address);
    return a != NULL && address - a->lo < a->bytes ? a : NULL;
}

fk_alloc *fk_find_live(uint64_t address, size_t bytes)
{
    fk_alloc *const a = fk_find(address);
    return a != NULL && a->live && bytes <= a->bytes - (size_t)(address - a->lo) ? a : NULL;
}

void fk_explain(uint64_t address, size_t bytes, char *text, size_t n)
{
    const fk_alloc *a = fk_find(address);
    const unsigned long long at = address;
    if (a != NULL && !a->live)
        snprintf(text, n, "0x%llx lies in allocation %llu, which was freed", at, (unsigned long long)a->number);
    else if (a != NULL)
        snprintf(text, n, "%zu bytes at 0x%llx leave allocation %llu: they begin at its byte %zu of %zu", bytes, at,
                 (unsigned long long)a->number, (size_t)(address - a->lo), a->bytes);
    else if ((a = at_or_before(device_allocs, n_device, address)) != NULL && is_device_address(address))
        snprintf(text, n, "0x%llx is %llu bytes after the end of allocation %llu of %zu bytes", at,
                 (unsigned long long)(address - a->lo - a->bytes), (unsigned long long)a->number, a->bytes);
    else
        snprintf(text, n, "0x%llx is no device address nor pinned memory", at);
}

void fk_memory_each(void (*visit)(fk_alloc *a, void *data), void *data)
{
    for (size_t i = 0; i < n_device; i++)
        if (device_allocs[i]->live) visit(device_allocs[i], data);
    for (size_t i = 0; i < n_pinned; i++)
        if (pinned_allocs[i]->live) visit(pinned_allocs[i], data);
}

uint64_t fk_device_used(int device)
{
    return used[device];
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static uint64_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

CUresult fk_allocate(int device, size_t bytes, bool of_module, fk_alloc **out)
{
    if (bytes > fk_device_memory(device) || used[device] + rounded(bytes) > fk_device_memory(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!has_space() || bytes > space_bytes - next_offset) return CUDA_ERROR_OUT_OF_MEMORY;
    fk_alloc *const a = calloc(1, sizeof *a);
    if (a == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *a = (fk_alloc){ .lo = (uint64_t)(uintptr_t)space + next_offset, .bytes = bytes, .host = alias + next_offset,
                     .device = device, .live = true, .of_module = of_module, .number = ++n_made };
    if (!keep(&device_allocs, &n_device, a)) {
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(a->host, NEW, bytes);
    used[device] += rounded(bytes);
    next_offset += rounded(bytes) + ALIGN + ALIGN * fk_random_below(16); /* no more aligned than CUDA promises */
    *out = a;
    return CUDA_SUCCESS;
}

/* Large ones give their pages back; nothing can be read there any more. */
void fk_deallocate(fk_alloc *a)
{
    a->live = false;
    if (!a->pinned) used[a->device] -= rounded(a->bytes);
    fk_order_forget(a);
    if (a->pinned) {
        madvise(a->host, a->bytes, MADV_DONTNEED);
        mprotect(a->host, a->bytes, PROT_NONE); /* the address stays taken */
        return;
    }
    unsigned char *const first = a->host + (PAGE - (uintptr_t)a->host % PAGE) % PAGE;
    const size_t pages = a->bytes > 16 * PAGE ? (a->bytes - (size_t)(first - a->host)) / PAGE : 0;
    if (pages == 0 || madvise(first, pages * PAGE, MADV_REMOVE) != 0) memset(a->host, OLD, a->bytes);
}

static CUresult allocate_pinned(size_t bytes, fk_alloc **out)
{
    void *const at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fk_alloc *const a = at != MAP_FAILED ? calloc(1, sizeof *a) : NULL;
    if (a == NULL) {
        if (at != MAP_FAILED) munmap(at, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *a = (fk_alloc){ .lo = (uint64_t)(uintptr_t)at, .bytes = bytes, .host = at, .device = fk_current->o.device,
                     .live = true, .pinned = true, .number = ++n_made };
    if (!keep(&pinned_allocs, &n_pinned, a)) {
        munmap(at, bytes);
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(at, NEW, bytes);
    *out = a;
    return CUDA_SUCCESS;
}

/* ---- the operations' view ---------------------------------------------------------------------------------------- */

unsigned char *fk_reach(uint64_t address, size_t bytes, int access, const fk_op *op, const char *who)
{
    fk_alloc *const a = fk_find_live(address, bytes);
    char why[200];
    if (a == NULL) {
        fk_explain(address, bytes, why, sizeof why);
        fk_report("%s %s: %s", who, access == PTX_READ ? "reads" : "writes", why);
        return NULL;
    }
    if (op != NULL && !a->pinned && !fk_device_sees(op->device, a->device)) {
        fk_report("%s: device %d reaches memory of device %d without peer access", who, op->device, a->device);
        return NULL;
    }
    if (op != NULL) fk_touch(a, address, bytes, access, op, who);
    if (a->pinned && access != PTX_READ) a->version++;
    return a->host + (address - a->lo);
}

FK_EXPORT void *fk_map(uint64_t address, size_t bytes, bool write, const char *who)
{
    fk_lock();
    void *const at = fk_reach(address, bytes, write ? PTX_WRITE : PTX_READ, fk_running, who);
    fk_unlock();
    return at;
}

/* ---- CUDA's functions -------------------------------------------------------------------------------------------- */

FK_EXPORT CUresult CUDAAPI cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    if (out == NULL || bytes == 0) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%zu bytes", bytes);
    fk_alloc *a = NULL;
    const CUresult code = fk_allocate(fk_current->o.device, bytes, false, &a);
    if (code == CUDA_SUCCESS) *out = a->lo;
    return code;
}

FK_EXPORT CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE | FK_RELEASE);
    if (address == 0) return fk_result(&guard, CUDA_SUCCESS);
    fk_alloc *const a = fk_find(address);
    char why[200];
    if (a == NULL || !a->live || a->lo != address || a->pinned || a->of_module) {
        fk_explain(address, 1, why, sizeof why);
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%s",
                         a != NULL && a->live ? "the address is not the beginning of an allocation" : why);
    }
    fk_wait_device(a->device);
    fk_touch_free(a);
    fk_deallocate(a);
    return fk_result(&guard, CUDA_SUCCESS);
}

static CUresult alloc_host(const fk_guard *g, void **out, size_t bytes)
{
    if (out == NULL || bytes == 0) return fk_misuse(g, CUDA_ERROR_INVALID_VALUE, "%zu bytes", bytes);
    fk_alloc *a = NULL;
    const CUresult code = allocate_pinned(bytes, &a);
    if (code == CUDA_SUCCESS) *out = a->host;
    return code;
}

FK_EXPORT CUresult CUDAAPI cuMemAllocHost(void **out, size_t bytes)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    return alloc_host(&guard, out, bytes);
}

FK_EXPORT CUresult CUDAAPI cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE);
    if (flags > 7) return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
    return alloc_host(&guard, out, bytes);
}

FK_EXPORT CUresult CUDAAPI cuMemFreeHost(void *at)
{
    FK_ENTER(FK_CONTEXT | FK_UNSAFE | FK_RELEASE);
    fk_alloc *const a = fk_find((uint64_t)(uintptr_t)at);
    if (a == NULL || !a->live || !a->pinned || a->host != at)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "%p was not given by cuMemAllocHost, or was freed", at);
    fk_wait_device(-1);
    fk_touch_free(a);
    fk_deallocate(a);
    return fk_result(&guard, CUDA_SUCCESS);
}

FK_EXPORT CUresult CUDAAPI cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    FK_ENTER(FK_CONTEXT);
    if (free_bytes == NULL || total == NULL)
        return fk_misuse(&guard, CUDA_ERROR_INVALID_VALUE, "no place for an answer");
    *total = fk_device_memory(fk_current->o.device);
    *free_bytes = *total - used[fk_current->o.device];
    return CUDA_SUCCESS;
}

FK_EXPORT int fk_poison(uint64_t address, size_t bytes)
{
    char why[200];
    fk_lock();
    fk_alloc *const a = fk_find_live(address, bytes);
    if (a != NULL) {
        memset(a->host + (address - a->lo), NEW, bytes);
        fk_touch_poison(a, address, bytes);
    } else {
        fk_explain(address, bytes, why, sizeof why);
        fk_report("fk_poison: %s", why);
    }
    fk_unlock();
    return a != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
