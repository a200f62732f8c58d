/* Reads by the host: counted, named by torch's operator, and told to an observer.

   A copy to pageable memory is a read, because the host waits for it. A copy to pinned memory is one if the same thread
   synchronizes the stream at once, as torch does for one value. Otherwise it counts as a copy to pinned memory, which is
   an offload, or a figure that is read later. */
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "absent.h"

#define MOST_FRAMES 128
#define CACHE (1u << 14)
#define NAME 64

typedef void (*read_observer)(const char *operator, void *to, uint64_t bytes, int known);
typedef void (*unknown_observer)(const char *library, const char *function, int runs);
static read_observer observe_read;
static unknown_observer observe_unknown;

/* The observer's functions. It takes them back (NULL) before its interpreter ends. */
void absent_observe(read_observer read, unknown_observer unknown) {
    observe_read = read;
    observe_unknown = unknown;
}

/* Names that no operator has: the loop of Python's interpreter, and autograd's evaluation of one node. */
#define PYTHON "python"
#define NODE "node"

/* Name of the operator of torch to which a return address belongs, or one of these; empty if it is another function. */
static const char *operator_at(void *address) {
    static struct { void *address; char name[NAME]; } cache[CACHE];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char opening[] = "_ZN2at4_ops";
    unsigned slot = (unsigned)(((uintptr_t)address >> 2) * 2654435761u) % CACHE;
    pthread_mutex_lock(&lock);
    if (cache[slot].address != address) {
        Dl_info found;
        const char *symbol = dladdr(address, &found) && found.dli_sname ? found.dli_sname : "";
        cache[slot].address = address;
        cache[slot].name[0] = 0;
        if (!strncmp(symbol, opening, sizeof opening - 1)) {
            char *name;
            long size = strtol(symbol + sizeof opening - 1, &name, 10);
            if (size > 0 && size < NAME) snprintf(cache[slot].name, (size_t)size + 1, "%s", name);
        } else if (!strcmp(symbol, "_PyEval_EvalFrameDefault")) {
            strcpy(cache[slot].name, PYTHON);
        } else if (strstr(symbol, "8autograd6Engine17evaluate_function")) {
            strcpy(cache[slot].name, NODE);
        }
    }
    pthread_mutex_unlock(&lock);
    return cache[slot].name;
}

/* The outermost operator that the innermost line of Python has called, or that autograd has. An operator around that line,
   as of a mode that sees every operator, is not the one that asks. */
const char *absent_operator(void) {
    void *frames[MOST_FRAMES];
    int depth = backtrace(frames, MOST_FRAMES);
    const char *outermost = "";
    for (int index = 0; index < depth; index++) {
        const char *name = operator_at(frames[index]);
        if (!strcmp(name, PYTHON) || !strcmp(name, NODE)) break;
        if (*name) outermost = name;
    }
    return outermost;
}

/* True if an operator of this name is anywhere on the stack. */
int absent_inside(const char *operator) {
    void *frames[MOST_FRAMES];
    int depth = backtrace(frames, MOST_FRAMES);
    for (int index = 0; index < depth; index++)
        if (!strcmp(operator_at(frames[index]), operator)) return 1;
    return 0;
}

/* True if autograd itself reads, and no function of Python: it asks whether a gradient has a NaN. */
int absent_checks_gradient(void) {
    void *frames[MOST_FRAMES];
    int depth = backtrace(frames, MOST_FRAMES);
    for (int index = 0; index < depth; index++) {
        const char *name = operator_at(frames[index]);
        if (!strcmp(name, PYTHON)) return 0;
        if (!strcmp(name, NODE)) return 1;
    }
    return 0;
}

/* `known` says that the bytes came back as they were sent. */
void absent_read(void *to, size_t bytes, int known) {
    absent_add(READS, 1);
    absent_add(BYTES_READ, bytes);
    read_observer observer = observe_read;
    if (observer) observer(absent_operator(), to, bytes, known);
}

static __thread struct { void *to; size_t bytes; cudaStream_t stream; int known; } pending;

void absent_copied_to_pinned(void *to, size_t bytes, int known, cudaStream_t stream) {
    pending.to = to;
    pending.bytes = bytes;
    pending.stream = stream;
    pending.known = known;
    absent_add(COPIES_TO_PINNED, 1);
    absent_add(BYTES_TO_PINNED, bytes);
}

void absent_forget_pending(void) { pending.to = NULL; }

void absent_synchronized(cudaStream_t stream) {
    void *to = pending.to;
    pending.to = NULL;
    if (!to || pending.stream != stream) return;
    absent_add(COPIES_TO_PINNED, (uint64_t)-1);
    absent_add(BYTES_TO_PINNED, -(uint64_t)pending.bytes);
    absent_read(to, pending.bytes, pending.known);
}

/* A library was asked for something that is not known here: `runs` says whether it goes on without it. */
void absent_unknown(const char *library, const char *function, int runs) {
    unknown_observer observer = observe_unknown;
    if (observer) observer(library, function, runs);
}
