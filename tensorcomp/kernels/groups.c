/* Loops over groups: runs of so many elements within each row of a matrix, the last of a row maybe shorter. */
#include "elements.h"

typedef struct {
    i64 columns, length, count;
    i64 start, size; /* of the group at hand: where it starts in the matrix, its elements */
    i64 left;        /* elements of its row from there on */
} Group;

/* The first group of a matrix (R, C); `count` is -1 where `groups` is not their number. */
INLINE Group first_group(i64 rows, i64 columns, i64 length, i64 groups) {
    i64 count = length < 1 ? -1 : columns < 1 ? 0 : rows * ((columns - 1) / length + 1);
    return (Group){columns, length, count == groups ? count : -1, 0, min64(length, columns), columns};
}
INLINE void next_group(Group *group) {
    group->start += group->size;
    group->left -= group->size;
    if (!group->left) group->left = group->columns;
    group->size = min64(group->length, group->left);
}
/* For each group g of `matrix`, an argument: `group` tells where it lies. */
#define EACH_GROUP(matrix, length, groups)                                                      \
    Group group = first_group((matrix).shape[0], (matrix).shape[1], (length).i, (groups).size); \
    if (group.count < 0) return BAD_SIZES;                                                      \
    for (i64 g = 0; g < group.count; g++, next_group(&group))

/* Bits of magnitudes are ordered as signed integers are, which vectors can compare. */
#define DEFINE_GREATEST(NAME, INT)                                                              \
    INLINE INT NAME##_of(const INT *run, i64 n) {                                               \
        const INT mask = (INT)(((u64)1 << (8 * sizeof(INT) - 1)) - 1);                          \
        INT high = 0;                                                                           \
        for (i64 i = 0; i < n; i++) high = (run[i] & mask) > high ? run[i] & mask : high;       \
        return high;                                                                            \
    }                                                                                           \
    static i64 NAME(const Arg *arg) {                                                           \
        const INT *words = arg[0].data;                                                         \
        INT *out = arg[2].data;                                                                 \
        EACH_GROUP(arg[0], arg[1], arg[2]) out[g] = NAME##_of(words + group.start, group.size); \
        return 0;                                                                               \
    }
DEFINE_GREATEST(greatest_single, i32)
DEFINE_GREATEST(greatest_double, i64)
ENTRY(groups_greatest) {
    (void)scratch;
    return arg[0].itemsize == 8 ? greatest_double(arg) : greatest_single(arg);
}

INLINE i64 group_extremes(const Arg *arg, int wide) {
    const void *values = arg[0].data;
    EACH_GROUP(arg[0], arg[1], arg[2]) {
        double low = read_real(values, group.start, wide), high = low;
        for (i64 i = 0; i < group.size; i++) {
            double value = read_real(values, group.start + i, wide);
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        write_real(arg[2].data, g, low, wide);
        write_real(arg[3].data, g, high, wide);
    }
    return 0;
}
ENTRY_BY_WIDTH(groups_extremes, 0, group_extremes)

/* The mean magnitude of the elements above the group's floor: a sum in the order of the elements. */
INLINE i64 group_means(const Arg *arg, int wide) {
    const void *values = arg[0].data;
    EACH_GROUP(arg[0], arg[1], arg[2]) {
        double floor = read_real(arg[2].data, g, wide), total = 0;
        i64 count = 0;
        for (i64 i = 0; i < group.size; i++) {
            double size = abs_real(read_real(values, group.start + i, wide));
            total += only_if(size > floor, size);
            count += size > floor;
        }
        write_real(arg[3].data, g, total / (double)max64(count, 1), wide);
    }
    return 0;
}
ENTRY_BY_WIDTH(groups_mean_above, 0, group_means)

INLINE i64 group_signs(const Arg *arg, int wide) {
    const void *restrict values = arg[0].data;
    i8 *restrict codes = arg[3].data;
    EACH_GROUP(arg[0], arg[1], arg[2]) {
        double floor = read_real(arg[2].data, g, wide);
        for (i64 i = group.start; i < group.start + group.size; i++) {
            double value = read_real(values, i, wide);
            codes[i] = (i8)((i64)(value > floor) - (i64)(value < -floor));
        }
    }
    return 0;
}
ENTRY_BY_WIDTH(groups_signs_above, 0, group_signs)

INLINE void normalize_run(const void *restrict values, i64 n, double scale, double offset, void *restrict out,
                          int wide) {
    for (i64 i = 0; i < n; i++) write_real(out, i, (read_real(values, i, wide) - offset) / scale, wide);
}
/* (value - offset) / scale in doubles; 0 if the scale is 0. */
INLINE i64 normalize_groups(const Arg *arg, int wide) {
    const i64 bytes = wide ? 8 : 4;
    EACH_GROUP(arg[0], arg[1], arg[2]) {
        double scale = read_real(arg[2].data, g, wide), offset = read_real(arg[3].data, g, wide);
        u8 *out = (u8 *)arg[4].data + group.start * bytes;
        const u8 *values = (const u8 *)arg[0].data + group.start * bytes;
        if (scale == 0) memset(out, 0, (size_t)(group.size * bytes));
        else normalize_run(values, group.size, scale, offset, out, wide);
    }
    return 0;
}
ENTRY_BY_WIDTH(groups_normalize, 0, normalize_groups)

enum { UNSIGNED_CODES, SIGNED_CODES, SINGLE_CODES };
#define CODE(type) ((const type *)codes)[i]

/* In doubles; in singles where these round an integer's product with the scale once, which is all the same. */
INLINE void restore_group(const void *restrict codes, i64 n, double scale, double offset, double limit,
                          void *restrict out, int kind, int wide) {
    if (wide || offset != 0 || kind == SINGLE_CODES)
        for (i64 i = 0; i < n; i++) {
            double code = kind == SINGLE_CODES   ? CODE(float)
                          : kind == SIGNED_CODES ? (double)CODE(i8)
                                                 : CODE(u8);
            write_real(out, i, clip_real(code * scale + offset, limit), wide);
        }
    else
        for (i64 i = 0; i < n; i++) {
            float code = kind == SIGNED_CODES ? (float)CODE(i8) : CODE(u8);
            float value = code * (float)scale + (float)offset, most = (float)limit; /* an offset of ±0 */
            value = value < -most ? -most : value;
            ((float *)out)[i] = value > most ? most : value;
        }
}
/* code × scale + offset, kept within ±limit. */
INLINE i64 restore_groups(const Arg *arg, int kind, int wide) {
    EACH_GROUP(arg[0], arg[2], arg[3]) {
        double scale = read_real(arg[3].data, g, wide), offset = read_real(arg[4].data, g, wide);
        const u8 *codes = (const u8 *)arg[0].data + group.start * (kind == SINGLE_CODES ? 4 : 1);
        u8 *out = (u8 *)arg[6].data + group.start * (wide ? 8 : 4);
        restore_group(codes, group.size, scale, offset, arg[5].f, out, kind, wide);
    }
    return 0;
}
ENTRY(groups_restore) {
    (void)scratch;
    if (arg[0].itemsize == 4) return BY_WIDTH(arg[6], restore_groups, arg, SINGLE_CODES);
    if (arg[0].itemsize != 1) return BAD_SIZES;
    if (arg[1].i) return BY_WIDTH(arg[6], restore_groups, arg, SIGNED_CODES);
    return BY_WIDTH(arg[6], restore_groups, arg, UNSIGNED_CODES);
}
