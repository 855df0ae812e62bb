/* Integer grids in floats: the step of a run of values, found by intervals and proved by products.

   A run is of finite values, each of which is meant to be q × step, rounded once to a format of `mantissa` bits
   (its fraction) whose smallest normal is 2**lowest. Each value then confines the step to an interval of its own
   rounding; a wrong guess leaves none within a few values, a right one a few floats, which are tried on all. */
#include "elements.h"

enum {
    SINGLE_MANTISSA = 23,
    DOUBLE_MANTISSA = 52,
    PROVED_BLOCK = 256, /* values between two looks at whether all is well */
    NARROW_SAMPLE = 32, /* values that narrow the interval at first */
    SETTLE_PASSES = 4,
    STEP_NEIGHBOURS = 4 /* floats on either side of the interval's middle that are tried */
};
#define WIDEN 0x1p-50 /* interval ends are doubles themselves */

typedef struct {
    i64 mantissa, lowest;
} Format;
typedef struct {
    double low, high; /* empty if low > high */
} Interval;
typedef struct {
    const void *values; /* doubles if the format is; else singles */
    i64 n;
    double limit; /* of codes */
    Format format;
} GridRun;

INLINE double grid_value(const GridRun *run, i64 i) {
    return read_real(run->values, i, run->format.mantissa == DOUBLE_MANTISSA);
}

/* A power of two: the largest that is not above a magnitude, but at least the format's smallest normal. */
INLINE double binade(double value, Format format) {
    double power = double_of(bits_of(value) & 0x7FF0000000000000u);
    double least = double_of((u64)(format.lowest + 1023) << 52);
    return power > least ? power : least;
}
/* The distance of the format's floats at `value`. */
static double quantum(double value, Format format) {
    i64 unit = (i64)(bits_of(binade(value, format)) >> 52) - format.mantissa;
    return double_of(unit > 0 ? (u64)unit << 52 : (u64)1 << (unit + 51));
}

/* q × step in double arithmetic, then rounded to the format. */
INLINE double grid_product(double q, double step, Format format) {
    double exact = q * step;
    if (format.mantissa == DOUBLE_MANTISSA) return exact;
    if (format.mantissa == SINGLE_MANTISSA) return (float)exact;
    double anchor = 1.5 * double_of(bits_of(binade(exact, format)) + ((u64)(52 - format.mantissa) << 52));
    return (exact + anchor) - anchor;
}

/* Set codes[i] to the q with q × step = value i; return whether each has one within the limit. */
INLINE int prove(const GridRun *run, double step, Format format, i32 *restrict codes) {
    const void *restrict values = run->values;
    double inverse = 1.0 / step, limit = run->limit;
    if (!(step > 0 && step < __builtin_inf() && inverse < __builtin_inf())) return 0;
    for (i64 start = 0; start < run->n; start += PROVED_BLOCK) {
        i64 wrong = 0, stop = min64(start + PROVED_BLOCK, run->n);
        for (i64 i = start; i < stop; i++) {
            double value = read_real(values, i, format.mantissa == DOUBLE_MANTISSA);
            double q = round_even(value * inverse);
            wrong |= (i64)(abs_real(q) > limit) | (i64)(grid_product(q, step, format) != value);
            codes[i] = (i32)q; /* of no use if one is wrong */
        }
        if (wrong) return 0;
    }
    return 1;
}
/* Each kind of format is compiled by itself. */
static int prove_step(const GridRun *run, double step, i32 *codes) {
    Format format = run->format;
    if (format.mantissa == DOUBLE_MANTISSA) return prove(run, step, (Format){DOUBLE_MANTISSA, 0}, codes);
    if (format.mantissa == SINGLE_MANTISSA) return prove(run, step, (Format){SINGLE_MANTISSA, 0}, codes);
    return prove(run, step, (Format){format.mantissa & 15, format.lowest}, codes);
}

/* Of magnitudes; without the instructions that the first processor level lacks. */
static double floor_of(double value) { return value < 0x1p62 ? (double)(i64)value : value; }
static double ceiling_of(double value) {
    double below = floor_of(value);
    return below < value ? below + 1 : below;
}

/* The numbers that the format rounds to a magnitude, a little widened. */
static Interval rounded_to(double size, Format format) {
    double half = 0.5 * quantum(size, format), below = half;
    int power = !(bits_of(size) << 12) && size > double_of((u64)(format.lowest + 1023) << 52);
    if (power) below = 0.5 * half; /* the floats below a power of two stand closer */
    return (Interval){(size - below) * (1.0 - WIDEN), (size + half) * (1.0 + WIDEN)};
}

/* The steps of an interval that explain every stride-th value. */
static Interval narrow(const GridRun *run, i64 stride, Interval steps) {
    for (i64 i = 0; i < run->n; i += stride) {
        double size = abs_real(grid_value(run, i));
        if (size == 0) continue;
        Interval ends = rounded_to(size, run->format);
        double fewest = ceiling_of(ends.low / steps.high), most = floor_of(ends.high / steps.low);
        if (fewest > most || fewest > run->limit) return (Interval){1, 0};
        if (fewest != most || !(most > 0)) continue; /* it does not tell yet */
        double low = ends.low / most, high = ends.high / most;
        steps.low = low > steps.low ? low : steps.low;
        steps.high = high < steps.high ? high : steps.high;
        if (steps.low > steps.high) return steps;
    }
    return steps;
}

/* The float of fewest significant bits in an interval without its margins: the ends of the interval are round
   themselves, but there the rounding of a product is a tie. */
static double roundest(Interval steps, double margin) {
    double away = (steps.high - steps.low) * margin;
    u64 last = bits_of(steps.high - away), differ = (bits_of(steps.low + away) - 1) ^ last;
    i64 shift = bit_length(differ >> 1);
    return double_of(last >> shift << shift);
}

/* The step that makes a magnitude q steps and explains all values, or 0. */
static double settle(const GridRun *run, double size, double q, i32 *codes) {
    static const double margins[] = {0x1p-10, 0.25};
    Interval ends = rounded_to(size, run->format);
    Interval steps = {ends.low / q, ends.high / q};
    if (steps.low < 0x1p-1022) steps.low = 0x1p-1022;
    i64 stride = max64(run->n / NARROW_SAMPLE, 1);
    for (int pass = 0; pass < SETTLE_PASSES;
         pass++) { /* a few values first, all of them if that does not do */
        double before = steps.high - steps.low;
        steps = narrow(run, stride, steps);
        if (steps.low > steps.high) return 0;
        for (int m = 0; m < 2 && (stride > 1 || steps.high - steps.low < before); m++) {
            double step = roundest(steps, margins[m]);
            if (prove_step(run, step, codes)) return step;
        }
        stride = 1;
    }
    u64 low = bits_of(steps.low), middle = low + (bits_of(steps.high) - low) / 2;
    for (u64 k = 0; k <= 2 * STEP_NEIGHBOURS; k++) {
        double step = double_of(middle + k - STEP_NEIGHBOURS);
        if (prove_step(run, step, codes)) return step;
    }
    return 0;
}

/* The step of a run, or 0: the code of the run before is tried for the greatest magnitude, then each fraction of
   the least magnitude that keeps the greatest within the limit, from the coarsest on. */
static double find_step(const GridRun *run, double least, double greatest, double code, i32 *codes) {
    double found = code > 0 ? settle(run, greatest, code, codes) : 0;
    double ratio = greatest / least, error = quantum(greatest, run->format) / greatest;
    error = 0.6 * (error + quantum(least, run->format) / least) + WIDEN;
    for (double q = 1; found == 0 && q <= run->limit && q * ratio * (1.0 - error) <= run->limit; q++) {
        double guess = q * ratio;
        if (abs_real(guess - round_even(guess)) <= guess * error) found = settle(run, least, q, codes);
    }
    return found;
}

/* The least and the greatest magnitude of floats but zeros; 0 as the greatest if all are, infinity if any is NaN. As
   words, whose order is that of the magnitudes and of which vectors take many: zeros are moved to the top. */
#define MAGNITUDES(F, W)                                               \
    static Interval magnitudes_##F(const W *words, i64 n) {            \
        const W mask = (W) - 1 >> 1;                                   \
        W least = (W) - 1, greatest = 0;                               \
        for (i64 i = 0; i < n; i++) {                                  \
            W size = words[i] & mask, below = size - 1;                \
            least = below < least ? below : least;                     \
            greatest = size > greatest ? size : greatest;              \
        }                                                              \
        least++;                                                       \
        F low, high;                                                   \
        memcpy(&low, &least, sizeof low);                              \
        memcpy(&high, &greatest, sizeof high);                         \
        return (Interval){low, high == high ? high : __builtin_inf()}; \
    }
MAGNITUDES(float, u32)
MAGNITUDES(double, u64)
#undef MAGNITUDES

static int is_format(Format format, i64 itemsize) {
    i64 bits = format.mantissa;
    if (format.lowest < -1022 || format.lowest >= 0) return 0;
    if (bits == DOUBLE_MANTISSA) return itemsize == 8;
    return itemsize == 4 && (bits == SINGLE_MANTISSA || (bits > 0 && bits < 16));
}

ENTRY(grid_find_steps) {
    (void)scratch;
    i64 columns = arg[0].shape[1], waiting = 0;
    double *steps = arg[4].data, step = 0, code = 0;
    GridRun run = {NULL, columns, arg[1].f, {arg[2].i, arg[3].i}};
    if (!is_format(run.format, arg[0].itemsize)) return BAD_SIZES;
    for (i64 r = 0; r < arg[0].shape[0]; r++) {
        i32 *codes = (i32 *)arg[5].data + r * columns;
        run.values = (const u8 *)arg[0].data + r * columns * arg[0].itemsize;
        steps[r] = step;
        Interval sizes = arg[0].itemsize == 4 ? magnitudes_float((const u32 *)run.values, columns)
                                              : magnitudes_double((const u64 *)run.values, columns);
        if (sizes.high == __builtin_inf()) return 0;
        if (sizes.high == 0) { /* all zeros: the step of its neighbour */
            memset(codes, 0, (size_t)columns * sizeof *codes);
            continue;
        }
        step = steps[r] = find_step(&run, sizes.low, sizes.high, code, codes);
        if (step == 0) return 0;
        code = round_even(sizes.high / step);
        while (waiting < r && steps[waiting] == 0) steps[waiting++] = step;
        waiting = r + 1;
    }
    return 1;
}

/* code × step; where a step is negative, code -1 is -0.0, and lower ones stand for an integer one higher. */
INLINE void restore_block_of_grid(const i32 *restrict codes, i64 n, double step, Format format,
                                  void *restrict out) {
    const int wide = format.mantissa == DOUBLE_MANTISSA, lowered = bits_of(step) >> 63 != 0;
    step = abs_real(step);
    for (i64 i = 0; i < n; i++) {
        double value = grid_product(lowered ? codes[i] + (codes[i] < 0) : codes[i], step, format);
        write_real(out, i, lowered && codes[i] == -1 ? -0.0 : value, wide);
    }
}
/* Each kind of format is compiled by itself. */
INLINE i64 restore_grid(const Arg *arg, Format format) {
    enum { TOGETHER = 256 };
    i32 codes[TOGETHER];
    i64 columns = arg[0].shape[1], size = arg[0].itemsize, start = 0;
    for (i64 r = 0; r < arg[0].shape[0]; r++)
        for (i64 end = start + columns, n; start < end; start += n) {
            const u8 *run = (const u8 *)arg[0].data + start * size;
            n = min64(TOGETHER, end - start);
            if (size == 1)
                for (i64 i = 0; i < n; i++) codes[i] = ((const i8 *)run)[i];
            else
                for (i64 i = 0; i < n; i++) codes[i] = ((const i16 *)run)[i];
            u8 *out = (u8 *)arg[4].data + start * arg[4].itemsize;
            restore_block_of_grid(codes, n, ((const double *)arg[1].data)[r], format, out);
        }
    return 0;
}
ENTRY(grid_restore) {
    (void)scratch;
    Format format = {arg[2].i, arg[3].i};
    if (!is_format(format, arg[4].itemsize) || arg[0].itemsize > 2) return BAD_SIZES;
    if (format.mantissa == DOUBLE_MANTISSA) return restore_grid(arg, (Format){DOUBLE_MANTISSA, 0});
    if (format.mantissa == SINGLE_MANTISSA) return restore_grid(arg, (Format){SINGLE_MANTISSA, 0});
    return restore_grid(arg, (Format){format.mantissa & 15, format.lowest});
}
