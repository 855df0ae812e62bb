/* Gaps between ascending indices: a Huffman code for the gap's magnitude, then its low bits as they are.

   A gap below 4 is its own class. Any other has a class of its highest bit and the two bits below it; the bits below
   those follow the code. A stream is read one gap after the other, from 64-bit words. */
#include "bits.h"
#include "huffman_codes.h"

enum { LONGEST_GAP_CODE = 12, GAP_BITS = 44 }; /* with its code and a bit offset a gap fits a word */
enum { GAP_CLASSES = 4 * (GAP_BITS - 1) };

/* Without branches: among many indices it is chance whether a gap is below 4. */
INLINE u64 bits_below(u64 gap) { return 61 - (u64)leading_zeros(gap | 4); }
INLINE u64 gap_class(u64 gap) {
    u64 below = bits_below(gap);
    return (below + (gap >= 4)) << 2 | (gap >> below & 3);
}
INLINE u64 low_bits(u64 kind) { return (kind >> 2) - (kind >= 4); }
INLINE u64 least_gap(u64 kind) { return ((u64)(kind >= 4) << 2 | (kind & 3)) << low_bits(kind); }

/* Set codes (256,) to code << 8 | length of each class. */
static void gap_codes(const u8 *lengths, i64 classes, u32 *codes) {
    u16 all[GAP_CLASSES];
    for (i64 kind = 0; kind < classes; kind++) all[kind] = (u16)kind;
    memset(codes, 0, 256 * sizeof *codes);
    fill_codes(lengths, classes, LONGEST_GAP_CODE, all, codes);
}

/* Set lengths (GAP_CLASSES,) to those of the codes of the gaps of positions (k,), the first of which is a gap too.
   Return the bits that all gaps take, -1 if one has more than GAP_BITS. */
ENTRY(gaps_measure) {
    const u64 *positions = arg[0].data;
    u8 *lengths = arg[1].data;
    i64 counts[GAP_CLASSES] = {0}, room[2 * GAP_CLASSES], bits = 0;
    u64 following = 0;
    for (i64 i = 0; i < arg[0].size; i++) {
        u64 kind = gap_class(positions[i] - following);
        if (kind >= GAP_CLASSES) return -1;
        counts[kind]++;
        following = positions[i] + 1;
    }
    code_lengths(counts, 1, GAP_CLASSES, LONGEST_GAP_CODE, room, lengths);
    for (i64 kind = 0; kind < GAP_CLASSES; kind++)
        bits += counts[kind] * (lengths[kind] + (i64)low_bits((u64)kind));
    return bits;
}

/* Write the gaps of positions (k,) to `out`, which has 8 bytes more than they take. */
ENTRY(gaps_encode) {
    const u64 *positions = arg[0].data;
    u8 *out = arg[2].data;
    u32 codes[256];
    u64 following = 0, word = 0, used = 0;
    i64 at = 0, room = arg[2].size - 8;
    gap_codes(arg[1].data, GAP_CLASSES, codes);
    for (i64 i = 0; i < arg[0].size; i++) {
        u64 gap = positions[i] - following, kind = gap_class(gap);
        following = positions[i] + 1;
        if (kind >= GAP_CLASSES || at > room) return BAD_SIZES;
        u64 length = codes[kind] & 255, below = bits_below(gap);
        word |= (codes[kind] >> 8 | (gap & (((u64)1 << below) - 1)) << length) << used;
        used += length + below; /* 12 + 42 + 7 at most */
        store64(out + at, word);
        at += (i64)(used >> 3);
        word >>= used & 56;
        used &= 7;
    }
    return 0;
}

/* ---- decoding -------------------------------------------------------------------------------------- */

enum { BEYOND = -1, NO_CODE = -2 }; /* what a decoder returns of damaged bytes */

typedef struct {
    Bytes in;
    u64 position;                     /* in bits */
    u32 table[1 << LONGEST_GAP_CODE]; /* bits -> length with the gap's low bits << 16 | length << 8 | class */
} GapReader;

/* Begin at the stream of codes of so many lengths; bits that no code starts with stand for class 0 of no bits. */
static int open_gaps(GapReader *reader, const Arg *lengths, const Arg *stream) {
    u32 codes[256];
    const u8 *length = lengths->data;
    reader->in = (Bytes){stream->data, stream->size};
    reader->position = 0;
    if (!valid_lengths(length, 1, lengths->size, LONGEST_GAP_CODE)) return 0;
    gap_codes(length, lengths->size, codes);
    memset(reader->table, 0, sizeof reader->table);
    for (i64 kind = 0; kind < lengths->size; kind++) {
        if (!length[kind]) continue;
        u32 entry = (u32)(length[kind] + low_bits((u64)kind)) << 16 | (u32)length[kind] << 8 | (u32)kind;
        for (u32 bits = codes[kind] >> 8; bits < LENGTH(reader->table); bits += 1u << length[kind])
            reader->table[bits] = entry;
    }
    return 1;
}
INLINE u64 next_gap(GapReader *reader) {
    i64 byte = min64((i64)(reader->position >> 3), reader->in.size - 8);
    u64 bits = load64(reader->in.data + byte) >> (reader->position & 7);
    u32 entry = reader->table[bits & (LENGTH(reader->table) - 1)];
    u64 kind = entry & 255, low = ((u64)1 << low_bits(kind)) - 1;
    reader->position += entry >> 16;
    return least_gap(kind) + (bits >> (entry >> 8 & 255) & low);
}

/* Set `count` elements of mask (n,) to `value`; return the bits read. */
ENTRY(gaps_decode_mask) {
    GapReader reader;
    u8 *mask = arg[4].data;
    u64 at = 0, n = (u64)arg[4].size;
    if (arg[0].size > GAP_CLASSES || arg[1].size < 8) return BAD_SIZES;
    if (!open_gaps(&reader, &arg[0], &arg[1])) return NO_CODE;
    for (i64 k = 0; k < arg[2].i; k++) {
        at += next_gap(&reader);
        if (at >= n) return BEYOND;
        mask[at++] = (u8)arg[3].i;
    }
    return (i64)reader.position;
}

/* Set positions (k,), none of them above `most`; return the bits read. */
ENTRY(gaps_decode_positions) {
    GapReader reader;
    u64 *positions = arg[3].data, at = 0, most = (u64)arg[2].i;
    if (arg[0].size > GAP_CLASSES || arg[1].size < 8) return BAD_SIZES;
    if (!open_gaps(&reader, &arg[0], &arg[1])) return NO_CODE;
    for (i64 k = 0; k < arg[3].size; k++) {
        u64 gap = next_gap(&reader);
        if (at > most || gap > most - at) return BEYOND;
        at += gap;
        positions[k] = at++;
    }
    return (i64)reader.position;
}
