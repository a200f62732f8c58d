/* NVML, the library that `nvidia-smi` uses: how many devices there are, and who uses their memory. torch opens it by name,
   and from 2.14 on it needs it for expandable segments. Its header does not come with torch, so types are plain here. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "absent.h"

enum { DONE = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_ROOM = 7 };
struct process { unsigned id; unsigned long long used_bytes; }; /* nvmlProcessInfo_v1_t */

int nvmlInit(void) { return DONE; }
int nvmlInit_v2(void) { return DONE; }
int nvmlShutdown(void) { return DONE; }
const char *nvmlErrorString(int error) { return error ? "the device is absent" : "success"; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = CUDA_VERSION, DONE; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)absent_gpu.count, DONE; }

/* A handle is the number of the device plus one. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return index < (unsigned)absent_gpu.count ? DONE : INVALID;
}

/* cudaDeviceGetPCIBusId has written `0000:01:00.0` for the first device. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    unsigned number = 0;
    if (sscanf(bus, "%*x:%x", &number) != 1 || !number) return INVALID;
    return nvmlDeviceGetHandleByIndex_v2(number - 1, device);
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    unsigned number = (unsigned)(uintptr_t)device;
    snprintf(text, size, "GPU-%02x%02x%02x%02x-0000-0000-0000-000000000000", number, number, number, number);
    return DONE;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, struct process *found) {
    unsigned room = *count;
    *count = 1;
    if (!room) return NO_ROOM;
    size_t used = absent_used((int)(uintptr_t)device - 1);
    *found = (struct process){(unsigned)getpid(), used + absent_gpu.context_bytes};
    return DONE;
}

/* Nothing joins an absent device to others. */
int nvmlDeviceGetGpuFabricInfoV(void *device, void *found) { return (void)device, (void)found, NOT_SUPPORTED; }

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) {
    return (void)device, (void)link, *type = 255, NOT_SUPPORTED; /* 255 is an unknown type */
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *found) {
    return (void)device, (void)link, (void)found, NOT_SUPPORTED;
}
