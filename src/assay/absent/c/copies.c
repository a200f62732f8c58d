/* Copies, fills and synchronizations. */
#include <string.h>
#include "absent.h"

/* The defined fill of what a kernel would have computed: numbers are 0, a single byte is a bool and is true. Two bools that
   mean a failure are false: whether a solver of linear algebra reports any, and whether a gradient has a NaN. */
static void fill(void *to, size_t bytes) {
    int fails = bytes == 1 && (absent_inside("_linalg_check_errors") || absent_checks_gradient());
    memset(to, bytes == 1 && !fails, bytes);
}

/* The observer knows the values of a block: all of its bytes are equal. */
void absent_known(void *at, int value, size_t bytes) {
    char page[4096];
    for (size_t done = 0; done < bytes; done += sizeof page) {
        size_t part = bytes - done < sizeof page ? bytes - done : sizeof page;
        memset(page, value, part);
        absent_sent((char *)at + done, page, part);
    }
}

/* Copy between any two places. `stream` is given for copies that do not wait. */
static cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream, int waits) {
    if (!bytes) return cudaSuccess;
    if (absent_captured_node(stream)) {
        enum absent_kind target = absent_place_of(to).kind;
        return target == PAGEABLE_MEMORY && absent_on_device(from) ? absent_must_not_capture(stream) : cudaSuccess;
    }
    struct absent_place source = absent_place_of(from), target = absent_place_of(to);
    absent_forget_pending();
    if (target.kind == DEVICE_MEMORY && source.kind != DEVICE_MEMORY) {
        absent_add(COPIES_TO_DEVICE, 1);
        if (source.kind == PAGEABLE_MEMORY) absent_add(PAGEABLE, 1);
        absent_sent(to, from, bytes);
    } else if (target.kind == DEVICE_MEMORY) {
        absent_add(COPIES_ON_DEVICE, 1);
        static __thread char kept[4096];
        if (bytes <= sizeof kept && absent_as_sent(kept, from, bytes)) absent_sent(to, kept, bytes);
        else absent_overwritten(to, bytes);
    } else if (source.kind == DEVICE_MEMORY) {
        int known = absent_as_sent(to, from, bytes);
        if (!known) fill(to, bytes);
        if (target.kind == PINNED_MEMORY && !waits) absent_copied_to_pinned(to, bytes, known, stream);
        else absent_read(to, bytes, known);
    } else {
        memmove(to, from, bytes);
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    cudaError_t error = absent_nobody_captures();
    return error ? error : copy(to, from, bytes, NULL, 1);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    return copy(to, from, bytes, stream, 0);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int other, size_t bytes, cudaStream_t stream) {
    (void)device, (void)other;
    return copy(to, from, bytes, stream, 0);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    cudaError_t error = cudaSuccess;
    for (size_t row = 0; row < height && !error; row++)
        error = copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, stream, 0);
    return error;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    return (void)symbol, (void)from, (void)bytes, (void)offset, (void)kind, cudaSuccess;
}

/* A fill of few bytes is remembered like a copy, so that a small `zeros` reads as zeros. */
static cudaError_t set(void *to, int value, size_t bytes, cudaStream_t stream) {
    char small[64];
    if (absent_captured_node(stream)) return cudaSuccess;
    absent_add(FILLS, 1);
    if (bytes > sizeof small) return absent_overwritten(to, bytes), cudaSuccess;
    memset(small, value, bytes);
    absent_sent(to, small, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return set(to, value, bytes, NULL); }
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) { return set(to, value, bytes, stream); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    cudaError_t error = absent_must_not_capture(stream);
    if (error) return error;
    absent_add(SYNCHRONIZATIONS, 1);
    absent_synchronized(stream);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t error = absent_nobody_captures();
    if (error) return error;
    absent_add(SYNCHRONIZATIONS, 1);
    absent_forget_pending();
    return cudaSuccess;
}

CUresult cuStreamSynchronize(CUstream stream) { return (CUresult)cudaStreamSynchronize(stream); }

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return (CUresult)cudaMemcpy((void *)to, from, bytes, cudaMemcpyHostToDevice);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return (CUresult)cudaMemcpy(to, (void *)from, bytes, cudaMemcpyDeviceToHost);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return (CUresult)copy((void *)to, from, bytes, stream, 0);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (CUresult)copy(to, (void *)from, bytes, stream, 0);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return (CUresult)copy((void *)to, (void *)from, bytes, stream, 0);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    return (CUresult)set((void *)to, value, bytes, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, CUstream stream) {
    (void)value;
    if (absent_captured_node(stream)) return CUDA_SUCCESS;
    absent_add(FILLS, 1);
    return absent_overwritten((void *)to, 4 * words), CUDA_SUCCESS;
}
