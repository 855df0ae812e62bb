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
KERNEL(ans_index, "W[n] int int u8[r]? u8[c]? u16[31]? int &u16[n] &i64[k]")
KERNEL(ans_encode, "u16[n] i64[k,a] u16[a] int int int int int &u8[o] &i64[8] &u8[v]")
KERNEL(ans_decode, "u8[n] &i64[8] u8[p] u16[a] int int int u8[r]? u8[c]? u16[31]? int int W[e] &W[m]")
KERNEL(ans_unpack_escaped, "u8[n] int int &W[e]")
/* frequencies.c */
KERNEL(ans_frequencies, "&i64[k,s] int int int i64[l] &u16[s] &i64[t] &u8[p] &i64[4]")
/* trellis.c */
KERNEL(trellis_encode, "F[n] float int int &i16[m] &i64[k] &i64[k]")
KERNEL(trellis_decode, "i16[n] int int W[t] &W[n]")
/* quantizers.c */
/* sparse.c */
/* gradients.c */
KERNEL(is_finite, "f32[n]")
