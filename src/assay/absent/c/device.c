/* The device: its description comes from the environment, as `key=value` in ASSAY_ABSENT_DEVICE. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "absent.h"

struct absent_device absent_gpu;
static __thread int current = 0;

static size_t described(const char *key, size_t otherwise) {
    const char *all = getenv("ASSAY_ABSENT_DEVICE");
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *found = all ? strstr(all, wanted) : NULL;
    return found ? strtoull(found + strlen(wanted), NULL, 10) : otherwise;
}

/* CUDA_VISIBLE_DEVICES hides devices, as with CUDA: the list ends at the first number that is no device. */
static int visible(int count) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return count;
    int seen = 0;
    for (char *end; *list; list = *end == ',' ? end + 1 : end, seen++) {
        long index = strtol(list, &end, 10);
        if (end == list || index < 0 || index >= count) break;
    }
    return seen < count ? seen : count;
}

__attribute__((constructor(101))) static void describe(void) {
    const char *name = getenv("ASSAY_ABSENT_NAME");
    struct absent_device *gpu = &absent_gpu;
    snprintf(gpu->name, sizeof gpu->name, "%s", name ? name : "absent GPU");
    gpu->count = visible((int)described("count", 1));
    gpu->major = (int)described("major", 9);
    gpu->minor = (int)described("minor", 0);
    gpu->multiprocessors = (int)described("multiprocessors", 132);
    gpu->l2_bytes = (int)described("l2_bytes", 52428800);
    gpu->threads = (int)described("threads", 2048);
    gpu->blocks = (int)described("blocks", 32);
    gpu->shared_bytes = (int)described("shared_bytes", 233472);
    gpu->shared_optin_bytes = (int)described("shared_optin_bytes", 232448);
    gpu->clock_khz = (int)described("clock_khz", 1980000);
    gpu->memory_clock_khz = (int)described("memory_clock_khz", 2619000);
    gpu->bus_bits = (int)described("bus_bits", 5120);
    gpu->memory_bytes = described("memory_bytes", 80ull << 30);
    gpu->context_bytes = described("context_bytes", 0);
}

int absent_current(void) { return current; }
static int exists(int device) { return device >= 0 && device < absent_gpu.count; }

/* The driver answers once it was started. The runtime starts it when it is asked for the first time. */
static int started;

cudaError_t cudaGetDeviceCount(int *count) {
    *count = absent_gpu.count;
    started = 1;
    return absent_gpu.count ? cudaSuccess : absent_failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device) { return *device = current, cudaSuccess; }

cudaError_t cudaSetDevice(int device) {
    if (!exists(device)) return absent_failed(cudaErrorInvalidDevice);
    current = device;
    started = 1;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    if (!exists(device)) return absent_failed(cudaErrorInvalidDevice);
    memset(found, 0, sizeof *found);
    snprintf(found->name, sizeof found->name, "%s", absent_gpu.name);
    memset(found->uuid.bytes, device + 1, sizeof found->uuid.bytes);
    found->totalGlobalMem = absent_gpu.memory_bytes;
    found->major = absent_gpu.major;
    found->minor = absent_gpu.minor;
    found->multiProcessorCount = absent_gpu.multiprocessors;
    found->l2CacheSize = absent_gpu.l2_bytes;
    found->maxThreadsPerMultiProcessor = absent_gpu.threads;
    found->maxBlocksPerMultiProcessor = absent_gpu.blocks;
    found->sharedMemPerBlock = 49152;
    found->sharedMemPerBlockOptin = absent_gpu.shared_optin_bytes;
    found->sharedMemPerMultiprocessor = absent_gpu.shared_bytes;
    found->reservedSharedMemPerBlock = 1024;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->memoryBusWidth = absent_gpu.bus_bits;
    found->warpSize = 32;
    found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
    found->maxThreadsDim[2] = 64;
    found->maxGridSize[0] = 2147483647;
    found->maxGridSize[1] = found->maxGridSize[2] = 65535;
    found->totalConstMem = 65536;
    found->textureAlignment = 512;
    found->pciBusID = device + 1;
    found->asyncEngineCount = 3;
    found->concurrentKernels = found->unifiedAddressing = found->managedMemory = found->cooperativeLaunch = 1;
    found->canMapHostMemory = found->pageableMemoryAccess = found->streamPrioritiesSupported = 1;
    return cudaSuccess;
}

/* Attributes have the same numbers in the runtime and in the driver. Features that few ask for count as present. */
int absent_attribute(int attribute, int *value) {
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
        case cudaDevAttrMaxBlockDimZ: *value = 64; break;
        case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = absent_gpu.shared_optin_bytes; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = absent_gpu.shared_bytes; break;
        case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
        case cudaDevAttrTotalConstantMemory: *value = 65536; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
        case cudaDevAttrClockRate: *value = absent_gpu.clock_khz; break;
        case cudaDevAttrMemoryClockRate: *value = absent_gpu.memory_clock_khz; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = absent_gpu.bus_bits; break;
        case cudaDevAttrMultiProcessorCount: *value = absent_gpu.multiprocessors; break;
        case cudaDevAttrL2CacheSize: *value = absent_gpu.l2_bytes; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = absent_gpu.threads; break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = absent_gpu.blocks; break;
        case cudaDevAttrComputeCapabilityMajor: *value = absent_gpu.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = absent_gpu.minor; break;
        case cudaDevAttrIntegrated: case cudaDevAttrKernelExecTimeout: case cudaDevAttrEccEnabled: *value = 0; break;
        case cudaDevAttrComputeMode: case cudaDevAttrTccDriver: case cudaDevAttrIsMultiGpuBoard: *value = 0; break;
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: *value = 0; break; /* one machine, no fabric of nodes */
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: *value = 0; break;
        default: *value = 1;
    }
    return 0;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (!exists(device)) return absent_failed(cudaErrorInvalidDevice);
    absent_attribute(attribute, value);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, cudaSuccess; }

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    if (!exists(device)) return absent_failed(cudaErrorInvalidDevice);
    snprintf(text, size, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other) {
    *can = 0;
    if (!exists(device) || !exists(other)) return absent_failed(cudaErrorInvalidDevice);
    *can = device != other;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) {
    (void)flags;
    return exists(other) ? cudaSuccess : absent_failed(cudaErrorInvalidDevice);
}

/* The same from the driver. */
CUresult cuInit(unsigned flags) {
    (void)flags;
    started = 1;
    return absent_gpu.count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) {
    *count = absent_gpu.count;
    return started ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return exists(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, size, "%s", absent_gpu.name);
    return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    *bytes = absent_gpu.memory_bytes;
    return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    *major = absent_gpu.major;
    *minor = absent_gpu.minor;
    return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    absent_attribute(attribute, value);
    return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* A context is the device's number plus one: it must not be null. */
CUresult cuCtxGetCurrent(CUcontext *context) { return *context = (CUcontext)(uintptr_t)(current + 1), CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { return *device = current, CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { return (CUresult)cudaDeviceSynchronize(); }
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { return (void)limit, *value = 1024, CUDA_SUCCESS; }

CUresult cuCtxSetCurrent(CUcontext context) {
    if (context && exists((int)(uintptr_t)context - 1)) current = (int)(uintptr_t)context - 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) { return cuCtxSetCurrent(context); }
CUresult cuCtxPopCurrent_v2(CUcontext *context) { return context ? cuCtxGetCurrent(context) : CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = (CUcontext)(uintptr_t)(device + 1);
    return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return (void)device, CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = exists(device);
    return CUDA_SUCCESS;
}
