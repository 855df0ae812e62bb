/* Tables of numbers: which distinct words there are, codebooks of scalars, values looked up. */
#include "elements.h"

/* ---- places in a table ------------------------------------------------------------------------------- */

enum { PLACED_TOGETHER = 256 };

/* out[i] = table[codes[i] - lowest], the difference as wide as codes; what is beyond means the last. Places are
   found in vectors; what lies there is loaded one by one, which is faster than to gather it. */
#define DEFINE_LOOK_UP(NAME, CODE)                                                                          \
    INLINE void NAME(const CODE *restrict codes, i64 n, CODE lowest, const void *restrict table, CODE last, \
                     void *restrict out, i64 bytes) {                                                       \
        CODE places[PLACED_TOGETHER];                                                                       \
        for (i64 start = 0, size; start < n; start += size) {                                               \
            size = min64(PLACED_TOGETHER, n - start);                                                       \
            for (i64 i = 0; i < size; i++) {                                                                \
                CODE place = (CODE)(codes[start + i] - lowest);                                             \
                places[i] = place < last ? place : last;                                                    \
            }                                                                                               \
            _Pragma("GCC unroll 8") for (i64 i = 0; i < size; i++) {                                        \
                u64 place = places[i];                                                                      \
                __asm__("" : "+r"(place)); /* no vectors */                                                 \
                write_word(out, start + i, read_word(table, (i64)place, bytes), bytes);                     \
            }                                                                                               \
        }                                                                                                   \
    }
DEFINE_LOOK_UP(look_up_bytes, u8)
DEFINE_LOOK_UP(look_up_shorts, u16)
INLINE i64 look_up_words(const Arg *arg, i64 bytes) {
    const void *codes = arg[0].data, *table = arg[2].data;
    i64 n = arg[0].size, lowest = arg[1].i, last = arg[2].size - 1;
    if (arg[0].itemsize == 1)
        look_up_bytes(codes, n, (u8)lowest, table, (u8)min64(last, 0xFF), arg[3].data, bytes);
    else look_up_shorts(codes, n, (u16)lowest, table, (u16)min64(last, 0xFFFF), arg[3].data, bytes);
    return 0;
}
ENTRY(codebook_look_up) {
    (void)scratch;
    if (!arg[2].size || arg[0].itemsize > 2) return BAD_SIZES;
    return arg[2].itemsize == 1   ? look_up_words(arg, 1)
           : arg[2].itemsize == 2 ? look_up_words(arg, 2)
           : arg[2].itemsize == 4 ? look_up_words(arg, 4)
                                  : look_up_words(arg, 8);
}

/* ---- distinct words ---------------------------------------------------------------------------------- */

ENTRY(palette_mark) {
    (void)scratch;
    const void *restrict words = arg[0].data;
    u8 *restrict present = arg[1].data;
    const i64 n = arg[0].size, bytes = arg[0].itemsize;
    if (bytes > 2 || arg[1].size < (i64)1 << (8 * bytes)) return BAD_SIZES;
#pragma GCC unroll 8
    for (i64 i = 0; i < n; i++) present[bytes == 1 ? ((const u8 *)words)[i] : ((const u16 *)words)[i]] = 1;
    return 0;
}

enum {
    FIRST_SLOT_BITS = 10, /* the hash table starts small, so that few patterns stay in the first cache */
    SPARE_PROBES = 1 << 22,
    MOST_PATTERNS = 1 << 16
};
#define GOLDEN 0x9E3779B97F4A7C15u

INLINE u64 first_slot(u64 word, i64 bits) {
    u64 mixed = (word ^ (word >> 32)) * GOLDEN;
    return (mixed ^ (mixed >> 29)) * GOLDEN >> (64 - bits);
}
/* Make a table of 2^bits slots, -1 where there is no word, of the words found so far. */
static void fill_slots(i32 *slots, i64 bits, const void *found, i64 count, i64 bytes) {
    u64 mask = ((u64)1 << bits) - 1;
    memset(slots, -1, sizeof *slots << bits);
    for (i64 k = 0; k < count; k++) {
        u64 at = first_slot(read_word(found, k, bytes), bits);
        while (slots[at] >= 0) at = (at + 1) & mask;
        slots[at] = (i32)k;
    }
}
/* Number the distinct words in the order in which they occur; -1 if there are too many. */
INLINE i64 number_words(const Arg *arg, i32 *restrict slots, i64 bytes) {
    const void *restrict words = arg[0].data;
    void *restrict found = arg[1].data;
    u16 *restrict codes = arg[2].data;
    i64 n = arg[0].size, room = arg[1].size, count = 0, bits = FIRST_SLOT_BITS, spare = SPARE_PROBES + n;
    fill_slots(slots, bits, found, 0, bytes);
    for (i64 i = 0; i < n; i++) {
        u64 word = read_word(words, i, bytes), at = first_slot(word, bits);
        i32 entry = slots[at];
        for (; entry >= 0 && read_word(found, entry, bytes) != word; spare--)
            entry = slots[at = (at + 1) & (((u64)1 << bits) - 1)];
        codes[i] = (u16)entry;
        if (entry >= 0) continue;
        if (count == room || spare < 0) return -1;
        write_word(found, count, word, bytes);
        codes[i] = (u16)count;
        slots[at] = (i32)count++;
        if (count > (i64)1 << (bits - 2)) fill_slots(slots, bits += 2, found, count, bytes);
    }
    return count;
}
ENTRY(palette_number) {
    if (arg[1].size > MOST_PATTERNS || arg[0].itemsize < 4) return BAD_SIZES;
    i64 bits = FIRST_SLOT_BITS;
    while (arg[1].size > (i64)1 << (bits - 2)) bits += 2;
    TAKE(i32, slots, (i64)1 << bits);
    return arg[0].itemsize == 4 ? number_words(arg, slots, 4) : number_words(arg, slots, 8);
}

/* ---- codebooks of scalars ---------------------------------------------------------------------------- */

/* An unsigned integer of a float's width: greater keys are greater floats. */
INLINE u64 float_key(u64 word, i64 bytes) {
    return bytes == 4 ? (u32)word ^ ((u32)((i32)word >> 31) | 0x80000000u)
                      : word ^ ((u64)((i64)word >> 63) | 0x8000000000000000u);
}

/* Count the keys of singles by the bits above a shift, and add up the bits below. */
ENTRY(codebook_histogram) {
    (void)scratch;
    const u32 *words = arg[0].data;
    i64 *counts = arg[2].data, *sums = arg[3].data;
    i64 shift = arg[1].i;
    if (shift < 0 || shift > 31 || arg[2].size != (i64)1 << (32 - shift)) return BAD_SIZES;
    for (i64 i = 0; i < arg[0].size; i++) {
        u64 key = float_key(words[i], 4), at = key >> shift;
        counts[at]++;
        sums[at] += (i64)(key - (at << shift));
    }
    return 0;
}

/* The number of thresholds below each float, by bisection of those that lie in the bin of its key. */
INLINE i64 assign_codes(const Arg *arg, i64 bytes, i64 code_bytes) {
    const void *words = arg[0].data;
    const i32 *starts = arg[2].data;
    const u64 *thresholds = arg[3].data, last = (u64)arg[3].size - 1, final = (u64)arg[2].size - 2;
    const i64 shift = arg[1].i, probes = arg[4].i;
    void *codes = arg[5].data;
    for (i64 i = 0; i < arg[0].size; i++) {
        u64 key = float_key(read_word(words, i, bytes), bytes), bin = minu(key >> shift, final);
        u64 low = (u64)starts[bin], high = (u64)starts[bin + 1];
        for (i64 probe = 0; probe < probes; probe++) {
            u64 middle = (low + high) >> 1;
            int below = thresholds[minu(middle, last)] < key;
            low = below ? middle + 1 : low;
            high = below ? high : middle;
        }
        write_word(codes, i, low, code_bytes);
    }
    return 0;
}
ENTRY(codebook_assign) {
    (void)scratch;
    i64 bytes = arg[0].itemsize, code_bytes = arg[5].itemsize;
    if (bytes < 4 || code_bytes > 2 || arg[1].i < 0 || arg[1].i > 63) return BAD_SIZES;
    if (arg[2].size < 2 || !arg[3].size) return BAD_SIZES;
    if (bytes == 4) return code_bytes == 1 ? assign_codes(arg, 4, 1) : assign_codes(arg, 4, 2);
    return code_bytes == 1 ? assign_codes(arg, 8, 1) : assign_codes(arg, 8, 2);
}

typedef struct {
    const double *points; /* ascending */
    const i64 *counts;
    i64 n;
} Points;

/* Move each center to the mean of the points that are nearest to it; return their squared distances. */
static double improve_centers(Points p, double *centers, double *masses, i64 k) {
    double total = 0;
    i64 i = 0;
    for (i64 c = 0; c < k; c++) {
        double center = centers[c];
        double end = c + 1 < k ? 0.5 * (center + centers[c + 1]) : __builtin_inf();
        double mass = 0, first = 0, second = 0;
        for (; i < p.n && p.points[i] <= end; i++) {
            double weight = (double)p.counts[i], away = p.points[i] - center;
            mass += weight;
            first += weight * away;
            second += weight * away * away;
        }
        masses[c] = mass;
        if (!(mass > 0)) continue;
        centers[c] = center + first / mass;
        double error = second - first * (first / mass);
        total += error < 0 ? 0 : error;
    }
    return total;
}
/* Lloyd's iteration, until it gains little. */
ENTRY(codebook_lloyd) {
    (void)scratch;
    const double small_gain = 1e-5; /* of the error: what a pass must gain for another one */
    Points points = {arg[0].data, arg[1].data, arg[0].size};
    double total = 0, before = __builtin_inf();
    for (i64 pass = 0; pass < arg[2].i; pass++) {
        total = improve_centers(points, arg[3].data, arg[4].data, arg[3].size);
        if (!(total < before * (1.0 - small_gain))) break;
        before = total;
    }
    *(double *)arg[5].data = total;
    return 0;
}

typedef struct {
    double *mass, *first, *second; /* sums of the masses before a point, times the points' powers */
} Moments;

/* The squared distances of points first .. last - 1 to their mean. */
INLINE double spread(Moments sums, i64 first, i64 last) {
    double mass = sums.mass[last] - sums.mass[first], total = sums.first[last] - sums.first[first];
    double error = sums.second[last] - sums.second[first] - total * (total / mass);
    return error < 0 ? 0 : error;
}
/* Where the last of c + 1 runs begins in the best cut of the first `last` points: it never falls as that rises. */
static void cut_one_more(Moments sums, i64 size, i64 c, const double *restrict errors, i32 *restrict begins,
                         double *restrict following, double *restrict tried) {
    i64 stride = (i64)1 << (bit_length((u64)size) - 1);
    for (; stride; stride /= 2)
        for (i64 last = stride; last <= size; last += 2 * stride) {
            i64 low = max64(begins[last - stride], c), at = c;
            i64 high = min64(last + stride <= size ? begins[last + stride] : size, last - 1);
            double best = __builtin_inf();
            for (i64 first = low; first <= high; first++)
                tried[first] = errors[first] + spread(sums, first, last);
            for (i64 first = low; first <= high; first++)
                if (tried[first] < best) best = tried[at = first];
            begins[last] = (i32)at;
            following[last] = best;
        }
}
/* The means of the runs of points, ascending, of least squared error, by dynamic programming. */
ENTRY(codebook_cut) {
    const double *points = arg[0].data, *masses = arg[1].data;
    double *centers = arg[2].data;
    i64 size = arg[0].size, k = arg[2].size, row = size + 1;
    if (k < 1 || size < k || size > 1 << 20 || k > 1 << 10) return BAD_SIZES;
    TAKE(i32, begins, k * row);
    TAKE(double, doubles, 6 * row);
    Moments sums = {doubles, doubles + row, doubles + 2 * row};
    double *errors = doubles + 3 * row, *following = doubles + 4 * row, *tried = doubles + 5 * row;
    memset(begins, 0, (size_t)(k * row) * sizeof *begins);
    sums.mass[0] = sums.first[0] = sums.second[0] = 0;
    for (i64 i = 0; i < size; i++) {
        sums.mass[i + 1] = sums.mass[i] + masses[i];
        sums.first[i + 1] = sums.first[i] + masses[i] * points[i];
        sums.second[i + 1] = sums.second[i] + masses[i] * points[i] * points[i];
    }
    errors[0] = following[0] = __builtin_inf();
    for (i64 last = 1; last <= size; last++) errors[last] = spread(sums, 0, last);
    for (i64 c = 1; c < k; c++) {
        cut_one_more(sums, size, c, errors, begins + c * row, following, tried);
        double *swapped = errors;
        errors = following, following = swapped;
    }
    for (i64 c = k - 1, last = size; c >= 0; c--) {
        i64 first = begins[c * row + last];
        centers[c] = (sums.first[last] - sums.first[first]) / (sums.mass[last] - sums.mass[first]);
        last = first;
    }
    return 0;
}
