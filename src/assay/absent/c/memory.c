/* Memory of the devices, and pinned memory of the host.

   Each device has a range of addresses, four times its memory. It is reserved and never touched by this file, so it takes
   no memory of the host. Blocks are placed at the highest address that fits, in steps of 2 MiB, so that two runs get the
   same addresses. torch takes the lowest of equal free blocks, so the order matters for what it reserves: from high to
   low comes nearest to what was measured. What a device has given out is counted, and ends where the device's memory ends. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "absent.h"

#define GRANULARITY ((size_t)2 << 20)
#define ARENA_FACTOR 4

/* It begins with an absent_span. */
struct range { uintptr_t start; size_t bytes; enum absent_kind kind; int device, owned; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges; /* sorted by start, and none overlaps another */
static size_t count, room;
static uintptr_t arenas[ABSENT_MOST_DEVICES];
static size_t used[ABSENT_MOST_DEVICES], most_used[ABSENT_MOST_DEVICES];

static size_t rounded(size_t bytes) { return (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY; }

static void *reserve(size_t bytes) {
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return NULL;
    madvise(found, bytes, MADV_NOHUGEPAGE); /* a byte that is written takes 4 KiB, not 2 MiB */
    madvise(found, bytes, MADV_DONTDUMP);
    return found;
}

/* Index of the first range that ends after an address; `count` if there is none. The lock is held. */
static size_t first_after(uintptr_t address) {
    return absent_first_after(ranges, count, sizeof *ranges, address);
}

static int insert(struct range one) {
    if (count == room) {
        size_t larger = room ? 2 * room : 256;
        struct range *moved = realloc(ranges, larger * sizeof *ranges);
        if (!moved) return 0;
        ranges = moved;
        room = larger;
    }
    size_t at = first_after(one.start);
    memmove(ranges + at + 1, ranges + at, (count - at) * sizeof *ranges);
    ranges[at] = one;
    count++;
    return 1;
}

static void forget(size_t at) {
    count--;
    memmove(ranges + at, ranges + at + 1, (count - at) * sizeof *ranges);
}

/* The highest address of a device's arena at which a block fits; 0 if there is none. */
static uintptr_t place(int device, size_t bytes) {
    size_t span = ARENA_FACTOR * rounded(absent_gpu.memory_bytes);
    if (!arenas[device]) {
        uintptr_t start = (uintptr_t)reserve(span + GRANULARITY);
        if (!start) return 0;
        arenas[device] = (start + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    }
    uintptr_t low = arenas[device], top = low + span;
    size_t needed = rounded(bytes);
    for (size_t index = first_after(top); index-- > 0 && ranges[index].start >= low;) {
        uintptr_t end = low + rounded(ranges[index].start + ranges[index].bytes - low);
        if (top - end >= needed) break;
        top = ranges[index].start;
    }
    return top - low >= needed ? top - needed : 0;
}

static int has_room(int device, size_t bytes) {
    size_t most = absent_gpu.memory_bytes - absent_gpu.context_bytes;
    return bytes <= most && used[device] <= most - bytes;
}

static void use(int device, size_t bytes) {
    used[device] += bytes;
    if (used[device] > most_used[device]) most_used[device] = used[device];
}

cudaError_t absent_take(void **pointer, size_t bytes, int device) {
    *pointer = NULL;
    if (!bytes) return cudaSuccess;
    pthread_mutex_lock(&lock);
    uintptr_t at = has_room(device, bytes) ? place(device, bytes) : 0;
    if (at && insert((struct range){at, bytes, DEVICE_MEMORY, device, 1})) {
        use(device, bytes);
        *pointer = (void *)at;
    }
    pthread_mutex_unlock(&lock);
    return *pointer ? cudaSuccess : absent_failed(cudaErrorMemoryAllocation);
}

cudaError_t absent_give(void *pointer, enum absent_kind kind) {
    if (!pointer) return cudaSuccess;
    if (kind == DEVICE_MEMORY) absent_overwritten(pointer, absent_place_of(pointer).bytes);
    pthread_mutex_lock(&lock);
    size_t at = first_after((uintptr_t)pointer);
    int found = at < count && ranges[at].start == (uintptr_t)pointer && ranges[at].kind == kind;
    if (found) {
        struct range one = ranges[at];
        forget(at);
        if (kind == DEVICE_MEMORY) used[one.device] -= one.bytes;
        else if (one.owned) munmap(pointer, one.bytes);
    }
    pthread_mutex_unlock(&lock);
    return found ? cudaSuccess : absent_failed(cudaErrorInvalidValue);
}

struct absent_place absent_place_of(const void *pointer) {
    struct absent_place place = {PAGEABLE_MEMORY, -1, 0, 0};
    pthread_mutex_lock(&lock);
    size_t at = first_after((uintptr_t)pointer);
    if (at < count && ranges[at].start <= (uintptr_t)pointer)
        place = (struct absent_place){ranges[at].kind, ranges[at].device, ranges[at].start, ranges[at].bytes};
    pthread_mutex_unlock(&lock);
    return place;
}

int absent_on_device(const void *pointer) { return absent_place_of(pointer).kind == DEVICE_MEMORY; }

size_t absent_used(int device) {
    pthread_mutex_lock(&lock);
    size_t now = used[device];
    pthread_mutex_unlock(&lock);
    return now;
}

/* Most bytes that a device has given out at once, for the observer. */
uint64_t absent_most_used(int device) { return device >= 0 && device < absent_gpu.count ? most_used[device] : 0; }

cudaError_t cudaMalloc(void **pointer, size_t bytes) { return absent_take(pointer, bytes, absent_current()); }
cudaError_t cudaFree(void *pointer) { return absent_give(pointer, DEVICE_MEMORY); }
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) { return (void)stream, absent_give(pointer, DEVICE_MEMORY); }

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
    (void)stream;
    return absent_take(pointer, bytes, absent_current());
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = absent_gpu.memory_bytes;
    *free_bytes = absent_gpu.memory_bytes - absent_gpu.context_bytes - absent_used(absent_current());
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    *pointer = bytes ? reserve(bytes) : NULL;
    if (!*pointer) return bytes ? absent_failed(cudaErrorMemoryAllocation) : cudaSuccess;
    pthread_mutex_lock(&lock);
    insert((struct range){(uintptr_t)*pointer, bytes, PINNED_MEMORY, -1, 1});
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer) { return absent_give(pointer, PINNED_MEMORY); }
cudaError_t cudaHostUnregister(void *pointer) { return absent_give(pointer, PINNED_MEMORY); }

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
    (void)flags;
    if (!pointer || !bytes || absent_place_of(pointer).kind != PAGEABLE_MEMORY) return absent_failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    insert((struct range){(uintptr_t)pointer, bytes, PINNED_MEMORY, -1, 0});
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *pointer) {
    struct absent_place place = absent_place_of(pointer);
    memset(found, 0, sizeof *found);
    found->device = place.kind == DEVICE_MEMORY ? place.device : 0;
    found->type = place.kind == DEVICE_MEMORY   ? cudaMemoryTypeDevice
                  : place.kind == PINNED_MEMORY ? cudaMemoryTypeHost
                                                : cudaMemoryTypeUnregistered;
    found->devicePointer = place.kind == PAGEABLE_MEMORY ? NULL : (void *)pointer;
    found->hostPointer = place.kind == PINNED_MEMORY ? (void *)pointer : NULL;
    return cudaSuccess;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    struct absent_place place = absent_place_of((void *)pointer);
    if (place.kind == PAGEABLE_MEMORY) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = (CUcontext)(uintptr_t)(place.device + 1); break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = place.kind == DEVICE_MEMORY ? 2 : 1; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = place.device; break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = place.start; break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = place.bytes; break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = 0; break;
        default: *(CUdeviceptr *)value = pointer;
    }
    return CUDA_SUCCESS;
}

/* Pools of cudaMallocAsync: only what is in use is known; what a pool keeps is not. */
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = (cudaMemPool_t)(uintptr_t)(device + 1);
    return device < absent_gpu.count ? cudaSuccess : absent_failed(cudaErrorInvalidDevice);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    if (attribute < cudaMemPoolAttrReleaseThreshold) *(int *)value = 1;
    else *(uint64_t *)value = absent_used((int)(uintptr_t)pool - 1);
    return cudaSuccess;
}

/* Virtual memory of the driver, which torch's expandable segments use: addresses, memory, and mappings of the two. */
struct physical { size_t bytes; int device, holders; };
struct mapping { CUdeviceptr at; size_t bytes; struct physical *memory; struct mapping *next; };
static struct mapping *mappings;

CUresult cuMemGetAllocationGranularity(size_t *found, const CUmemAllocationProp *wanted, CUmemAllocationGranularity_flags option) {
    (void)wanted, (void)option;
    return *found = GRANULARITY, CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
    (void)alignment, (void)wish, (void)flags;
    uintptr_t start = (uintptr_t)reserve(bytes + GRANULARITY);
    *at = 0;
    if (!start) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = (start + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    pthread_mutex_lock(&lock);
    insert((struct range){*at, bytes, DEVICE_MEMORY, absent_current(), 0});
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
    absent_overwritten((void *)at, bytes);
    pthread_mutex_lock(&lock);
    size_t index = first_after(at);
    if (index < count && ranges[index].start == at) forget(index);
    pthread_mutex_unlock(&lock);
    return munmap((void *)at, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *wanted, unsigned long long flags) {
    (void)flags;
    struct physical *memory = malloc(sizeof *memory);
    *handle = 0;
    if (!memory || wanted->location.id < 0 || wanted->location.id >= absent_gpu.count) return free(memory), CUDA_ERROR_INVALID_DEVICE;
    *memory = (struct physical){bytes, wanted->location.id, 1};
    pthread_mutex_lock(&lock);
    int fits = has_room(memory->device, bytes);
    if (fits) use(memory->device, bytes);
    pthread_mutex_unlock(&lock);
    if (!fits) return free(memory), CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

/* Memory is given back when its handle is released and nothing maps it. The lock is held. */
static void let_go(struct physical *memory) {
    if (--memory->holders) return;
    used[memory->device] -= memory->bytes;
    free(memory);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    pthread_mutex_lock(&lock);
    let_go((struct physical *)(uintptr_t)handle);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    (void)offset, (void)flags;
    struct mapping *one = malloc(sizeof *one);
    if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    *one = (struct mapping){at, bytes, (struct physical *)(uintptr_t)handle, mappings};
    one->memory->holders++;
    mappings = one;
    size_t index = first_after(at);
    if (index < count && ranges[index].start <= at) ranges[index].device = one->memory->device;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    absent_overwritten((void *)at, bytes);
    pthread_mutex_lock(&lock);
    for (struct mapping **link = &mappings; *link;) {
        struct mapping *one = *link;
        if (one->at < at || one->at >= at + bytes) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        let_go(one->memory);
        free(one);
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *who, size_t many) {
    return (void)at, (void)bytes, (void)who, (void)many, CUDA_SUCCESS;
}

/* A handle has the size of its memory. Whoever opens it, in any process, sees memory of that size and no values. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at) {
    size_t bytes = absent_place_of((void *)at).bytes;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &bytes, sizeof bytes);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
    size_t bytes;
    (void)flags;
    memcpy(&bytes, &handle, sizeof bytes);
    return (CUresult)cudaMalloc((void **)at, bytes);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr at) { return (CUresult)cudaFree((void *)at); }

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) { return (CUresult)cudaMalloc((void **)at, bytes); }
CUresult cuMemFree_v2(CUdeviceptr at) { return (CUresult)cudaFree((void *)at); }
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return (CUresult)cudaMemGetInfo(free_bytes, total); }
