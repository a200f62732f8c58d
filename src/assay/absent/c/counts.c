/* Counts of calls, and the door through which an observer reads them. */
#include <stdatomic.h>
#include "absent.h"

static atomic_uint_fast64_t counts[ABSENT_COUNTS];

void absent_add(enum absent_count which, uint64_t more) { atomic_fetch_add_explicit(&counts[which], more, memory_order_relaxed); }

/* Write all counts into an array of at least `most` numbers, and return how many there are. */
int absent_counts(uint64_t *into, int most) {
    for (int index = 0; index < ABSENT_COUNTS && index < most; index++)
        into[index] = atomic_load_explicit(&counts[index], memory_order_relaxed);
    return ABSENT_COUNTS;
}

void *absent_handle(void) {
    extern void *calloc(size_t, size_t);
    return calloc(1, 256);
}
