"""Kernels in C. Arrays are contiguous; table.h has the type and shape of each argument."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

cpu_level: int
"""Which level of the processor's instructions is used: 1; of x86-64 also 3 (v3) or 4 (v4)."""

# difference.c

def difference_encode(
    reference: Array,
    words: Array,
    mantissa: int,
    rest: int,
    levels: int,
    states: int,
    log2: Array,
    out: Array,
    /,
) -> int:
    """Code words (R, C) given their predictions; return the bytes, 0 if `out` is too short.

    mantissa: bits of a float's mantissa; rest: all its bits but the sign, 0 of integers. levels:
    whether rows have some. log2: of 0 … 2**states, in 2**-20.
    """

def difference_decode(
    data: Array, reference: Array, mantissa: int, rest: int, levels: int, words: Array, /
) -> int:
    """Set words (R, C) from what `difference_encode` gave; 0, or a negative number if damaged."""

# uniform.c

def uniform_encode(
    values: Array, inverse: float, stride: int, codes: Array, centroids: Array, /
) -> int:
    """Set codes (n,) int16 to values × inverse in their own type, rounded, ties to even.

    Of each `stride` elements the first 64 are looked at for the centroids (8,) int8: how far the
    means of cells ±1, ±2, … lie below them in magnitude, in 1/256 cell (0: none is). Return how
    many centroids there are without zeros at the end, or -1 if a code is not within ±32,767.
    """

def uniform_values(
    lowest: int, parts: int, step: float, centroids: Array, limit: float, out: Array, /
) -> int:
    """Set out (n,) to the points from `lowest` on times step / parts, clipped to ±limit.

    centroids (M,) int8: how far the values of points ±1, ±2, … lie below them in magnitude, in
    1/256 step.
    """

def uniform_confine(values: Array, lowest: int, table: Array, half: float, codes: Array, /) -> int:
    """Move codes to a neighbour where their value is farther than `half` away.

    table, float64, has the value of each code from `lowest` on, one more at either end than codes
    need. Return whether every value is within reach.
    """

# grid.c

def grid_find_steps(
    values: Array, limit: float, mantissa: int, lowest: int, steps: Array, codes: Array, /
) -> int:
    """Set steps (R,) and codes (R, C) int32 of runs of floats, with value = code × step.

    The products are rounded to a format of `mantissa` bits whose smallest normal is 2**lowest. A
    run of zeros gets the step of its neighbour. Return whether each run has codes within ±limit;
    one that holds NaN or infinity has none.
    """

def grid_restore(codes: Array, steps: Array, mantissa: int, lowest: int, out: Array, /) -> int:
    """Set out (R, C) to codes (R, C), int8 or int16, × steps (R,), rounded to a format.

    Where a step is negative, code -1 is -0.0, and lower ones stand for an integer one higher.
    """

# ggml.c: a table (k, 7) int64 of runs of bytes and of elements: start, length, shift, bits, target,
# step, up

def ggml_split(blocks: Array, table: Array, elements: Array, /) -> int:
    """Set elements (N, E) uint8 to bits of blocks (N, B) uint8.

    Of each byte of a run, ``bits`` bits from ``shift`` on are joined to the elements from
    ``target`` on, ``step`` apart, ``up`` bits up.
    """

def ggml_join(elements: Array, table: Array, blocks: Array, /) -> int:
    """Undo `ggml_split`: join the elements' bits to blocks."""

# groups.c: values (R, C); groups are runs of `length` within each row, the last one maybe shorter,
# numbered row by row; what groups have has shape (G,)

def groups_greatest(values: Array, length: int, out: Array, /) -> int:
    """Set `out` to the greatest magnitude in each group of finite values."""

def groups_extremes(values: Array, length: int, least: Array, most: Array, /) -> int:
    """Set least and most to the smallest and the largest value of each group."""

def groups_mean_above(values: Array, length: int, floors: Array, out: Array, /) -> int:
    """Set `out` to the mean magnitude of those above the group's floor; 0 where there are none."""

def groups_signs_above(values: Array, length: int, floors: Array, codes: Array, /) -> int:
    """Set codes (R, C) int8 to the signs of those values whose magnitude is above the floor."""

def groups_normalize(
    values: Array, length: int, scales: Array, offsets: Array, out: Array, /
) -> int:
    """Set out (R, C) to (value - offset) / scale, in doubles; to 0 where the scale is 0."""

def groups_restore(
    codes: Array,
    signed: bool,
    length: int,
    scales: Array,
    offsets: Array,
    limit: float,
    out: Array,
    /,
) -> int:
    """Set out (R, C) to code × scale + offset, in doubles, kept within ±limit.

    codes (R, C): int8 or uint8, which `signed` tells apart, or float32 as uint32.
    """

# scales.c

def scales_restore(
    values: Array, rows: Array, columns: Array, turned: bool, limit: float, out: Array, /
) -> int:
    """Set out (R, C) to value × row × column, each product rounded, kept within ±limit.

    values (R, C), or (C, R) if turned; rows (R,) and columns (C,) are the factors.
    """

# codebooks.c

def codebook_look_up(codes: Array, lowest: int, table: Array, out: Array, /) -> int:
    """Set out[i] = table[codes[i] - lowest], as words; codes beyond the table mean its last.

    codes have one or two bytes, and differences wrap around in them.
    """

def palette_mark(words: Array, present: Array, /) -> int:
    """Set present[word] to 1 for each word of one or two bytes."""

def palette_number(words: Array, found: Array, codes: Array, /) -> int:
    """Give each distinct word of 4 or 8 bytes a number, in the order in which they occur.

    Sets codes (n,) uint16, and found[number] to the word. Return how many there are, or -1 if they
    are more than `found` has room for (or were made to collide).
    """

def codebook_histogram(words: Array, shift: int, counts: Array, sums: Array, /) -> int:
    """Count keys of singles, given as bits, by the bits above `shift`; add up the bits below.

    counts, sums (2**(32 - shift),) int64, zeros at first. A key is an unsigned integer: greater
    keys are greater floats.
    """

def codebook_assign(
    words: Array, shift: int, starts: Array, thresholds: Array, probes: int, codes: Array, /
) -> int:
    """Set codes (n,) to the number of thresholds below each float, given as its bits.

    starts (bins + 1,): how many thresholds lie in bins below, a bin being a key's bits above
    `shift`; thresholds (K + 1,) uint64: keys, ascending, the last beyond every key. A bin holds
    less than 2**probes thresholds.
    """

def codebook_lloyd(
    points: Array, counts: Array, passes: int, centers: Array, masses: Array, error: Array, /
) -> int:
    """Improve centers (K,), ascending, for points (B,), ascending, until it gains little.

    Sets masses (K,) to how many points were nearest to each before the last pass, and error (1,)
    to the sum of their squared distances.
    """

def codebook_cut(points: Array, masses: Array, centers: Array, /) -> int:
    """Set centers (K,) to the means of the K runs of points (M,), ascending, of least error."""

# stochastic.c

def stochastic_round(
    values: Array, length: int, scales: Array, top: int, key: int, start: int, codes: Array, /
) -> int:
    """Set codes (R, C) int8 to value / scale of the group, rounded at random to ±top.

    Groups are those of `groups_greatest`. An element is rounded up with a probability that equals
    its fraction; it draws the number of its index, in row-major order, plus `start`. A scale of 0
    gives codes of 0.
    """

def stochastic_find_draws(
    key: int, first: int, n: int, limit: int, positions: Array, numbers: Array, /
) -> int:
    """Write the i below n of which `first` + i draws at most `limit`, and the numbers drawn.

    positions (m,) int64, numbers (m,) uint64. Return how many there are, or -1 if there is no room
    left for another block of 256.
    """

# linear.c

def linear_multiply(left: Array, right: Array, out: Array, /) -> int:
    """Set out (m, n) to left (m, r) × right (r, n); terms are added from the first to the last."""

def linear_nearest(vectors: Array, columns: Array, codes: Array, /) -> int:
    """Set codes (N,) to the place of the nearest of K vectors to each of `vectors` (N, W).

    columns (W, K): the K vectors, one a column. Of several the first is taken.
    """

def linear_orthonormalize(vector: Array, others: Array, least: float, /) -> int:
    """Make a vector (n,) orthonormal to others (r, n), which are so themselves.

    All float64, by Gram and Schmidt, twice; terms are added from the first to the last.
    Return whether the others leave a part of more than `least`.
    """

# errors.c

def errors_sum(x: Array, y: Array, out: Array, /) -> int:
    """Set out (7,) float64 to Σ|x-y|, Σ(x-y)², Σx², Σy², Σxy, max |x-y| and max |x|.

    All elements are finite; sums that are not tell that they were not, or that squares overflow.
    """

def errors_by_row(x: Array, y: Array, first: int, columns: int, sums: Array, /) -> int:
    """Add Σ(x-y)² and Σx² of each row to `sums` (rows, 2) float64.

    x, y (n,): elements of rows of `columns`, of which the first is number `first`.
    """

def halves_round(words: Array, out: Array, /) -> int:
    """Round float32s (n,), given as uint32, to float16s as uint16, ties to even."""

# selection.c

def selection_smallest_key(words: Array, bits: int, k: int, /) -> int:
    """Return the k-th smallest (from 1) of the keys of words (n,), their low `bits` (< 64)."""

def selection_count_keys(words: Array, bits: int, limit: int, counts: Array, /) -> int:
    """Set counts (2,) int64 to how many keys of words (n,) are above `limit`, and equal it."""

def selection_mark_keys(
    words: Array, bits: int, limit: int, first: int, last: int, mask: Array, /
) -> int:
    """Set mask (n,), bool, to where the key is above `limit`.

    Of the keys that equal it, those from number `first` up to `last` are marked too.
    """

def selection_take(words: Array, mask: Array, values: Array, /) -> int:
    """Copy words[i] where mask[i] is 1 to values, which has one place to spare."""

def selection_scatter(values: Array, mask: Array, out: Array, /) -> int:
    """Set out[i] to the next of values (at least one) where mask[i] is 1, to 0 where it is 0.

    Values beyond the last are the last again.
    """

def selection_add_squares(rows: Array, first: int, height: int, width: int, sums: Array, /) -> int:
    """Add the squares of rows (R, C) to the sums of their blocks (B, W), float64, row by row.

    The rows are those from `first` on of a matrix cut into blocks of height × width; blocks at its
    right and lower edges may be smaller.
    """

def selection_group_masks(words: Array, bits: int, keep: int, group: int, masks: Array, /) -> int:
    """Set masks (R, G), of 8 or 16 bits, to the bits of the `keep` largest keys of each group.

    words (R, C); the last group of a row may be shorter; of equal keys the first ones are kept.
    """

def selection_spread_masks(masks: Array, keep: int, group: int, mask: Array, /) -> int:
    """Set mask (R, C), bool, from the bits of each group (R, G).

    Returns whether each group has as many bits as it keeps, and none beyond its end.
    """

def selection_draw_limit(seed: int, start: int, n: int, k: int, limit: Array, /) -> int:
    """Set limit (1,) uint64 to the k-th smallest (from 1) of the numbers that n indices draw."""

def selection_count_draws(seed: int, start: int, n: int, limit: int, /) -> int:
    """Return how many of the numbers drawn for n indices from `start` on are at most `limit`."""

def selection_mark_draws(seed: int, start: int, limit: int, mask: Array, /) -> int:
    """Set mask[i], bool, to whether the number drawn for `start` + i is at most `limit`."""

# gaps.c

def gaps_measure(positions: Array, lengths: Array, /) -> int:
    """Set lengths (172,) uint8 to those of the codes of the gaps of ascending positions (k,).

    Returns the bits that all gaps take, -1 if one has more than 44 bits.
    """

def gaps_encode(positions: Array, lengths: Array, out: Array, /) -> int:
    """Write the gaps of positions (k,), uint64 or int64, to `out`, with 8 bytes of room behind."""

def gaps_decode_mask(lengths: Array, stream: Array, count: int, value: int, mask: Array, /) -> int:
    """Set `count` elements of mask (n,), bool, to `value`; return the bits read.

    The stream has 8 bytes of padding. Returns -1 if an index is beyond the mask, -2 if the code
    lengths make no prefix code.
    """

def gaps_decode_positions(lengths: Array, stream: Array, most: int, positions: Array, /) -> int:
    """Set positions (k,), uint64 or int64, of at most `most`; return as `gaps_decode_mask`."""

# sparse.c

def runlength_write_lengths(lengths: Array, out: Array, /) -> int:
    """Write lengths (r,) int64 in bytes of seven bits, low ones first; return the bytes used.

    All bytes of a length but the last have their top bit set. A length takes at most 9 bytes, and
    at most as many as it counts.
    """

def runlength_expand(values: Array, data: Array, out: Array, /) -> int:
    """Repeat each of values (r,) into `out` (n,) as often as `data`, uint8, says.

    Returns whether the lengths are as many as the values and fill `out` exactly.
    """

def sparse_is_grouped(words: Array, kept: int, keep: int, group: int, /) -> int:
    """Return whether no group of neighbours in a row of words (R, C) has more than `keep` set.

    A word is set if any of its bits is that `kept` has.
    """

def zeros_strip_signs(words: Array, signs: Array, out: Array, /) -> int:
    """Copy words (n,) to `out`, those that are zero but for the highest bit as 0.

    The bits that they lose go to signs, bool, which has a place more than there are.
    """

def zeros_put_signs(words: Array, signs: Array, out: Array, /) -> int:
    """Copy words (n,) to `out`; the next of signs, bool, is the highest bit of each zero.

    At least one sign; signs beyond the last are the last again.
    """

# scores.c: words of float32 or float64, whose keys are in the order of the scores

def scores_count_digits(words: Array, found: int, shift: int, counts: Array, /) -> int:
    """Add to counts (65,536,) int64 the digits at `shift` of keys whose higher ones are `found`.

    Returns whether there is a NaN.
    """

def scores_count_below(words: Array, limit: int, counts: Array, /) -> int:
    """Set counts (2,) int64 to how many keys of words (n,) are below `limit`, and equal it."""

def scores_find_equal(words: Array, limit: int, number: int, /) -> int:
    """Return the index of the key that equals `limit` for the given number of times (from 1)."""

def scores_mark_above(words: Array, limit: int, first: int, mask: Array, /) -> int:
    """Set mask (n,), bool, to where the key is above `limit`, or equals it from `first` on."""

def scores_mark_rows(words: Array, drop: Array, mask: Array, /) -> int:
    """Set mask (R, C), bool, to all but the drop[r] lowest keys of each row.

    words is (R, C), drop (R,) int64 from 0 to C. Of equal keys the first are dropped.
    """

def scores_mark_groups(words: Array, keep: int, mask: Array, /) -> int:
    """Set mask (G, m), bool, to the `keep` highest keys of each group, of equal ones the last.

    words is (G, m). Each key is compared with all others: for groups of some ten.
    """

def scores_draw_numbers(seed: int, start: int, numbers: Array, /) -> int:
    """Fill numbers (n,) float64 with what is drawn from [0, 1) for indices from `start` on."""

# survey.c

def survey_look(words: Array, found: Array, /) -> int:
    """Set found (2,) int64 to the number of zeros and of distinct words in a thousand of (n,).

    n is 1,024 at least; looked at are 16 runs of 64, spread over the words.
    """

def survey_count(words: Array, word: int, runs: int, length: int, /) -> int:
    """Return how often one word occurs in so many runs of words (n,), spread evenly."""

def survey_all_equal(words: Array, /) -> int:
    """Return whether all words (n,), at least one, are equal."""

def survey_column_variance(words: Array, variance: Array, /) -> int:
    """Set variance (1,) to that of log2 between columns over that within columns of words (R, C).

    Some rows and columns of the floats are looked at, and zeros are left out. What rows have in
    common is taken away first, and of the variance between columns what so few rows give by chance.
    """

# ans.c

def ans_encode(
    words: Array,
    matrix: Array,
    folded: bool,
    has_signs: bool,
    contexts: int,
    states: int,
    machine: int,
    width: int,
    column_levels: Array | None,
    log2: Array,
    low_bits: int,
    side: Array,
    streams: Array,
    sizes: Array,
    /,
) -> int:
    """Write side information and four streams of bits, and set sizes (2,) to the bytes of each.

    words (R, C) uint8 or uint16: of signed integers if folded, whose symbols then are 0, 1, 2, 3 …
    for 0, -1, 1, -2 …. With `contexts` above 1, levels of rows and columns are those of the matrix
    (R, C), as in `contexts_find`; the columns' may be given, with their width. With a machine of so
    many states (0: none), the upper half of the contexts is that of quantizer 1. Frequencies are
    those that cost least; log2 (2**states + 1,) int32: of 0 … 2**states in 2**-20 bit. side: the
    sections of `codecs.ans` and 8 bytes more; streams: 4 × ((n // 4 + 1) × states // 8 + 9) bytes.
    """

def ans_decode(
    stream: Array,
    heads: Array,
    packed: bytes,
    symbols: Array,
    contexts: int,
    states: int,
    folded: bool,
    row_levels: Array | None,
    column_levels: Array | None,
    value_of: Array | None,
    machine: int,
    escape: int,
    escaped: Array,
    out: Array,
    /,
) -> int:
    """Decode (n,) uint8 or uint16; return how often `escape` came, or -1 if the table is damaged.

    heads (8,) int64 are the streams' first bits and states, and then those reached. packed: the
    frequencies of the symbols (A,) uint16, with 8 bytes to spare. value_of (31,) uint16 is context
    << states of the sum of two levels. machine, folded: as in `ans_encode`. escaped (E,) like
    `out`: the values that take the place of `escape`.
    """

def ans_unpack_escaped(packed: bytes, width: int, folded: bool, values: Array, /) -> int:
    """Read values of `width` bits, one behind the other; `packed` has 8 bytes to spare."""

# trellis.c

def trellis_encode(
    values: Array, scale: float, states: int, every: int, codes: Array, centroids: Array, /
) -> int:
    """Set codes (m,) int16 to those of least squared error of values (n,) float32 or float64.

    scale is 32,768 / step; states those of the machine; m is n rounded up to a multiple of 64. Of
    each `every` rows of 64 elements one is looked at for the centroids (16,) int8 (0: none is).
    Returns how many centroids there are without zeros at the end, or -1 if an element is NaN or
    has more than 32,766 steps.
    """

def trellis_continue(
    values: Array, scale: float, states: int, machines: Array, codes: Array, points: Array, /
) -> int:
    """Set codes (k,) int16 of the first k of values (n,), which go on from the machines' states.

    machines (64,) uint8 has the states of those that the first 64 values drive; it becomes that of
    value k and those behind it. The values from k on count for the choice of codes only. points
    (k,) int32 are what the codes stand for, in half steps. scale and states as for
    `trellis_encode`. Returns 0 if a value is NaN or has more than 32,766 steps, else 1.
    """

def trellis_decode(codes: Array, states: int, lowest: int, table: Array, out: Array, /) -> int:
    """Set out[i] = table[2 codes[i] - quantizer of i - lowest], or the end that is nearest."""

# bitpack.c

def bitpack_pack(
    words: Array, told_apart: bool, spans: Array, planes: Array, sizes: Array, /
) -> int:
    """Pack `words` (R, C): rows by spans of their own where they may be told apart and that pays.

    spans (R, 2) are set to each row's (shift, width), or its first row to that of all. planes has
    room for the words and 16 bytes. Sizes are set to (rows of spans, bytes of planes).
    """

def bitpack_unpack(planes: Array, spans: Array, words: Array, /) -> int:
    """Undo `bitpack_pack` into `words` (R, C) with `spans` (1 or R, 2).

    Returns how many bytes the planes should have: words are only set if they do. Returns -1 if a
    span has more bits than a word.
    """

def bitpack_flat_bytes(size: int, width: int, /) -> int:
    """Return the bytes of so many words packed with one width."""

def bitpack_pack_low(values: Array, width: int, planes: Array, /) -> int:
    """Pack the low bits, at most 8, of `values` (n,) uint8; planes has `bitpack_flat_bytes`."""

def sum_magnitudes(values: Array, /) -> int:
    """Return the sum of the magnitudes of signed integers (n,)."""

# contexts.c

def contexts_find(
    matrix: Array,
    has_signs: bool,
    width: int,
    contexts: int,
    row_levels: Array,
    column_levels: Array,
    context_of: Array | None,
    /,
) -> int:
    """Set the levels of rows and columns of a matrix (R, C), and return the width of a level.

    matrix has elements of 1 or 2 bytes; those that have signs get levels by log2 of the mean
    magnitude, others by their mean. With a `width` above 0, it and the columns' levels are given.
    context_of (31,) uint8 is set to which of so many contexts each sum of two levels has.
    """

# huffman.c

def huffman_encode(
    symbols: Array,
    row_levels: Array | None,
    column_levels: Array | None,
    context_of: Array | None,
    bits: int,
    contexts: int,
    level_bits: int,
    lengths: Array,
    alphabet: Array,
    numbers: Array,
    streams: Array,
    /,
) -> int:
    """Encode symbols (R, C) below 2**bits in the number of contexts that costs least.

    Symbols have 1 or 2 bytes, those of 1 have 8 bits; levels of rows and columns below 16, uint8,
    and the context of each sum of two, (31,) uint8, or None for a single context; level_bits is
    what more than one context needs besides. Set are code lengths (K, A) uint8 and symbols (A,)
    uint16, each at the front of its array, and numbers (11,) int64: K, A, the longest code allowed,
    the bits of each of eight streams. K is 0 if there are too many symbols. Returns the bytes of
    the streams, each from a whole byte on. They have room for eight times
    (n // 8 + 1) * 14 // 8 + 9 bytes.
    """

def huffman_decode(
    stream: Array,
    positions: Array,
    lengths: Array,
    longest: int,
    alphabet: Array,
    row_levels: Array | None,
    column_levels: Array | None,
    context_of: Array | None,
    out: Array,
    /,
) -> int:
    """Decode symbols (R, C) of 1 or 2 bytes; lengths (K, A), alphabet and levels as encoded.

    positions (8,) int64 are the bits where streams start, and are moved to where they end; stream
    has 8 bytes behind the last code. Returns 0, or -2 if the lengths make no prefix code.
    """

# groupfloats.c

def groupfloats_encode(
    words: Array,
    mantissa: int,
    mantissa_bits: int,
    groups: int,
    by_columns: bool,
    told_apart: bool,
    out: Array,
    sizes: Array,
    /,
) -> int:
    """Encode `words` (R, C) of floats with so many bits of mantissa, of which some are coded.

    groups is how many there may be, of rows or of columns: 1, 2, 4 or 8. Rows may be told apart by
    the bits that they use. out takes the coded symbols at its beginning and the planes at its end;
    sizes are set to the bytes of both, (0, …) where coding saves nothing. out has the bytes of the
    words, 17 a row, 1 a column, and 32,768 besides.
    """

def groupfloats_decode(data: Array, mantissa: int, by_columns: bool, words: Array, /) -> int:
    """Decode at least 8 bytes into `words` (R, C); return 0, or what is wrong (`float_side`)."""

# floats.c

def floats_encode(
    words: Array,
    low: int,
    mask: int,
    told_apart: bool,
    contexts: int,
    width: int,
    column_levels: Array | None,
    out: Array,
    /,
) -> int:
    """Encode floats (R, C) as unsigned words, cut at bit `low` as by `fields_split`.

    Rows may be told apart by the bits they use if asked for; contexts, a power of two, is how many
    there may be. width and column_levels (C,) uint8 are what chunks share, or 0 and None. Returns
    the bytes, or 0 if that takes more than the words do, or symbols are too many for a code.
    """

def floats_decode(data: Array, low: int, column_levels: Array | None, words: Array, /) -> int:
    """Undo `floats_encode` from at least 8 bytes; return 0 or what is wrong with them.

    -1: the side information; -2: the code lengths; -3: the size; -4: where a stream ends.
    """

def fields_split(words: Array, low: int, mask: int, symbols: Array, rest: Array, /) -> int:
    """Cut each word, sign on top, at bit `low`.

    words (n,) unsigned; symbols = words >> low & mask, of 1 or 2 bytes; rest = the `low` bits below
    with the word's top bit above them, of as many bytes as words, or 1 where these have 2.
    """

def fields_merge(symbols: Array, rest: Array, low: int, words: Array, /) -> int:
    """Undo `fields_split`; bits beyond the fields' widths are dropped."""

# gradients.c

def gradients_accumulate(
    gradient: Array, scale: float, residual: Array, decay: float, out: Array, /
) -> int:
    """Set `out` (n,) to gradient × scale + residual × decay; it may be one of them."""

def gradients_scatter_add(positions: Array, values: Array, factor: float, out: Array, /) -> int:
    """Add values (k,) × factor to `out` (n,) at positions (k,) int64 below n."""

def gradients_find_above(words: Array, limit: int, positions: Array, /) -> int:
    """Write the indices of floats' words (n,) whose magnitude is at least `limit` to positions.

    positions (m,) int64. Returns how many there are, -1 if there is no room left for another 32.
    """

def gradients_is_finite(words: Array, exponent: int, /) -> int:
    """Return whether no word (n,) has all bits of `exponent` set: infinity and NaN do."""
