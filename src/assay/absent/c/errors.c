/* Errors of the runtime, with CUDA's own names and texts, because torch shows them. */
#include "absent.h"

static __thread cudaError_t last = cudaSuccess;

cudaError_t absent_failed(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last; }

cudaError_t cudaGetLastError(void) {
    cudaError_t found = last;
    last = cudaSuccess;
    return found;
}

struct text { int code; const char *name, *text; };
static const struct text texts[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, "cudaErrorNotReady", "device not ready"},
    {704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};

static const struct text *text_of(int code) {
    static const struct text unknown = {999, "cudaErrorUnknown", "unknown error"};
    for (size_t index = 0; index < sizeof texts / sizeof *texts; index++)
        if (texts[index].code == code) return &texts[index];
    return &unknown;
}

const char *cudaGetErrorName(cudaError_t error) { return text_of(error)->name; }
const char *cudaGetErrorString(cudaError_t error) { return text_of(error)->text; }

/* The driver's codes are equal to the runtime's for all that this library returns. */
CUresult cuGetErrorString(CUresult error, const char **text) { return *text = text_of((int)error)->text, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char **name) { return *name = text_of((int)error)->name, CUDA_SUCCESS; }
