/* Search in sorted spans of addresses, which memory and its contents are kept as. */
#include "absent.h"

/* Index of the first span that ends after an address; `count` if there is none. */
size_t absent_first_after(const void *spans, size_t count, size_t each, uintptr_t address) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct absent_span *one = (const void *)((const char *)spans + middle * each);
        if (one->start + one->bytes > address) high = middle;
        else low = middle + 1;
    }
    return low;
}
