/* Bit planes: rows of words packed at any width.

   A row of C words, `width` bits each, is stored as whole byte planes from the lowest byte up, then, of the bits that
   are left, at most three planes of 4, 2 and 1 bits. A plane of b < 8 bits has q = ceil(C × b / 8) bytes, and byte i
   holds the words i, i + q, i + 2 q, … from its low bits up. Planes are moved 8 bytes at a time. */
#ifndef TC_BIT_PLANES_H
#define TC_BIT_PLANES_H
#include "native.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { BLOCK = 4096 }; /* words a row where an array's own rows are not told apart: fits the first cache */

/* Bytes of one packed row. */
INLINE i64 packed_size(i64 columns, i64 width) {
    i64 size = columns * (width / 8);
    for (int bits = 4; bits; bits >>= 1)
        if (width & bits) size += (columns * bits + 7) / 8;
    return size;
}
/* Bytes of n words packed in rows of BLOCK. */
INLINE i64 flat_bytes(i64 n, i64 width) {
    return n / BLOCK * packed_size(BLOCK, width) + (n % BLOCK ? packed_size(n % BLOCK, width) : 0);
}
/* Bytes of rows of spans (rows, 2): each row's (shift, width). */
INLINE i64 packed_bytes(const u8 *spans, i64 rows, i64 columns) {
    i64 total = 0;
    for (i64 r = 0; r < rows; r++) total += packed_size(columns, spans[2 * r + 1]);
    return total;
}
/* Bytes of words packed in rows of their own spans, or with one span in rows of BLOCK. */
INLINE i64 plane_bytes(const u8 *spans, int apart, i64 rows, i64 columns) {
    return apart ? packed_bytes(spans, rows, columns) : flat_bytes(rows * columns, spans[1]);
}
/* Whether rows keep their own spans (rows, 2): if that may be, and takes fewer bytes. If not, the first one becomes that
   of all. */
INLINE int choose_spans(u8 *spans, const u8 *all, i64 rows, i64 columns, int told_apart) {
    i64 by_row = told_apart && rows > 1 ? packed_bytes(spans, rows, columns) + 2 * rows : INT64_MAX;
    if (by_row < (rows * columns * all[1] + 7) / 8) return 1;
    memcpy(spans, all, 2);
    return 0;
}

/* Set the (shift, width) of the bits of a word, (0, 0) where there is none. */
INLINE void set_span(u64 word, u8 *span) {
    span[0] = (u8)(word ? __builtin_ctzll(word) : 0);
    span[1] = (u8)(bit_length(word) - span[0]);
}

#define REPEAT(byte) (0x0101010101010101u * (u64)(byte))

typedef u64 Vector __attribute__((vector_size(32)));
#define V u8
#define NAME(x) x##_by_1
#include "bit_lanes.inc"
#define V u64
#define NAME(x) x##_by_8
#include "bit_lanes.inc"
#define V Vector
#define NAME(x) x##_by_32
#include "bit_lanes.inc"

/* Pack the lowest `width` bits, fewer than 8, of the bytes `left`, which have 8 more of room; return the byte behind
   their planes. */
static u8 *pack_left(u8 *left, i64 columns, int width, u8 *out) {
    memset(left + columns, 0, 8);
    for (int bits = 4, used = 0; bits; used += width & bits, bits >>= 1) {
        if (!(width & bits)) continue;
        i64 size = (columns * bits + 7) / 8;
#define PACK(by)                                                          \
    do {                                                                  \
        if (bits == 4) pack_lanes_by_##by(left, size, 4, used, out);      \
        else if (bits == 2) pack_lanes_by_##by(left, size, 2, used, out); \
        else pack_lanes_by_##by(left, size, 1, used, out);                \
    } while (0)
        if (size >= 32) PACK(32);
        else if (size >= 8) PACK(8);
        else PACK(1);
#undef PACK
        out += size;
    }
    return out;
}
/* Undo `pack_left`. */
static void unpack_left(const u8 *data, i64 columns, int width, u8 *left) {
    for (int bits = 4, used = 0; bits; used += width & bits, bits >>= 1) {
        if (!(width & bits)) continue;
        i64 size = (columns * bits + 7) / 8;
#define UNPACK(by)                                                                   \
    do {                                                                             \
        if (bits == 4) unpack_lanes_by_##by(data, size, 4, 0, left);                 \
        else if (bits == 2 && used) unpack_lanes_by_##by(data, size, 2, used, left); \
        else if (bits == 2) unpack_lanes_by_##by(data, size, 2, 0, left);            \
        else if (used) unpack_lanes_by_##by(data, size, 1, used, left);              \
        else unpack_lanes_by_##by(data, size, 1, 0, left);                           \
    } while (0)
        if (size >= 32) UNPACK(32);
        else if (size >= 8) UNPACK(8);
        else UNPACK(1);
#undef UNPACK
        data += size;
    }
}

/* Where the bytes of words are: whole planes, and at last what these leave; and which bit each begins with. */
typedef struct {
    u8 *bytes[8];
    int shifts[8], count;
} Parts;

INLINE Parts parts_of(u8 *planes, i64 n, int shift, int width, u8 *left) {
    Parts p = {.count = (width + 7) / 8};
    for (int k = 0; k < p.count; k++) {
        p.bytes[k] = k < width / 8 ? planes + k * n : left;
        p.shifts[k] = shift + 8 * k;
    }
    return p;
}

/* Vectors of words of each width, of their lowest 16 bits (but for words of 8), and of as many bytes. They have 32 bytes,
   since gcc copies larger ones by way of memory; it makes few instructions of a conversion to half the width, but for
   one to twice the width it has to be told which. */
#define VECTORS(bits, count, halves)                                                  \
    typedef u##bits Words_##bits __attribute__((vector_size(count * bits / 8)));      \
    typedef u##halves Halves_##bits __attribute__((vector_size(count * halves / 8))); \
    typedef u8 Bytes_##bits __attribute__((vector_size(count)))
VECTORS(8, 32, 8);
VECTORS(16, 16, 16);
VECTORS(32, 8, 16);
VECTORS(64, 8, 16);
#define TO_HALVES_8(words) (words)
#define TO_HALVES_16(words) (words)
#define TO_HALVES_32(words) __builtin_convertvector(words, Halves_32)
#define TO_HALVES_64(words) TO_HALVES_32(__builtin_convertvector(words, Words_32))
#define TO_BYTES_8(halves) (halves)
#define TO_BYTES_16(halves) __builtin_convertvector(halves, Bytes_16)
#define TO_BYTES_32(halves) __builtin_convertvector(halves, Bytes_32)
#define TO_BYTES_64(halves) TO_BYTES_32(halves)
#define FROM_HALVES_8(halves) (halves)
#define FROM_HALVES_16(halves) (halves)
#define FROM_HALVES_64(halves) __builtin_convertvector(FROM_HALVES_32(halves), Words_64)
#define FROM_BYTES_8(bytes) (bytes)
#define FROM_BYTES_64(bytes) FROM_BYTES_32(bytes)
#ifdef __AVX2__
#define FROM_HALVES_32(halves) ((Words_32)_mm256_cvtepu16_epi32((__m128i)(halves)))
#define FROM_BYTES_16(bytes) ((Halves_16)_mm256_cvtepu8_epi16((__m128i)(bytes)))
#define FROM_BYTES_32(bytes) ((Halves_32)_mm_cvtepu8_epi16(_mm_cvtsi64_si128((i64)(bytes))))
#else
#define FROM_HALVES_32(halves) __builtin_convertvector(halves, Words_32)
#define FROM_BYTES_16(bytes) __builtin_convertvector(bytes, Halves_16)
#define FROM_BYTES_32(bytes) __builtin_convertvector(bytes, Halves_32)
#endif

/* DO(at, count, parts) for n words, `lanes` at a time and then the last ones; with numbers that the compiler knows. */
#define FOR_LANES(DO, n, lanes, parts)                             \
    do {                                                           \
        i64 at = 0;                                                \
        for (; at + lanes <= n; at += lanes) DO(at, lanes, parts); \
        if (at < n) DO(at, n - at, parts);                         \
    } while (0)
#define FOR_PARTS(DO, n, lanes, parts)                   \
    do {                                                 \
        if (parts == 0) FOR_LANES(DO, n, lanes, 0);      \
        else if (parts == 1) FOR_LANES(DO, n, lanes, 1); \
        else if (parts == 2) FOR_LANES(DO, n, lanes, 2); \
        else if (parts == 3) FOR_LANES(DO, n, lanes, 3); \
        else FOR_LANES(DO, n, lanes, parts);             \
    } while (0)

#define W u8
#define NAME(x) x##_8
#include "bit_planes.inc"
#define W u16
#define NAME(x) x##_16
#include "bit_planes.inc"
#define W u32
#define NAME(x) x##_32
#include "bit_planes.inc"
#define W u64
#define NAME(x) x##_64
#include "bit_planes.inc"
#endif
