/* Bits of quantized blocks, structs of bytes, to elements of a byte and back. */
#include "native.h"

/* The same bits of `length` bytes from `start` on, and the elements that they are, moved up by `up`. */
typedef struct {
    i64 start, length, shift, bits, target, step, up;
} BlockBits;

static int fits(const BlockBits *b, i64 nbytes, i64 elements) {
    return b->start >= 0 && b->length > 0 && b->length <= nbytes - b->start && b->target >= 0 &&
           b->step > 0 && b->step <= elements && b->target < elements &&
           b->length - 1 <= (elements - 1 - b->target) / b->step && b->bits > 0 && b->bits <= 8 &&
           b->shift >= 0 && b->shift <= 8 - b->bits && b->up >= 0 && b->up <= 8 - b->bits;
}

INLINE void move_bits(const u8 *restrict from, i64 from_step, i64 down, u8 mask, i64 up, u8 *restrict to,
                      i64 to_step, i64 n) {
    for (i64 i = 0; i < n; i++) to[i * to_step] |= (u8)((u8)(from[i * from_step] >> down & mask) << up);
}

/* Of each block; the bits that are not named stay as they are. */
INLINE i64 move_blocks(u8 *blocks, i64 count, i64 nbytes, const Arg *table, u8 *elements, i64 width,
                       int packs) {
    const BlockBits *all = table->data;
    for (i64 k = 0; k < table->shape[0]; k++)
        if (!fits(&all[k], nbytes, width)) return BAD_SIZES;
    for (i64 i = 0; i < count; i++, blocks += nbytes, elements += width)
        for (i64 k = 0; k < table->shape[0]; k++) {
            const BlockBits *b = &all[k];
            u8 *bytes = blocks + b->start, *codes = elements + b->target, mask = (u8)((1 << b->bits) - 1);
            if (packs && b->step == 1) move_bits(codes, 1, b->up, mask, b->shift, bytes, 1, b->length);
            else if (packs) move_bits(codes, b->step, b->up, mask, b->shift, bytes, 1, b->length);
            else if (b->step == 1) move_bits(bytes, 1, b->shift, mask, b->up, codes, 1, b->length);
            else move_bits(bytes, 1, b->shift, mask, b->up, codes, b->step, b->length);
        }
    return 0;
}

/* (blocks, table, elements) */
ENTRY(ggml_split) {
    memset(arg[2].data, 0, (size_t)arg[2].size);
    return move_blocks(arg[0].data, arg[0].shape[0], arg[0].shape[1], &arg[1], arg[2].data, arg[2].shape[1],
                       0);
}
ENTRY(ggml_join) {
    return move_blocks(arg[2].data, arg[2].shape[0], arg[2].shape[1], &arg[1], arg[0].data, arg[0].shape[1],
                       1);
}
