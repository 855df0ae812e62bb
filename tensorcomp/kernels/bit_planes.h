/* Bit planes: rows of words packed at any width.

   A row of C words, `width` bits each, is stored as whole byte planes from the lowest byte up, then, of the bits that
   are left, at most three planes of 4, 2 and 1 bits. A plane of b < 8 bits has q = ceil(C × b / 8) bytes, and byte i
   holds the words i, i + q, i + 2 q, … from its low bits up. Planes are moved 8 bytes at a time. */
#ifndef TC_BIT_PLANES_H
#define TC_BIT_PLANES_H
#include "native.h"

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

/* plane byte i = the words i, i + size, i + 2 size ... of `left`, `bits` of each above `used` */
INLINE void pack_lanes(const u8 *restrict left, i64 size, int bits, int used, u8 *restrict plane) {
    const u64 mask = REPEAT((1 << bits) - 1);
    i64 i = 0;
    for (; i + 8 <= size; i += 8) {
        u64 word = 0;
#pragma GCC unroll 8
        for (int l = 0; l < 8 / bits; l++)
            word |= ((load64(left + l * size + i) >> used) & mask) << (l * bits);
        store64(plane + i, word);
    }
    for (; i < size; i++) {
        unsigned byte = 0;
        for (int l = 0; l < 8 / bits; l++)
            byte |= ((left[l * size + i] >> used) & ((1u << bits) - 1)) << (l * bits);
        plane[i] = (u8)byte;
    }
}
static void pack_plane(u8 *left, i64 columns, int bits, int used, u8 *plane, i64 size) {
    memset(left + columns, 0, (size_t)(size * (8 / bits) - columns));
    if (bits == 4) pack_lanes(left, size, 4, used, plane);
    else if (bits == 2) pack_lanes(left, size, 2, used, plane);
    else pack_lanes(left, size, 1, used, plane);
}
INLINE void unpack_lanes(const u8 *restrict plane, i64 size, int bits, int used, u8 *restrict left) {
    const u64 mask = REPEAT((1 << bits) - 1);
    i64 i = 0;
    for (; i + 8 <= size; i += 8) {
        u64 word = load64(plane + i);
#pragma GCC unroll 8
        for (int l = 0; l < 8 / bits; l++) {
            u64 field = ((word >> (l * bits)) & mask) << used;
            store64(left + l * size + i, used ? load64(left + l * size + i) | field : field);
        }
    }
    for (; i < size; i++)
        for (int l = 0; l < 8 / bits; l++) {
            unsigned field = (((unsigned)plane[i] >> (l * bits)) & ((1u << bits) - 1)) << used;
            left[l * size + i] = (u8)(used ? left[l * size + i] | field : field);
        }
}
static void unpack_left(const u8 *data, i64 columns, int width, u8 *left) {
    int used = 0;
    for (int bits = 4; bits; bits >>= 1)
        if (width & bits) {
            i64 size = (columns * bits + 7) / 8;
            if (bits == 4) unpack_lanes(data, size, 4, used, left);
            else if (bits == 2) {
                if (used) unpack_lanes(data, size, 2, used, left);
                else unpack_lanes(data, size, 2, 0, left);
            } else {
                if (used) unpack_lanes(data, size, 1, used, left);
                else unpack_lanes(data, size, 1, 0, left);
            }
            used += bits;
            data += size;
        }
}

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
