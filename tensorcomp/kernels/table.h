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
/* contexts.c */
KERNEL(contexts_find, "W[r,c] int int int &u8[r] &u8[c] &u8[31]?")
KERNEL(contexts_fill, "u8[r] u8[c] u8[31] int W[r,c]? &u16[r,c]")
KERNEL(contexts_count, "W[n] &i64[s]")
/* huffman.c */
KERNEL(huffman_encode, "W[r,c] u8[r]? u8[c]? u8[31]? int int int &u8[16384] &u16[4096] &i64[11] &u8[s]")
KERNEL(huffman_decode, "u8[s] &i64[8] u8[k,a] int u16[a] u8[r]? u8[c]? u8[31]? &W[r,c]")
/* groupfloats.c */
KERNEL(groupfloats_encode, "W[r,c] int int int int int &u8[n] &i64[2]")
KERNEL(groupfloats_decode, "u8[n] int int &W[r,c]")
/* floats.c */
KERNEL(floats_encode, "W[r,c] int uint int int int u8[c]? &u8[b]")
KERNEL(floats_decode, "u8[b] int u8[c]? &W[r,c]")
KERNEL(fields_split, "W[n] int uint &R[n] &S[n]")
KERNEL(fields_merge, "R[n] S[n] int &W[n]")
/* ans.c */
/* trellis.c */
/* quantizers.c */
/* sparse.c */
/* gradients.c */
KERNEL(is_finite, "f32[n]")
