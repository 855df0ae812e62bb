/* Arrays of words as bit planes. */
#include "bit_planes.h"

/* DO(bits) for words of so many bytes. */
#define FOR_WORDS(itemsize, DO)         \
    do {                                \
        if (itemsize == 1) DO(8);       \
        else if (itemsize == 2) DO(16); \
        else if (itemsize == 4) DO(32); \
        else DO(64);                    \
    } while (0)

ENTRY(bitpack_pack) {
    const i64 rows = arg[0].shape[0], columns = arg[0].shape[1];
    u8 all[2], *spans = arg[2].data, *out = arg[3].data;
    i64 *sizes = arg[4].data;
    if (rows < 1) return BAD_SIZES;
    TAKE(u8, left, columns + 64);
#define FIND_SPANS(bits) find_spans_##bits(arg[0].data, rows, columns, spans, all)
    FOR_WORDS(arg[0].itemsize, FIND_SPANS);
    int apart = choose_spans(spans, all, rows, columns, arg[1].i != 0);
    sizes[0] = apart ? rows : 1;
    sizes[1] = plane_bytes(spans, apart, rows, columns);
    if (arg[3].size < sizes[1]) return BAD_SIZES;
#define PACK(bits) pack_##bits(arg[0].data, rows, columns, spans, left, out)
#define PACK_FLAT(bits) pack_flat_##bits(arg[0].data, rows *columns, spans[0], spans[1], out)
    if (apart) FOR_WORDS(arg[0].itemsize, PACK);
    else FOR_WORDS(arg[0].itemsize, PACK_FLAT);
    return 0;
}

ENTRY(bitpack_unpack) {
    const i64 rows = arg[2].shape[0], columns = arg[2].shape[1], span_rows = arg[1].shape[0];
    const u8 *planes = arg[0].data, *spans = arg[1].data;
    if (span_rows < 1 || (span_rows != 1 && span_rows != rows)) return BAD_SIZES;
    for (i64 r = 0; r < span_rows; r++)
        if (spans[2 * r] + spans[2 * r + 1] > 8 * arg[2].itemsize) return -1;
    i64 bytes = plane_bytes(spans, span_rows > 1, rows, columns);
    if (bytes != arg[0].size) return bytes;
    TAKE(u8, left, columns + 64);
#define UNPACK(bits) unpack_##bits(planes, rows, columns, spans, left, arg[2].data)
#define UNPACK_FLAT(bits) unpack_flat_##bits(planes, spans[0], spans[1], arg[2].data, rows *columns)
    if (span_rows > 1) FOR_WORDS(arg[2].itemsize, UNPACK);
    else FOR_WORDS(arg[2].itemsize, UNPACK_FLAT);
    return bytes;
}

ENTRY(bitpack_flat_bytes) {
    (void)scratch;
    return flat_bytes(arg[0].i, arg[1].i);
}

ENTRY(bitpack_pack_low) {
    (void)scratch;
    if (arg[1].i < 0 || arg[1].i > 8 || arg[2].size != flat_bytes(arg[0].size, arg[1].i)) return BAD_SIZES;
    pack_flat_8(arg[0].data, arg[0].size, 0, (int)arg[1].i, arg[2].data);
    return 0;
}

ENTRY(sum_magnitudes) {
    (void)scratch;
    i64 total = 0;
    for (i64 begin = 0, stop; begin < arg[0].size; begin = stop) { /* a sum of 32 bits holds so many */
        u32 sum = 0;
        stop = min64(begin + (1 << 16), arg[0].size);
#define ADD(T, U)                                                                              \
    do {                                                                                       \
        const T *values = arg[0].data;                                                         \
        for (i64 i = begin; i < stop; i++) sum += (U)(values[i] < 0 ? -values[i] : values[i]); \
    } while (0)
        if (arg[0].itemsize == 1) ADD(i8, u8);
        else if (arg[0].itemsize == 2) ADD(i16, u16);
        else return BAD_SIZES;
        total += sum;
    }
    return total;
}
