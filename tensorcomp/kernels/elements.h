/* Elements of arrays whose width only the caller knows: a constant wherever these are inlined. */
#ifndef TC_ELEMENTS_H
#define TC_ELEMENTS_H
#include "native.h"

INLINE u64 read_word(const void *words, i64 i, i64 bytes) {
    return bytes == 1   ? ((const u8 *)words)[i]
           : bytes == 2 ? ((const u16 *)words)[i]
           : bytes == 4 ? ((const u32 *)words)[i]
                        : ((const u64 *)words)[i];
}
INLINE void write_word(void *words, i64 i, u64 word, i64 bytes) {
    if (bytes == 1) ((u8 *)words)[i] = (u8)word;
    else if (bytes == 2) ((u16 *)words)[i] = (u16)word;
    else if (bytes == 4) ((u32 *)words)[i] = (u32)word;
    else ((u64 *)words)[i] = word;
}

/* Of float32 arrays, or float64 ones if `wide`. */
INLINE double read_real(const void *reals, i64 i, int wide) {
    return wide ? ((const double *)reals)[i] : (double)((const float *)reals)[i];
}
INLINE void write_real(void *reals, i64 i, double value, int wide) {
    if (wide) ((double *)reals)[i] = value;
    else ((float *)reals)[i] = (float)value;
}

/* Call a function for the width of an argument's floats, once for each of the two widths. */
#define BY_WIDTH(argument, function, ...) \
    ((argument).itemsize == 8 ? function(__VA_ARGS__, 1) : function(__VA_ARGS__, 0))

/* A kernel that is such a function, for the width of argument `number`. */
#define ENTRY_BY_WIDTH(name, number, function)       \
    ENTRY(name) {                                    \
        (void)scratch;                               \
        return BY_WIDTH(arg[number], function, arg); \
    }

INLINE double abs_real(double value) { return __builtin_fabs(value); }
INLINE double clip_real(double value, double limit) {
    value = value < -limit ? -limit : value;
    return value > limit ? limit : value;
}
/* The nearest integer, ties to even, of magnitudes below 2^51. */
INLINE double round_even(double value) { return (value + 0x1.8p52) - 0x1.8p52; }

INLINE u64 bits_of(double value) {
    u64 bits;
    memcpy(&bits, &value, 8);
    return bits;
}
INLINE double double_of(u64 bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}
/* A value, or 0, without a branch. */
INLINE double only_if(int condition, double value) { return double_of(bits_of(value) & -(u64)condition); }

/* How far the mean of `number` elements lies below its point in magnitude, in 1/256 step, where they lie `above` it in
   all, in 1/parts step. */
enum { CENTROID_PARTS = 256 };
INLINE i8 centroid_of(i64 above, i64 number, i64 parts) {
    i64 unit = parts / CENTROID_PARTS * max64(number, 1), below = unit / 2 - above;
    i64 rounded = below / unit - (below % unit < 0); /* towards minus infinity */
    return (i8)max64(min64(rounded, CENTROID_PARTS / 2 - 1), -CENTROID_PARTS / 2);
}
#endif
