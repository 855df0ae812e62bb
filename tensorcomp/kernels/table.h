/* Every kernel: its name and the arguments it takes, which module.c checks before the kernel runs.
   u8 … u64, i8 … i64, f32, f64: the elements of an array; W, R, S: integers of any width, the same letter
   the same width; F: f32 or f64. In brackets the shape: numbers, or letters that stand for the same length
   wherever they occur; [*] is any shape. & is written to; ? may be None. int, uint, float: numbers. */

/* bitpack.c */
KERNEL(bitpack_pack, "W[r,c] int &u8[r,2] &u8[n] &i64[2]")
KERNEL(bitpack_unpack, "u8[n] u8[s,2] &W[r,c]")
KERNEL(bitpack_flat_bytes, "int int")
KERNEL(bitpack_pack_low, "u8[n] int &u8[p]")
KERNEL(sum_magnitudes, "W[n]")
/* huffman.c */
/* groupfloats.c */
KERNEL(groupfloats_encode, "W[r,c] int int int int int &u8[n] &i64[2]")
KERNEL(groupfloats_decode, "u8[n] int int &W[r,c]")
/* floats.c */
/* ans.c */
/* trellis.c */
/* quantizers.c */
/* sparse.c */
/* gradients.c */
KERNEL(is_finite, "f32[n]")
