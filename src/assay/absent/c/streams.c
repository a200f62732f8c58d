/* Streams, events, captures and graphs. Work is done when it is asked for, so every event is complete at once. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "absent.h"

struct capture { unsigned long long id; size_t nodes; int invalid; }; /* `id` is 0 once it has ended */
struct stream { int device, priority; struct capture *capture; };
struct event { struct capture *capture; unsigned long long id; };
struct graph { size_t nodes; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long captures;
static struct capture *latest;
static int active; /* captures in progress, of all threads */
static struct stream defaults[ABSENT_MOST_DEVICES];
static __thread enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* Handles 0, 1 and 2 are the default streams of the current device. */
static struct stream *of(cudaStream_t handle) {
    return (uintptr_t)handle > 2 ? (struct stream *)handle : &defaults[absent_current()];
}

/* The capture in which a stream takes part. One that it had joined may have ended meanwhile. */
static struct capture *capture_of(cudaStream_t handle) {
    struct stream *one = of(handle);
    if (one->capture && !one->capture->id) one->capture = NULL;
    return one->capture;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    (void)flags;
    struct stream *made = calloc(1, sizeof *made);
    *stream = (cudaStream_t)made;
    if (!made) return absent_failed(cudaErrorMemoryAllocation);
    made->device = absent_current();
    made->priority = priority;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { return *priority = of(stream)->priority, cudaSuccess; }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if ((uintptr_t)stream > 2) free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return absent_must_not_capture(stream); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return *event ? cudaSuccess : absent_failed(cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }

/* A capture that ended is freed, so an event keeps its number beside it. The lock is held. */
static int still_captured(const struct event *event) { return event->capture && active && event->capture->id == event->id; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    struct event *one = (struct event *)event;
    pthread_mutex_lock(&lock);
    one->capture = capture_of(stream);
    one->id = one->capture ? one->capture->id : 0;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return (void)flags, cudaEventRecord(event, stream);
}

/* A stream that waits for an event of a capture joins the capture. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    struct event *one = (struct event *)event;
    pthread_mutex_lock(&lock);
    if (still_captured(one) && !capture_of(stream)) of(stream)->capture = one->capture;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t not_captured(cudaEvent_t event) {
    pthread_mutex_lock(&lock);
    int captured = still_captured((struct event *)event);
    pthread_mutex_unlock(&lock);
    return captured ? absent_failed(cudaErrorCapturedEvent) : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return not_captured(event); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = not_captured(event);
    if (!error) absent_add(SYNCHRONIZATIONS, 1);
    return error;
}

/* Nothing was computed, so no time has passed that would mean anything. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    (void)from, (void)to;
    return *milliseconds = NAN, cudaSuccess;
}

/* If a stream captures, what is asked of it becomes a node of the graph. */
int absent_captured_node(cudaStream_t stream) {
    struct capture *capture = capture_of(stream);
    if (capture) __atomic_add_fetch(&capture->nodes, 1, __ATOMIC_RELAXED);
    return capture != NULL;
}

/* The host must not wait for a stream that captures: the capture is invalid from then on. */
cudaError_t absent_must_not_capture(cudaStream_t stream) {
    struct capture *capture = capture_of(stream);
    if (!capture) return cudaSuccess;
    capture->invalid = 1;
    return absent_failed(cudaErrorStreamCaptureUnsupported);
}

/* The host must not wait for a whole device while a stream of the thread captures. */
cudaError_t absent_nobody_captures(void) {
    if (!__atomic_load_n(&active, __ATOMIC_RELAXED) || thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    latest->invalid = 1;
    return absent_failed(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
    if ((uintptr_t)stream <= 1 || capture_of(stream)) return absent_failed(cudaErrorStreamCaptureUnsupported);
    struct capture *made = calloc(1, sizeof *made);
    if (!made) return absent_failed(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&lock);
    made->id = ++captures;
    of(stream)->capture = latest = made;
    active++;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    struct capture *capture = capture_of(stream);
    if (graph) *graph = NULL;
    if (!capture) return absent_failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    int invalid = capture->invalid;
    struct graph *made = invalid ? NULL : calloc(1, sizeof *made);
    if (made) made->nodes = capture->nodes;
    of(stream)->capture = NULL;
    active--;
    capture->id = 0; /* streams that joined, and events, still point here: it is never freed, one for each graph */
    pthread_mutex_unlock(&lock);
    if (graph) *graph = (cudaGraph_t)made;
    return invalid ? absent_failed(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    struct capture *capture = capture_of(stream);
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *many) {
    static struct graph being_made;
    static const cudaGraphNode_t none;
    cudaStreamIsCapturing(stream, status);
    if (id) *id = capture_of(stream) ? capture_of(stream)->id : 0;
    if (graph) *graph = (cudaGraph_t)&being_made;
    if (nodes) *nodes = &none;
    if (edges) *edges = NULL;
    if (many) *many = 0;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *many) {
    size_t all = ((struct graph *)graph)->nodes;
    for (size_t index = 0; nodes && index < *many && index < all; index++) nodes[index] = (cudaGraphNode_t)(index + 1);
    *many = all;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    struct graph *copied = calloc(1, sizeof *copied);
    *made = (cudaGraphExec_t)copied;
    if (!copied) return absent_failed(cudaErrorMemoryAllocation);
    copied->nodes = ((struct graph *)graph)->nodes;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    (void)stream;
    absent_add(GRAPH_LAUNCHES, 1);
    absent_add(GRAPH_NODES, ((struct graph *)graph)->nodes);
    absent_forget_pending();
    absent_replayed();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return free(graph), cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return free(graph), cudaSuccess; }

/* Functions of the host that a stream calls: they are called at once, and not while a graph is captured. */
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    if (!absent_captured_node(stream)) function(data);
    return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned flags) {
    (void)flags;
    cudaError_t error = absent_must_not_capture(stream);
    if (!error) function(stream, cudaSuccess, data);
    return error;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return (CUresult)cudaStreamCreateWithPriority(stream, flags, 0); }
CUresult cuStreamDestroy_v2(CUstream stream) { return (CUresult)cudaStreamDestroy(stream); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) { return (CUresult)cudaStreamWaitEvent(stream, event, flags); }
CUresult cuEventCreate(CUevent *event, unsigned flags) { return (CUresult)cudaEventCreateWithFlags(event, flags); }
CUresult cuEventRecord(CUevent event, CUstream stream) { return (CUresult)cudaEventRecord(event, stream); }
CUresult cuEventDestroy_v2(CUevent event) { return (CUresult)cudaEventDestroy(event); }
CUresult cuEventSynchronize(CUevent event) { return (CUresult)cudaEventSynchronize(event); }
