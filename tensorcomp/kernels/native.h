/* What every kernel sees: integer types, its arguments, scratch memory, unaligned words. */
#ifndef TC_NATIVE_H
#define TC_NATIVE_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

#define INLINE static inline __attribute__((always_inline))
#define LENGTH(array) ((i64)(sizeof(array) / sizeof(*(array))))

/* An argument: a contiguous array, checked against the kernel's line in table.h, or a number. */
enum { MAX_ARGUMENTS = 16, MAX_DIMENSIONS = 2 };
typedef struct {
    void *data; /* of an array; NULL where None was given for an optional one */
    i64 size;   /* elements */
    i64 itemsize, shape[MAX_DIMENSIONS];
    i64 i; /* of a number `int`; `uint` gives its bits */
    double f;
} Arg;

/* Scratch memory of one call; all of it is freed when the kernel returns. */
typedef struct Scratch Scratch;
void *scratch_take(Scratch *scratch, i64 bytes); /* NULL where there is none */
#define TAKE(type, name, count)                                           \
    type *name = scratch_take(scratch, (i64)(count) * (i64)sizeof(type)); \
    if (!name) return NO_MEMORY

/* A kernel returns a number, or one of these: MemoryError and ValueError in Python. */
#define NO_MEMORY INT64_MIN
#define BAD_SIZES (INT64_MIN + 1)
#define ENTRY(name) static i64 name(const Arg *arg, Scratch *scratch __attribute__((unused)))

typedef struct {
    const char *name, *arguments;
    i64 (*run)(const Arg *arg, Scratch *scratch);
} Kernel;

INLINE i64 min64(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 max64(i64 a, i64 b) { return a > b ? a : b; }
INLINE u64 minu(u64 a, u64 b) { return a < b ? a : b; }
INLINE u64 maxu(u64 a, u64 b) { return a > b ? a : b; }

INLINE u64 load64(const u8 *p) {
    u64 word;
    memcpy(&word, p, 8);
    return word;
}
INLINE u16 load16(const u8 *p) {
    u16 word;
    memcpy(&word, p, 2);
    return word;
}
INLINE void store64(u8 *p, u64 word) { memcpy(p, &word, 8); }
INLINE void store32(u8 *p, u32 word) { memcpy(p, &word, 4); }

INLINE i64 leading_zeros(u64 word) { return __builtin_clzll(word); } /* of a word above 0 */
INLINE i64 bit_length(u64 value) { return value ? 64 - __builtin_clzll(value) : 0; }
#endif
