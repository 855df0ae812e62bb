/* In a template: a kernel for one width. Outside: the kernel for all, by the width of its first argument. */
#ifndef FOR_WIDTHS
#define WIDTH_ENTRY(name) ENTRY(NAME(name))
#define FOR_WIDTHS(name)                         \
    ENTRY(name) {                                \
        switch (arg[0].itemsize) {               \
        case 1: return name##_8(arg, scratch);   \
        case 2: return name##_16(arg, scratch);  \
        case 4: return name##_32(arg, scratch);  \
        default: return name##_64(arg, scratch); \
        }                                        \
    }
#endif

/* Includes the file that TEMPLATE names once for each width of words W, with functions named NAME(x). */
#define W u8
#define NAME(x) x##_8
#include TEMPLATE
#undef W
#undef NAME
#define W u16
#define NAME(x) x##_16
#include TEMPLATE
#undef W
#undef NAME
#define W u32
#define NAME(x) x##_32
#include TEMPLATE
#undef W
#undef NAME
#define W u64
#define NAME(x) x##_64
#include TEMPLATE
#undef W
#undef NAME
#undef TEMPLATE
