/* An absent GPU: what the files of this folder share.

   The library takes the place of CUDA's runtime, driver, cuBLAS, cuDNN and others. Device memory is address space that
   nobody touches. Kernels and products return at once. What torch does on the host stays real. */
#ifndef ABSENT_H
#define ABSENT_H
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#define ABSENT_MOST_DEVICES 64

/* The device, as the environment of the process describes it (device.c). All absent devices are equal. */
struct absent_device {
    char name[256];
    int count, major, minor, multiprocessors, l2_bytes, threads, blocks;
    int shared_bytes, shared_optin_bytes, clock_khz, memory_clock_khz, bus_bits;
    size_t memory_bytes;   /* what CUDA calls total */
    size_t context_bytes;  /* least memory that a context takes of it */
};
extern struct absent_device absent_gpu;
int absent_current(void);
int absent_attribute(int attribute, int *value);

/* Counts of a process (counts.c). Threads add to them at once. */
enum absent_count {
    LAUNCHES, PRODUCTS, FILLS, COPIES_ON_DEVICE, SYNCHRONIZATIONS, READS, BYTES_READ, COPIES_TO_DEVICE, PAGEABLE,
    COPIES_TO_PINNED, BYTES_TO_PINNED, GRAPH_LAUNCHES, GRAPH_NODES, NOT_KEPT, ABSENT_COUNTS
};
void absent_add(enum absent_count which, uint64_t more);

/* Errors (errors.c): remembered for cudaGetLastError, by thread. */
cudaError_t absent_failed(cudaError_t error);

/* Spans of addresses, sorted by start and without overlap, at the head of structures of `each` bytes (spans.c). */
struct absent_span { uintptr_t start; size_t bytes; };
size_t absent_first_after(const void *spans, size_t count, size_t each, uintptr_t address);

/* Memory (memory.c). */
enum absent_kind { PAGEABLE_MEMORY = -1, PINNED_MEMORY = 0, DEVICE_MEMORY = 1 };
struct absent_place { enum absent_kind kind; int device; uintptr_t start; size_t bytes; };
cudaError_t absent_take(void **pointer, size_t bytes, int device);
cudaError_t absent_give(void *pointer, enum absent_kind kind);
struct absent_place absent_place_of(const void *pointer);
int absent_on_device(const void *pointer);
size_t absent_used(int device);

/* Contents (contents.c): bytes that were only copied to the device come back as sent. */
void absent_sent(void *to, const void *from, size_t bytes);
int absent_as_sent(void *to, const void *from, size_t bytes);
void absent_overwritten(const void *start, size_t bytes);
void absent_written(const void *pointer);
void absent_given(void **arguments);
void absent_replayed(void);

/* Reads and notes are told to an observer, if there is one (reads.c). */
const char *absent_operator(void);
int absent_inside(const char *operator);
int absent_checks_gradient(void);
void absent_read(void *to, size_t bytes, int known);
void absent_copied_to_pinned(void *to, size_t bytes, int known, cudaStream_t stream);
void absent_synchronized(cudaStream_t stream);
void absent_forget_pending(void);
void absent_unknown(const char *library, const char *function, int runs);

/* Streams and captures (streams.c). */
int absent_captured_node(cudaStream_t stream);
cudaError_t absent_must_not_capture(cudaStream_t stream);
cudaError_t absent_nobody_captures(void);

/* A launch of a kernel, whoever asks for it (kernels.c). */
cudaError_t absent_launch(dim3 grid, dim3 block, size_t shared_bytes, void **arguments, cudaStream_t stream);
void *absent_handle(void);
void absent_product(cudaStream_t stream);

#endif
