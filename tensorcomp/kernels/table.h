/* Every kernel: its name and the arguments it takes, which module.c checks before the kernel runs.
   u8 … u64, i8 … i64, f32, f64: the elements of an array; W, R, S: integers of any width, the same letter
   the same width, w64 that of 8 bytes; F: f32 or f64. In brackets the shape: numbers, or letters that stand for
   the same length wherever they occur. & is written to; ? may be None. int, uint, float: numbers; count: of
   elements to be worked on that are in no array, for which the lock is released as for as many bytes of one.
   ~ has what a file says: whatever that is, the kernel stays within bounds, as the fuzzer tries (tests/kernels). */

/* bitpack.c */
KERNEL(bitpack_pack, "W[r,c] int &u8[r,2] &u8[n] &i64[2]")
KERNEL(bitpack_unpack, "~u8[n] ~u8[s,2] &W[r,c]")
KERNEL(bitpack_flat_bytes, "int int")
KERNEL(bitpack_pack_low, "u8[n] int &u8[p]")
KERNEL(sum_magnitudes, "W[n]")

/* contexts.c */
KERNEL(contexts_find, "W[r,c] int int int &u8[r] &u8[c] &u8[31]?")

/* huffman.c */
KERNEL(huffman_encode, "W[r,c] u8[r]? u8[c]? u8[31]? int int int &u8[16384] &u16[4096] &i64[11] &u8[s]")
KERNEL(huffman_decode, "~u8[s] ~&i64[8] ~u8[k,a] ~int ~u16[a] u8[r]? u8[c]? u8[31]? &W[r,c]")

/* groupfloats.c */
KERNEL(groupfloats_encode, "W[r,c] int int int int int &u8[n] &i64[2]")
KERNEL(groupfloats_decode, "~u8[n] int int &W[r,c]")

/* floats.c */
KERNEL(floats_encode, "W[r,c] int uint int int int u8[c]? &u8[b]")
KERNEL(floats_decode, "~u8[b] int u8[c]? &W[r,c]")
KERNEL(fields_split, "W[n] int uint &R[n] &S[n]")
KERNEL(fields_merge, "~R[n] ~S[n] int &W[n]")

/* trellis.c */
KERNEL(trellis_encode, "F[n] float int int &i16[m] &i8[16]")
KERNEL(trellis_continue, "F[n] float int &u8[64] &i16[k] &i32[k]")
KERNEL(trellis_decode, "~i16[n] int int W[t] &W[n]")

/* ans.c */
KERNEL(ans_encode, "W[r,c] W[r,c] int int int int int int u8[c]? i32[l] int &u8[s] &u8[o] &i64[2]")
KERNEL(ans_decode, "~u8[n] ~&i64[8] ~u8[p] ~u16[a] int int int u8[r]? u8[c]? u16[31]? int int ~W[e] &W[m]")
KERNEL(ans_unpack_escaped, "~u8[n] int int &W[e]")

/* difference.c */
KERNEL(difference_encode, "W[r,c] W[r,c] int uint int int i32[l] &u8[o]")
KERNEL(difference_decode, "~u8[n] ~W[r,c] int uint int &W[r,c]")

/* uniform.c */
KERNEL(uniform_encode, "F[n] float int &i16[n] &i8[8]")
KERNEL(uniform_values, "~int int float ~i8[m] float &F[n]")
KERNEL(uniform_confine, "F[n] int f64[m] float &i16[n]")

/* grid.c */
KERNEL(grid_find_steps, "F[r,c] float int int &f64[r] &i32[r,c]")
KERNEL(grid_restore, "~W[r,c] ~f64[r] int int &F[r,c]")

/* ggml.c */
KERNEL(ggml_split, "u8[n,b] i64[k,7] &u8[n,e]")
KERNEL(ggml_join, "~u8[n,e] ~i64[k,7] &u8[n,b]")

/* groups.c */
KERNEL(groups_greatest, "F[r,c] int &F[g]")
KERNEL(groups_extremes, "F[r,c] int &F[g] &F[g]")
KERNEL(groups_mean_above, "F[r,c] int F[g] &F[g]")
KERNEL(groups_signs_above, "F[r,c] int F[g] &i8[r,c]")
KERNEL(groups_normalize, "F[r,c] int F[g] F[g] &F[r,c]")
KERNEL(groups_restore, "~W[r,c] int int ~F[g] ~F[g] float &F[r,c]")

/* scales.c */
KERNEL(scales_restore, "~F[n,m] F[r] F[c] int float &F[r,c]")

/* codebooks.c */
KERNEL(codebook_look_up, "~R[n] int ~W[k] &W[n]")
KERNEL(palette_mark, "W[n] &u8[k]")
KERNEL(palette_number, "W[n] &W[k] &u16[n]")
KERNEL(codebook_histogram, "u32[n] int &i64[b] &i64[b]")
KERNEL(codebook_assign, "W[n] int i32[b] u64[k] int &R[n]")
KERNEL(codebook_lloyd, "f64[b] i64[b] int &f64[k] &f64[k] &f64[1]")
KERNEL(codebook_cut, "f64[m] f64[m] &f64[k]")

/* stochastic.c */
KERNEL(stochastic_round, "F[r,c] int F[g] int uint uint &i8[r,c]")
KERNEL(stochastic_find_draws, "uint uint count uint &i64[m] &u64[m]")

/* linear.c */
KERNEL(linear_multiply, "F[m,r] F[r,n] &F[m,n]")
KERNEL(linear_nearest, "F[n,w] F[w,k] &W[n]")
KERNEL(linear_orthonormalize, "&f64[n] f64[r,n] float")

/* errors.c */
KERNEL(errors_sum, "F[n] F[n] &f64[7]")
KERNEL(errors_by_row, "F[n] F[n] int int &f64[r,2]")
KERNEL(halves_round, "u32[n] &u16[n]")

/* selection.c */
KERNEL(selection_smallest_key, "W[n] int int")
KERNEL(selection_count_keys, "W[n] int uint &i64[2]")
KERNEL(selection_mark_keys, "W[n] int uint int int &u8[n]")
KERNEL(selection_take, "W[n] u8[n] &W[m]")
KERNEL(selection_scatter, "~W[m] ~u8[n] &W[n]")
KERNEL(selection_add_squares, "F[r,c] int int int &f64[b,w]")
KERNEL(selection_group_masks, "W[r,c] int int int &S[r,g]")
KERNEL(selection_spread_masks, "~S[r,g] int int &u8[r,c]")
KERNEL(selection_draw_limit, "uint uint count int &u64[1]")
KERNEL(selection_count_draws, "uint uint count uint")
KERNEL(selection_mark_draws, "uint uint uint &u8[n]")

/* gaps.c */
KERNEL(gaps_measure, "w64[k] &u8[172]")
KERNEL(gaps_encode, "w64[k] u8[172] &u8[m]")
KERNEL(gaps_decode_mask, "~u8[c] ~u8[m] ~int int &u8[n]")
KERNEL(gaps_decode_positions, "~u8[c] ~u8[m] uint &w64[k]")

/* sparse.c */
KERNEL(runlength_write_lengths, "i64[r] &u8[m]")
KERNEL(runlength_expand, "~W[r] ~u8[m] &W[n]")
KERNEL(sparse_is_grouped, "W[r,c] uint int int")
KERNEL(zeros_strip_signs, "W[n] &u8[m] &W[n]")
KERNEL(zeros_put_signs, "~W[n] ~u8[m] &W[n]")

/* scores.c */
KERNEL(scores_count_digits, "W[n] uint int &i64[65536]")
KERNEL(scores_count_below, "W[n] uint &i64[2]")
KERNEL(scores_find_equal, "W[n] uint int")
KERNEL(scores_mark_above, "W[n] uint int &u8[n]")
KERNEL(scores_mark_rows, "W[r,c] i64[r] &u8[r,c]")
KERNEL(scores_mark_groups, "W[g,m] int &u8[g,m]")
KERNEL(scores_draw_numbers, "uint uint &f64[n]")

/* survey.c */
KERNEL(survey_look, "W[n] &i64[2]")
KERNEL(survey_count, "W[n] uint int int")
KERNEL(survey_all_equal, "W[n]")
KERNEL(survey_column_variance, "W[r,c] &f64[1]")

/* gradients.c */
KERNEL(gradients_accumulate, "F[n] float F[n] float &F[n]")
KERNEL(gradients_scatter_add, "~i64[k] ~F[k] float &F[n]")
KERNEL(gradients_find_above, "W[n] uint &i64[m]")
KERNEL(gradients_is_finite, "W[n] uint")
