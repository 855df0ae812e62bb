/* Contexts from row and column scale, for codecs that are put together in Python. */
#include "contexts.h"

/* (matrix, has signs, width or 0, contexts, row levels, column levels, context of each sum) -> width of a level */
ENTRY(contexts_find) {
    if (!arg[0].size || arg[0].itemsize > 2) return BAD_SIZES;
    return learn_contexts(&arg[0], arg[1].i != 0, arg[2].i, arg[3].i, arg[4].data, arg[5].data, arg[6].data,
                          scratch);
}
