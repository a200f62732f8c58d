/* Contents of device memory: what was only copied there comes back as it was sent.

   Kernels compute nothing, so the bytes of a block are known only while nobody but a copy has written it. A range counts
   as sent until torch frees or reuses its block, a product or a copy overwrites it, or a kernel that may write is given a
   pointer to it. Everything else reads as a defined fill, never as old bytes.
   At most KEPT_BYTES are kept, because a large model would otherwise fill the host's memory a second time. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "absent.h"

#define KEPT_BYTES ((size_t)1 << 30)
#define MOST_ARGUMENT_BYTES 4096 /* of one launch; a few kernels have more, in parts that hold no pointers */
#define MOST_ARGUMENTS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct absent_span *all; /* sorted by start, and none overlaps another */
static size_t count, room, kept;
static atomic_uintptr_t lowest = UINTPTR_MAX, highest = 0; /* bounds of all sent ranges, to pass over launches quickly */
static atomic_int blocks_are_seen = 0;

static size_t first_after(uintptr_t address) {
    return absent_first_after(all, count, sizeof *all, address);
}

static void set_bounds(void) {
    atomic_store(&lowest, count ? all[0].start : UINTPTR_MAX);
    atomic_store(&highest, count ? all[count - 1].start + all[count - 1].bytes : 0);
}

/* Give the host's pages back that lie wholly in a range. */
static void release_pages(uintptr_t start, size_t bytes) {
    uintptr_t from = (start + 4095) & ~(uintptr_t)4095, to = (start + bytes) & ~(uintptr_t)4095;
    if (to > from && to - from >= 65536) madvise((void *)from, to - from, MADV_DONTNEED);
}

static void forget(size_t at) {
    kept -= all[at].bytes;
    release_pages(all[at].start, all[at].bytes);
    count--;
    memmove(all + at, all + at + 1, (count - at) * sizeof *all);
}

static void forget_overlaps(uintptr_t start, size_t bytes) {
    size_t at = first_after(start);
    while (at < count && all[at].start < start + bytes) forget(at);
    set_bounds();
}

void absent_overwritten(const void *start, size_t bytes) {
    if ((uintptr_t)start >= atomic_load(&highest) || (uintptr_t)start + bytes <= atomic_load(&lowest)) return;
    pthread_mutex_lock(&lock);
    forget_overlaps((uintptr_t)start, bytes);
    pthread_mutex_unlock(&lock);
}

/* Something writes from a pointer on, and nobody knows how far: its range is unknown from now on. */
void absent_written(const void *pointer) { absent_overwritten(pointer, 1); }

/* A copy to the device. `from` may be on the device too, if its own contents are known. */
void absent_sent(void *to, const void *from, size_t bytes) {
    pthread_mutex_lock(&lock);
    forget_overlaps((uintptr_t)to, bytes);
    if (count == room) {
        struct absent_span *moved = realloc(all, (room ? 2 * room : 256) * sizeof *all);
        if (moved) all = moved, room = room ? 2 * room : 256;
    }
    int keeps = atomic_load(&blocks_are_seen) && bytes && kept + bytes <= KEPT_BYTES && count < room;
    if (keeps) {
        size_t at = first_after((uintptr_t)to);
        memmove(all + at + 1, all + at, (count - at) * sizeof *all);
        all[at] = (struct absent_span){(uintptr_t)to, bytes};
        count++;
        kept += bytes;
        memmove(to, from, bytes);
        set_bounds();
    }
    pthread_mutex_unlock(&lock);
    if (!keeps && bytes) absent_add(NOT_KEPT, 1);
}

static int is_sent(uintptr_t address) {
    pthread_mutex_lock(&lock);
    size_t at = first_after(address);
    int found = at < count && all[at].start <= address;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Copy bytes back if they are known, and say whether they were. Neighbouring ranges may hold them together. */
int absent_as_sent(void *to, const void *from, size_t bytes) {
    uintptr_t at = (uintptr_t)from, end = at + bytes;
    pthread_mutex_lock(&lock);
    for (size_t index = first_after(at); at < end && index < count && all[index].start <= at; index++)
        at = all[index].start + all[index].bytes;
    int known = at >= end;
    if (known) memmove(to, from, bytes);
    pthread_mutex_unlock(&lock);
    return known;
}

/* True if the operator that launches a kernel may write into a tensor that was there before. By torch's rule of names these
   end in `_`, before the name of an overload (`add__Tensor`); outputs of all others are new blocks. A kernel that no
   operator launches may write anywhere. */
static int may_write(void) {
    const char *operator = absent_operator();
    size_t size = strlen(operator);
    int in_place = !size || operator[size - 1] == '_' || strstr(operator + 1, "__");
    return in_place || strstr(operator, "batch_norm") || strstr(operator, "_out");
}

/* A kernel is given arguments: every sent range to which one of them points is unknown from now on, if it may write.

   The sizes of arguments are not known here. They lie on the caller's stack, so the stack from the lowest to the highest
   argument is searched for pointers. It may hold others as well, which only makes more ranges unknown. */
void absent_given(void **arguments) {
    uintptr_t low = atomic_load(&lowest), high = atomic_load(&highest);
    if (!arguments || low >= high) return;
    static __thread uintptr_t stack_end = 0;
    if (!stack_end) {
        pthread_attr_t attributes;
        void *start;
        size_t bytes;
        if (pthread_getattr_np(pthread_self(), &attributes)) return absent_overwritten((void *)low, high - low);
        pthread_attr_getstack(&attributes, &start, &bytes);
        pthread_attr_destroy(&attributes);
        stack_end = (uintptr_t)start + bytes;
    }
    uintptr_t here = (uintptr_t)&low, first = UINTPTR_MAX, last = 0;
    for (int index = 0; index < MOST_ARGUMENTS; index++) {
        uintptr_t argument = (uintptr_t)arguments[index];
        if (argument < here || argument >= stack_end) break; /* the end of the list, whose length is not known either */
        first = argument < first ? argument : first;
        last = argument > last ? argument : last;
    }
    if (!last) { /* arguments lie elsewhere: all may be written */
        if (may_write()) absent_overwritten((void *)low, high - low);
        return;
    }
    uintptr_t end = last + MOST_ARGUMENT_BYTES < stack_end ? last + MOST_ARGUMENT_BYTES : stack_end;
    for (uintptr_t at = (first + 7) & ~(uintptr_t)7; at + sizeof at <= end; at += sizeof at) {
        uintptr_t value = *(uintptr_t *)at;
        if (value < low || value >= high || !is_sent(value)) continue;
        if (!may_write()) return;
        absent_written((void *)value);
    }
}

/* A graph is replayed: what its kernels write was not followed, so nothing is known any more. */
void absent_replayed(void) {
    uintptr_t low = atomic_load(&lowest), high = atomic_load(&highest);
    if (low < high) absent_overwritten((void *)low, high - low);
}

/* torch's allocators report each block that they give out or take back to its profiler, through this function of libc10.
   A block that begins or ends a life has no known contents. `device` is a type and an index, of one byte each. */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *pointer, long bytes, size_t allocated, size_t reserved, uint16_t device) {
    static void (*torchs)(void *, long, size_t, size_t, uint16_t);
    if (!torchs) { /* Python loads libc10 for itself alone, so its functions are no successors of this one */
        void *libc10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
        if (libc10) torchs = dlsym(libc10, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
    }
    if ((device & 0xff) == 1) { /* CUDA */
        atomic_store(&blocks_are_seen, 1);
        absent_overwritten(pointer, (size_t)(bytes < 0 ? -bytes : bytes));
    }
    if (torchs) torchs(pointer, bytes, allocated, reserved, device);
}
