/* Kernels: they are registered, described and launched, and none ever runs. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "absent.h"

/* A launch that CUDA would refuse for its shape is refused here too. */
static int possible(dim3 grid, dim3 block, size_t shared_bytes) {
    size_t threads = (size_t)block.x * block.y * block.z;
    return grid.x && grid.y && grid.z && threads && threads <= 1024 && block.z <= 64 && grid.x <= 2147483647u &&
           grid.y <= 65535 && grid.z <= 65535 && shared_bytes <= (size_t)absent_gpu.shared_optin_bytes;
}

cudaError_t absent_launch(dim3 grid, dim3 block, size_t shared_bytes, void **arguments, cudaStream_t stream) {
    if (!possible(grid, block, shared_bytes)) return absent_failed(cudaErrorInvalidConfiguration);
    if (absent_captured_node(stream)) return cudaSuccess;
    absent_add(LAUNCHES, 1);
    absent_forget_pending();
    absent_given(arguments);
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    (void)kernel;
    return absent_launch(grid, block, shared_bytes, arguments, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    (void)kernel;
    return absent_launch(grid, block, shared_bytes, arguments, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *kernel, void **arguments) {
    (void)kernel;
    return absent_launch(how->gridDim, how->blockDim, how->dynamicSmemBytes, arguments, how->stream);
}

/* What nvcc's code for the host calls from CUDA 13 on. */
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    (void)kernel;
    return absent_launch(grid, block, shared_bytes, arguments, stream);
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) { return *kernel = (cudaKernel_t)function, cudaSuccess; }

/* Handles of registered code differ, because libraries keep them; nothing reads what is behind them. */
void **__cudaRegisterFatBinary(void *code) { return (void)code, absent_handle(); }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { free(handle); }
char __cudaInitModule(void **handle) { return (void)handle, 1; }

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *thread, void *block,
                            void *block_dim, void *grid_dim, int *size) {
    (void)handle, (void)host, (void)device, (void)name, (void)limit, (void)thread, (void)block, (void)block_dim, (void)grid_dim, (void)size;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant, int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

/* The configuration of `<<<…>>>` travels through this pair of calls, on each thread. */
static __thread struct { dim3 grid, block; size_t shared_bytes; void *stream; } configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream) {
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared_bytes = shared_bytes;
    configuration.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared_bytes = configuration.shared_bytes;
    *(void **)stream = configuration.stream;
    return cudaSuccess;
}

/* Architecture of the code that runs on the device: the newest that torch was compiled for and the device understands.
   CUB refuses a kernel whose architecture it was not compiled for. */
static int code_architecture;

void absent_set_code(int architecture) { code_architecture = architecture; }

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *kernel) {
    (void)kernel;
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    found->numRegs = 32;
    found->maxDynamicSharedSizeBytes = absent_gpu.shared_optin_bytes;
    int device = 10 * absent_gpu.major + absent_gpu.minor;
    found->binaryVersion = found->ptxVersion = code_architecture ? code_architecture : device;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    (void)kernel;
    int too_much = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > absent_gpu.shared_optin_bytes;
    return too_much ? absent_failed(cudaErrorInvalidValue) : cudaSuccess;
}

/* Blocks that run at once, if 32 registers a thread are enough: threads and shared memory are then the limits. */
static int at_once(int block_threads, size_t shared_bytes) {
    int blocks = block_threads > 0 ? absent_gpu.threads / block_threads : 0;
    int by_memory = shared_bytes ? (int)((size_t)absent_gpu.shared_bytes / (shared_bytes + 1024)) : blocks;
    blocks = blocks < absent_gpu.blocks ? blocks : absent_gpu.blocks;
    return blocks < by_memory ? blocks : by_memory;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared_bytes) {
    (void)kernel;
    return *blocks = at_once(threads, shared_bytes), cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int threads, size_t shared_bytes, unsigned flags) {
    return (void)flags, cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}

/* A variable of a kernel: all share one place, which nothing reads. */
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    static char place[1 << 20];
    return (void)symbol, *address = place, cudaSuccess;
}

/* Functions of the driver by name: they are in this library. One that is not known is said to be missing. */
static CUresult entry(const char *name, void **function) {
    static const char *const suffixes[] = {"_v2", "_v3", ""};
    char versioned[256];
    *function = NULL;
    for (size_t index = 0; index < 3 && !*function && strlen(name) < 250; index++)
        *function = dlsym(RTLD_DEFAULT, strcat(strcpy(versioned, name), suffixes[index]));
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)version, (void)flags;
    CUresult found = entry(name, function);
    if (result) *result = found ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *result) {
    (void)version, (void)flags;
    CUresult found = entry(name, function);
    if (result) *result = found ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
    return found;
}

/* Private tables of the driver, which NVIDIA's own libraries look for when they are loaded. They do without. */
CUresult cuGetExportTable(const void **table, const CUuuid *which) { return (void)which, *table = NULL, CUDA_ERROR_NOT_SUPPORTED; }

/* Code that is loaded at run time: Triton's kernels, and those that torch compiles. */
static CUresult handle(void **made) { return *made = absent_handle(), *made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; }

CUresult cuModuleLoad(CUmodule *module, const char *file) { return (void)file, handle((void **)module); }
CUresult cuModuleLoadData(CUmodule *module, const void *image) { return (void)image, handle((void **)module); }
CUresult cuModuleUnload(CUmodule module) { return free(module), CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) { return (void)module, (void)name, handle((void **)function); }
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) { return (void)library, (void)name, handle((void **)kernel); }
CUresult cuLibraryUnload(CUlibrary library) { return free(library), CUDA_SUCCESS; }
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) { return *function = (CUfunction)kernel, CUDA_SUCCESS; }

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned many, CUjit_option *options, void **values) {
    return (void)image, (void)many, (void)options, (void)values, handle((void **)module);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned many,
                           CUlibraryOption *more, void **more_values, unsigned many_more) {
    (void)code, (void)options, (void)values, (void)many, (void)more, (void)more_values, (void)many_more;
    return handle((void **)library);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)function;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    (void)function;
    int too_much = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > absent_gpu.shared_optin_bytes;
    return too_much ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache preferred) { return (void)function, (void)preferred, CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared_bytes) {
    return (void)function, *blocks = at_once(threads, shared_bytes), CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *how) {
    return (void)function, (void)how, *clusters = absent_gpu.multiprocessors / 2, CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared_bytes, CUstream stream, void **arguments, void **more) {
    (void)function, (void)more;
    return (CUresult)absent_launch((dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared_bytes, arguments, stream);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                   unsigned shared_bytes, CUstream stream, void **arguments) {
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, arguments, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction function, void **arguments, void **more) {
    return cuLaunchKernel(function, how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX, how->blockDimY, how->blockDimZ,
                          how->sharedMemBytes, how->hStream, arguments, more);
}

/* A tensor map describes memory to a kernel of Hopper and later; 128 bytes that only the kernel reads. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *start, const cuuint64_t *sizes,
                                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    (void)type, (void)rank, (void)start, (void)sizes, (void)strides, (void)box, (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    absent_written(start);
    return CUDA_SUCCESS;
}
