/* Loops over gradients: adding to residuals, finding the largest, adding sparse ones up. */
#include "native.h"

enum { FOUND_BLOCK = 32, AHEAD = 4096 }; /* words looked at together; bytes that are asked for ahead */
enum { FINITE_BLOCK = 512 };
enum { SUMS = 256, UNCACHED = 1 << 22 }; /* sums at a time; bytes from which they pass by the caches */

/* Ask for what a loop reads soon: the processor's own guess stops at the end of a page. */
INLINE void read_ahead(const void *data, i64 bytes) {
    for (i64 i = 0; i < bytes; i += 64) __builtin_prefetch((const u8 *)data + AHEAD + i);
}

/* Copy bytes, a multiple of 16, to memory, aligned to 16, that is not read into the caches for that. */
#ifdef __SSE2__
#include <emmintrin.h>
INLINE void store_uncached(void *out, const void *data, i64 bytes) {
    for (i64 i = 0; i < bytes / 16; i++)
        _mm_stream_si128((__m128i *)out + i, _mm_loadu_si128((const __m128i *)data + i));
}
/* Before another thread may look at it. */
INLINE void finish_uncached(void) { _mm_sfence(); }
#else
INLINE void store_uncached(void *out, const void *data, i64 bytes) { memcpy(out, data, (size_t)bytes); }
INLINE void finish_uncached(void) {}
#endif

#define F float
#define NAME(x) x##_32
#include "gradients.inc"
#define F double
#define NAME(x) x##_64
#include "gradients.inc"

ENTRY(gradients_accumulate) {
    return arg[0].itemsize == 4 ? gradients_accumulate_32(arg) : gradients_accumulate_64(arg);
}
ENTRY(gradients_scatter_add) {
    return arg[1].itemsize == 4 ? gradients_scatter_add_32(arg) : gradients_scatter_add_64(arg);
}

#define TEMPLATE "magnitudes.inc"
#include "widths.h"
FOR_WIDTHS(gradients_find_above)
FOR_WIDTHS(gradients_is_finite)
