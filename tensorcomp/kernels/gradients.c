/* Loops over gradients: adding to residuals, finding the largest, adding sparse ones up. */
#include "native.h"

enum { SUMS = 256, FOUND_BLOCK = 32 }; /* sums held back at a time; words of which the largest is looked at */

#define F float
#define NAME(x) x##_32
#include "gradients.inc"
#define F double
#define NAME(x) x##_64
#include "gradients.inc"

ENTRY(gradients_accumulate) {
    return arg[0].itemsize == 4 ? gradients_accumulate_32(arg) : gradients_accumulate_64(arg);
}
ENTRY(gradients_scatter_add) {
    return arg[1].itemsize == 4 ? gradients_scatter_add_32(arg) : gradients_scatter_add_64(arg);
}

#define TEMPLATE "magnitudes.inc"
#include "widths.h"
FOR_WIDTHS(gradients_find_above)
FOR_WIDTHS(gradients_is_finite)
