/* What cuBLAS, cuDNN, cuFFT, cuSPARSE, CUPTI and NCCL are asked beyond a plain call. Plain calls are generated. */
#include <stdlib.h>
#include <string.h>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudnn.h>
#include <cufftXt.h>
#include <cupti.h>
#include "absent.h"

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) { return *handle = absent_handle(), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return free(handle), CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) { return *(cudaStream_t *)handle = stream, CUBLAS_STATUS_SUCCESS; }

/* Every entry of cuBLAS that multiplies comes here: it counts, or becomes a node of the graph that its stream captures. */
void absent_product(cudaStream_t stream) {
    if (!absent_captured_node(stream)) absent_add(PRODUCTS, 1);
    absent_forget_pending();
}

/* torch takes the first algorithm that is found, and its workspace is no larger than what torch has offered. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *found = most > 0;
    if (most > 0) memset(results, 0, sizeof *results);
    return CUBLAS_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) { return *handle = absent_handle(), CUDNN_STATUS_SUCCESS; }
size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t status) { return status ? "the absent GPU does not know this function of cuDNN" : "success"; }

void cudnnGetLastErrorString(char *text, size_t most) {
    if (most) *text = 0;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType which, int *value) {
    *value = which == MAJOR_VERSION ? CUDNN_MAJOR : which == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
    return CUDNN_STATUS_SUCCESS;
}

/* The first word behind a handle of cuBLAS or cuDNN is its stream. */
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) { return *(cudaStream_t *)handle = stream, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) { return *stream = *(cudaStream_t *)handle, CUDNN_STATUS_SUCCESS; }

/* Descriptors of cuDNN's graphs. A convolution needs a workspace that only cuDNN knows; attention was measured to need none. */
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
    int convolves = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
                    type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
                    type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    if (convolves) absent_unknown("cuDNN", "a convolution", 1);
    *made = absent_handle();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t one) { return free(one), CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t one) { return (void)one, CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t one, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t many, const void *values) {
    (void)one, (void)name;
    if (type == CUDNN_TYPE_VOID_PTR)
        for (int64_t index = 0; index < many; index++) absent_written(((void *const *)values)[index]);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pointers) {
    (void)plan, (void)pointers;
    if (!absent_captured_node(*(cudaStream_t *)handle)) absent_add(LAUNCHES, 1);
    absent_forget_pending();
    return CUDNN_STATUS_SUCCESS;
}

/* One engine is found for every graph, and its numbers, notes and workspace are 0. */
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t one, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t most, int64_t *found, void *values) {
    (void)one, (void)name;
    int wide = type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_DOUBLE || type == CUDNN_TYPE_VOID_PTR;
    if (found) *found = most > 1 || most == 0 ? 1 : most;
    if (values && most > 0 && type != CUDNN_TYPE_BACKEND_DESCRIPTOR) memset(values, 0, type == CUDNN_TYPE_BOOLEAN ? 1 : wide ? 8 : 4);
    return CUDNN_STATUS_SUCCESS;
}

cufftResult cufftXtMakePlanMany(cufftHandle plan, int rank, long long *n, long long *in_embed, long long in_stride, long long in_distance,
                                cudaDataType in, long long *out_embed, long long out_stride, long long out_distance, cudaDataType out,
                                long long batch, size_t *workspace, cudaDataType execution) {
    (void)plan, (void)rank, (void)n, (void)in_embed, (void)in_stride, (void)in_distance, (void)in, (void)out_embed, (void)out_stride;
    (void)out_distance, (void)out, (void)batch, (void)execution;
    *workspace = 0;
    absent_unknown("cuFFT", "cufftXtMakePlanMany", 1);
    return CUFFT_SUCCESS;
}

/* The profiler finds no activity of a device. */
CUptiResult cuptiGetVersion(uint32_t *version) { return *version = CUPTI_API_VERSION, CUPTI_SUCCESS; }
CUptiResult cuptiGetResultString(CUptiResult result, const char **text) { return (void)result, *text = "the device is absent", CUPTI_SUCCESS; }

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    (void)buffer, (void)valid;
    return *record = NULL, CUPTI_ERROR_MAX_LIMIT_REACHED;
}
