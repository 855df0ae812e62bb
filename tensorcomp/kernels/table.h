/* Every kernel: its name and the arguments it takes, which module.c checks before the kernel runs.
   u8 … u64, i8 … i64, f32, f64: the elements of an array; W, R, S: integers of any width, the same letter
   the same width; F: f32 or f64. In brackets the shape: numbers, or letters that stand for the same length
   wherever they occur; [*] is any shape. & is written to; ? may be None. int, uint, float: numbers. */

/* bit_planes.c */
/* huffman.c */
/* groupfloats.c */
/* floats.c */
/* ans.c */
/* trellis.c */
/* quantizers.c */
/* selection.c */
KERNEL(selection_smallest_key, "W[n] int int")
KERNEL(selection_count_keys, "W[n] int uint &i64[2]")
KERNEL(selection_mark_keys, "W[n] int uint int int &u8[n]")
KERNEL(selection_take, "W[n] u8[n] &W[m]")
KERNEL(selection_scatter, "W[m] u8[n] &W[n]")
KERNEL(selection_add_squares, "F[r,c] int int int &f64[b,w]")
KERNEL(selection_group_masks, "W[r,c] int int int &S[r,g]")
KERNEL(selection_spread_masks, "S[r,g] int int &u8[r,c]")
KERNEL(selection_draw_limit, "uint uint int int &u64[1]")
KERNEL(selection_count_draws, "uint uint int uint")
KERNEL(selection_mark_draws, "uint uint uint &u8[n]")
/* gaps.c */
KERNEL(gaps_measure, "w64[k] &u8[172]")
KERNEL(gaps_encode, "w64[k] u8[172] &u8[m]")
KERNEL(gaps_decode_mask, "u8[c] u8[m] int int &u8[n]")
KERNEL(gaps_decode_positions, "u8[c] u8[m] uint &w64[k]")
/* sparse.c */
KERNEL(runlength_write_lengths, "i64[r] &u8[m]")
KERNEL(runlength_expand, "W[r] u8[m] &W[n]")
KERNEL(sparse_is_grouped, "W[r,c] uint int int")
KERNEL(zeros_strip_signs, "W[n] &u8[m] &W[n]")
KERNEL(zeros_put_signs, "W[n] u8[m] &W[n]")
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
KERNEL(gradients_scatter_add, "i64[k] F[k] float &F[n]")
KERNEL(gradients_find_above, "W[n] uint &i64[m]")
KERNEL(gradients_is_finite, "W[n] uint")
