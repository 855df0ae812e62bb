/* Streams of bits, low bit first; positions are counted in bits. */
#ifndef TC_BITS_H
#define TC_BITS_H
#include "native.h"

/* Bytes that come from a file: nothing behind them is read, whatever positions they lead to. */
typedef struct {
    const u8 *data;
    i64 size; /* at least 8 */
} Bytes;

/* Put the low `count` bits, at most 32, of `value` at bit `position` of zeros; 8 bytes of room are needed. */
INLINE i64 put_bits(u8 *out, i64 position, i64 value, i64 count) {
    u8 *p = out + (position >> 3);
    store64(p, load64(p) | ((u64)value << (position & 7)));
    return position + count;
}

/* `count` bits, at most 32, from bit `position`; beyond the last 8 bytes come wrong bits. */
INLINE i64 get_bits(Bytes in, i64 position, i64 count) {
    i64 byte = min64(position >> 3, in.size - 8);
    return (i64)((load64(in.data + byte) >> (position & 7)) & (((u64)1 << count) - 1));
}

/* Elias' gamma code of 1 … 2^31: its length in zeros, then its bits. */
INLINE i64 put_gamma(u8 *out, i64 at, i64 value) {
    i64 length = bit_length((u64)value);
    at = put_bits(out, at, (i64)1 << (length - 1), length);
    return put_bits(out, at, value & (((i64)1 << (length - 1)) - 1), length - 1);
}
INLINE i64 get_gamma(Bytes in, i64 *at) {
    i64 word = get_bits(in, *at, 32), zeros = 0;
    while (zeros < 31 && !((word >> zeros) & 1)) zeros++;
    i64 value = ((i64)1 << zeros) | get_bits(in, *at + zeros + 1, zeros);
    *at += 2 * zeros + 1;
    return value;
}

/* Put code << 8 | length behind the `used` bits of a word. Only the low byte of `used` counts: it must not pass
   63 between two flushes, and what codes add above it is cut off by the shift here and by the flush. */
INLINE void put_code(u64 *word, u64 *used, u64 entry) {
    *word |= (entry >> 8) << (*used & 63);
    *used += entry;
}
INLINE void flush_codes(u8 *out, u64 *position, u64 *word, u64 *used) {
    store64(out + *position, *word);
    u64 whole = (*used & 63) >> 3;
    *position += whole;
    *word >>= whole << 3;
    *used &= 7;
}

/* The bits from `position` on; the highest bit is a mark that tells how many are used, of at most 56. */
#define MARK ((u64)1 << 63)
INLINE u64 refill(const u8 *stream, u64 position, u64 limit) {
    return (load64(stream + minu(position >> 3, limit)) >> (position & 7)) | MARK;
}
#endif
