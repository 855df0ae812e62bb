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
/* uniform.c */
KERNEL(uniform_quantize, "F[n] float &i16[n]")
KERNEL(uniform_sum_residuals, "F[n] float i16[n] int &i64[m] &i64[m]")
KERNEL(uniform_confine, "F[n] int f64[m] float &i16[n]")
/* grid.c */
KERNEL(grid_find_steps, "F[r,c] f64[r] f64[r] float int int &f64[r] &i32[r,c]")
KERNEL(grid_restore, "W[r,c] f64[r] int int &F[r,c]")
/* groups.c */
KERNEL(groups_greatest, "F[r,c] int &F[g]")
KERNEL(groups_extremes, "F[r,c] int &F[g] &F[g]")
KERNEL(groups_mean_above, "F[r,c] int F[g] &F[g]")
KERNEL(groups_signs_above, "F[r,c] int F[g] &i8[r,c]")
KERNEL(groups_normalize, "F[r,c] int F[g] F[g] &F[r,c]")
KERNEL(groups_restore, "W[r,c] int int F[g] F[g] float &F[r,c]")
/* codebooks.c */
KERNEL(codebook_look_up, "R[n] int W[k] &W[n]")
KERNEL(palette_mark, "W[n] &u8[k]")
KERNEL(palette_number, "W[n] &W[k] &u16[n]")
KERNEL(codebook_histogram, "u32[n] int &i64[b] &i64[b]")
KERNEL(codebook_assign, "W[n] int i32[b] u64[k] int &R[n]")
KERNEL(codebook_lloyd, "f64[b] i64[b] int &f64[k] &f64[k] &f64[1]")
KERNEL(codebook_cut, "f64[m] f64[m] &f64[k]")
/* stochastic.c */
KERNEL(stochastic_round, "F[r,c] int F[g] int uint uint &i8[r,c]")
KERNEL(stochastic_find_draws, "uint uint int uint &i64[m] &u64[m]")
/* linear.c */
KERNEL(linear_multiply, "F[m,r] F[r,n] &F[m,n]")
KERNEL(linear_nearest, "F[n,w] F[w,k] &W[n]")
KERNEL(linear_orthonormalize, "&f64[n] f64[r,n] float")
/* errors.c */
KERNEL(errors_sum, "F[n] F[n] &f64[7]")
KERNEL(halves_round, "u32[n] &u16[n]")
/* sparse.c */
/* gradients.c */
KERNEL(is_finite, "f32[n]")
