/* Every kernel: its name and the arguments it takes, which module.c checks before the kernel runs.
   u8 … u64, i8 … i64, f32, f64: the elements of an array; W, R, S: integers of any width, the same letter
   the same width; F: f32 or f64. In brackets the shape: numbers, or letters that stand for the same length
   wherever they occur; [*] is any shape. & is written to; ? may be None. int, uint, float: numbers. */

/* bit_planes.c */
/* huffman.c */
/* groupfloats.c */
/* floats.c */
/* ans.c */
KERNEL(ans_bits, "u16[n] int")
KERNEL(ans_index, "W[n] int int u8[r]? u8[c]? u16[31]? int &u16[n] &i64[k]")
KERNEL(ans_encode, "u16[n] i64[k,a] u16[a] int int int int int &u8[o] &i64[8] &u8[v]")
KERNEL(ans_decode, "u8[n] &i64[8] u8[p] u16[a] int int int u8[r]? u8[c]? u16[31]? int int W[e] &W[m]")
KERNEL(ans_unpack_escaped, "u8[n] int int &W[e]")
/* frequencies.c */
KERNEL(ans_frequencies, "&i64[k,s] int int int i32[l] &u16[s] &i64[t] &u8[p] &i64[4]")
/* trellis.c */
KERNEL(trellis_encode, "F[n] float int int &i16[m] &i8[16]")
KERNEL(trellis_decode, "i16[n] int int W[t] &W[n]")
/* quantizers.c */
/* sparse.c */
/* gradients.c */
KERNEL(is_finite, "f32[n]")
