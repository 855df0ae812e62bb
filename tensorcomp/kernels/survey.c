/* A quick look at a tensor's words, to tell what kind of data they are. */
#include <math.h>

#include "native.h"

enum {
    LOOK_RUNS = 16,
    LOOK_RUN = 64,
    SLOTS = 4096
}; /* runs looked at; a hash table a quarter full at most */
enum { LOOK_ROWS = 32, LOOK_COLUMNS = 64 }; /* looked at, of a matrix */

/* Where a run begins, of runs spread over n words. */
INLINE i64 run_start(i64 n, i64 run, i64 runs, i64 length) { return run * ((n - length) / (runs - 1)); }

/* An odd number: columns of a convolution that are a power of two apart are the same place of different kernels. */
INLINE i64 odd_step(i64 size, i64 wanted) {
    i64 step = max64(size / wanted, 1);
    return step - 1 + step % 2;
}

/* The variance of the columns' means over that within columns, less what so few rows give by chance; no NaN counts. */
static double between_over_within(double (*logs)[LOOK_COLUMNS], i64 rows, i64 columns) {
    double means[LOOK_COLUMNS], within = 0, chance = 0, mean = 0, between = 0;
    i64 freedom = 0, used = 0;
    for (i64 j = 0; j < columns; j++) {
        double total = 0, squares = 0;
        i64 count = 0;
        for (i64 i = 0; i < rows; i++) {
            double log = logs[i][j];
            if (log != log) continue;
            total += log;
            squares += log * log;
            count++;
        }
        if (count < 2) continue;
        means[used++] = total / (double)count;
        within += squares - total * total / (double)count;
        freedom += count - 1;
        chance += 1 / (double)count;
    }
    if (used < 2 || within <= 0) return 0;
    within /= (double)freedom;
    for (i64 j = 0; j < used; j++) mean += means[j];
    mean /= (double)used;
    for (i64 j = 0; j < used; j++) between += (means[j] - mean) * (means[j] - mean);
    return (between / (double)used - within * chance / (double)used) / within;
}

#define TEMPLATE "survey.inc"
#include "widths.h"
FOR_WIDTHS(survey_look)
FOR_WIDTHS(survey_count)
FOR_WIDTHS(survey_column_variance)

/* Whether all words (n,), at least one, are equal: each is the next one. */
ENTRY(survey_all_equal) {
    const char *words = arg[0].data;
    i64 bytes = arg[0].size * arg[0].itemsize;
    return arg[0].size > 0 && !memcmp(words, words + arg[0].itemsize, (size_t)(bytes - arg[0].itemsize));
}
