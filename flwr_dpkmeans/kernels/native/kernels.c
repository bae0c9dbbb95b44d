/* Statistics over rows, compiled: the same bits as NumPy's.

   Every table is float64, row by row, of whole steps of the grid, 2^-16, as in
   flwr_dpkmeans.kernels. A function that finds a value off the grid, or so large that
   one of its sums might be rounded, returns OUTSIDE, and what it wrote counts for
   nothing: its caller asks NumPy. Inside that domain all sums are of whole numbers
   below 2^53, hence exact in any order, and each other step is one operation that
   IEEE 754 rounds correctly. So no bit depends on the instruction set, the width of
   vectors, fused multiply-add, the number of threads or where blocks are cut.
   -ffast-math would break that.

   This file is compiled once for each instruction set, with VARIANT as the suffix of
   its functions and LANES as the number of floats in a vector. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define JOINED_(name, variant) name##variant
#define JOINED(name, variant) JOINED_(name, variant)
#define EXPORTED(name) __attribute__((visibility("default"))) JOINED(name, VARIANT)
#define INLINE static inline __attribute__((always_inline))

enum { DONE = 0, OUTSIDE = 1, NO_MEMORY = 2 };

/* Steps of the grid in a unit, and a step: products with them are exact. */
#define GRID 0x1p16
#define STEP 0x1p-16
/* As flwr_dpkmeans.kernels.clipping.SHADE. */
#define SHADE (1.0 - 0x1p-30)
/* Of a squared norm, in steps: shorter rows have values that are exact as floats, and
   sums of products of two such rows are exact in float64. */
#define LARGEST_SQUARE 0x1p48


/* ---- vectors ---- */

enum { PAIRS = LANES / 2 };
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t masks __attribute__((vector_size(4 * LANES)));
typedef double doubles __attribute__((vector_size(8 * PAIRS)));
typedef int64_t double_masks __attribute__((vector_size(8 * PAIRS)));
typedef int32_t whole_numbers __attribute__((vector_size(4 * PAIRS)));
typedef float narrow_floats __attribute__((vector_size(4 * PAIRS)));
/* The same, anywhere in a row. */
typedef double doubles_in_row __attribute__((vector_size(8 * PAIRS), aligned(8)));
typedef float floats_in_row __attribute__((vector_size(4 * PAIRS), aligned(4)));

/* A difference from zero is the value itself, -0 too, and costs no instruction. */
INLINE floats all_floats(float value) {
    floats zeros = {0};
    return value - zeros;
}

INLINE doubles all_doubles(double value) {
    doubles zeros = {0};
    return value - zeros;
}

/* The larger and the smaller of two vectors' floats, neither of which is not a number:
   single instructions that compilers do not find by themselves. */
#if defined(__AVX512F__) && LANES == 16
INLINE floats larger(floats a, floats b) {
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
}
INLINE floats smaller(floats a, floats b) {
    return (floats)_mm512_min_ps((__m512)a, (__m512)b);
}
#elif defined(__AVX__) && LANES == 8
INLINE floats larger(floats a, floats b) {
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
}
INLINE floats smaller(floats a, floats b) {
    return (floats)_mm256_min_ps((__m256)a, (__m256)b);
}
#elif defined(__SSE2__) && LANES == 4
INLINE floats larger(floats a, floats b) {
    return (floats)_mm_max_ps((__m128)a, (__m128)b);
}
INLINE floats smaller(floats a, floats b) {
    return (floats)_mm_min_ps((__m128)a, (__m128)b);
}
#elif defined(__ARM_NEON) && LANES == 4
INLINE floats larger(floats a, floats b) {
    return (floats)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}
INLINE floats smaller(floats a, floats b) {
    return (floats)vminq_f32((float32x4_t)a, (float32x4_t)b);
}
#else
INLINE floats chosen(masks where, floats yes, floats no) {
    return (floats)((where & (masks)yes) | (~where & (masks)no));
}
INLINE floats larger(floats a, floats b) { return chosen(a > b, a, b); }
INLINE floats smaller(floats a, floats b) { return chosen(a < b, a, b); }
#endif

/* By pairs of lanes, whose sums wait less for each other. */
INLINE double sum_of(doubles values) {
    typedef double two __attribute__((vector_size(16)));
    two sums = {0};
    for (int pair = 0; pair < PAIRS / 2; pair++) {
        two part;
        memcpy(&part, (const char *)&values + pair * sizeof part, sizeof part);
        sums += part;
    }
    return sums[0] + sums[1];
}

/* Whether any lane is set, and whole numbers toward zero (of values below 2^31 without
   such an instruction; others become another number). */
#if defined(__AVX512DQ__) && LANES == 16
INLINE int any_of(double_masks where) {
    return _mm512_test_epi64_mask((__m512i)where, (__m512i)where) != 0;
}
INLINE doubles toward_zero(doubles values) {
    const int mode = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    return (doubles)_mm512_roundscale_pd((__m512d)values, mode);
}
#elif defined(__AVX__) && LANES == 8
INLINE int any_of(double_masks where) {
    return !_mm256_testz_si256((__m256i)where, (__m256i)where);
}
INLINE doubles toward_zero(doubles values) {
    const int mode = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    return (doubles)_mm256_round_pd((__m256d)values, mode);
}
#else
INLINE int any_of(double_masks where) {
    int64_t any = 0;
    for (int lane = 0; lane < PAIRS; lane++) any |= where[lane];
    return any != 0;
}
#if defined(__aarch64__) && LANES == 4
INLINE doubles toward_zero(doubles values) {
    return (doubles)vrndq_f64((float64x2_t)values);
}
#else
INLINE doubles toward_zero(doubles values) {
    whole_numbers whole = __builtin_convertvector(values, whole_numbers);
    return __builtin_convertvector(whole, doubles);
}
#endif
#endif

/* The nearest whole number, halves to the even one. */
INLINE doubles nearest_whole(doubles values) {
#if defined(__AVX512DQ__) && LANES == 16
    const int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return (doubles)_mm512_roundscale_pd((__m512d)values, mode);
#elif defined(__AVX__) && LANES == 8
    const int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return (doubles)_mm256_round_pd((__m256d)values, mode);
#else
    doubles nearest;
    for (int lane = 0; lane < PAIRS; lane++) nearest[lane] = __builtin_rint(values[lane]);
    return nearest;
#endif
}

INLINE int64_t vectors_of(int64_t d) { return (d + PAIRS - 1) / PAIRS; }

/* Room for n vectors, all zero; null if there is none. */
static doubles *new_vectors(int64_t n) {
    size_t size = (size_t)(n > 0 ? n : 1) * sizeof(doubles);
    size_t of_lines = (size + 63) / 64 * 64;
    doubles *room = aligned_alloc(64, of_lines);
    if (room) memset(room, 0, of_lines);
    return room;
}


/* ---- rows ---- */

typedef struct {
    const double *values; /* (n, d) */
    int64_t n;
    int64_t d;
    double_masks in_last; /* lanes of a row's last vector that belong to it */
} table;

INLINE table table_of(const double *values, int64_t n, int64_t d) {
    table rows = {values, n, d, {0}};
    int64_t first = (vectors_of(d) - 1) * PAIRS;
    for (int lane = 0; lane < PAIRS; lane++)
        rows.in_last[lane] = first + lane < d ? -1 : 0;
    return rows;
}

/* A vector of a row; lanes beyond the row are zero, and nothing beyond the table is
   read. */
INLINE doubles read_vector(const table *rows, int64_t row, int64_t vector, int64_t vectors) {
    const double *at = rows->values + row * rows->d + vector * PAIRS;
    if (vector < vectors - 1) return *(const doubles_in_row *)at;
    if (at + PAIRS <= rows->values + rows->n * rows->d) {
        double_masks bits = (double_masks)*(const doubles_in_row *)at;
        return (doubles)(bits & rows->in_last);
    }
    doubles last = {0};
    for (int lane = 0; lane < PAIRS; lane++)
        if (rows->in_last[lane]) last[lane] = at[lane];
    return last;
}

/* A vector of a row in whole steps; where it is off the grid is added to `off_grid`. */
INLINE doubles read_steps(
    const table *rows, int64_t row, int64_t vector, int64_t vectors,
    double_masks *off_grid) {
    doubles steps = read_vector(rows, row, vector, vectors) * GRID;
    *off_grid |= toward_zero(steps) != steps;
    return steps;
}

/* The squared length of a row's residual from a centre, or from zero if that is null, in
   steps; infinite if a value is off the grid. `residual` may be null, too. */
INLINE double read_residual(
    const table *rows, int64_t row, const doubles *centre, doubles *residual,
    int64_t vectors) {
    double_masks off_grid = {0};
    doubles squares = {0};
    for (int64_t vector = 0; vector < vectors; vector++) {
        doubles difference = read_steps(rows, row, vector, vectors, &off_grid);
        if (centre) difference -= centre[vector];
        if (residual) residual[vector] = difference;
        squares += difference * difference;
    }
    return any_of(off_grid) ? INFINITY : sum_of(squares);
}

/* Few points, such as centroids, in whole steps with padded rows; null if there is no
   memory. The largest squared norm is infinite if a value is off the grid. */
static doubles *read_points(
    const double *values, int64_t n, int64_t d, double *largest_square) {
    int64_t vectors = vectors_of(d);
    table rows = table_of(values, n, d);
    doubles *points = new_vectors(n * vectors);
    if (!points) return NULL;
    double_masks off_grid = {0};
    double largest = 0.0;
    for (int64_t row = 0; row < n; row++) {
        doubles squares = {0};
        for (int64_t vector = 0; vector < vectors; vector++) {
            doubles steps = read_steps(&rows, row, vector, vectors, &off_grid);
            points[row * vectors + vector] = steps;
            squares += steps * steps;
        }
        double square = sum_of(squares);
        largest = square > largest ? square : largest;
    }
    *largest_square = any_of(off_grid) ? INFINITY : largest;
    return points;
}

/* Calls a function with the number of vectors of a row as a constant, if it is small:
   the compiler then leaves a row in registers. */
enum { MOST_IN_REGISTERS = 6 };
#define WITH_CONSTANT_WIDTH(function, vectors, ...)               \
    switch (vectors) {                                            \
        case 1: return function(__VA_ARGS__, 1);                  \
        case 2: return function(__VA_ARGS__, 2);                  \
        case 3: return function(__VA_ARGS__, 3);                  \
        case 4: return function(__VA_ARGS__, 4);                  \
        case 5: return function(__VA_ARGS__, 5);                  \
        case 6: return function(__VA_ARGS__, 6);                  \
        default: return function(__VA_ARGS__, vectors);           \
    }


/* ---- rows in the box ---- */

/* Farther from a half than this, in steps, a quotient that is computed as a product
   with the inverse rounds to the same whole number as one that is divided: they differ
   by less than 2^-50 of at most 2^21 steps. Zeros have no sign. */
#define NEAR_A_HALF 0x1p-28

/* Rows in the units of the box: Bounds.scale and round_to_grid. `step` is a column's
   width over twice `half`, the number of steps in a unit, and `inverse` one over it. */
void EXPORTED(scale_rows)(
    const double *restrict rows, int64_t n, int64_t d, const double *restrict lower,
    const double *restrict upper, const double *restrict step,
    const double *restrict inverse, double half, double *restrict scaled) {
    double unit = 1.0 / half;
    for (int64_t row = 0; row < n; row++) {
        const double *from = rows + row * d;
        double *to = scaled + row * d;
        int64_t doubtful = half > 0x1p20;
        for (int64_t column = 0; column < d; column++) {
            double value = from[column];
            value = value < lower[column] ? lower[column] : value;
            value = value > upper[column] ? upper[column] : value;
            double steps = (value - lower[column]) * inverse[column] - half;
            double rounded = __builtin_rint(steps);
            double from_half = __builtin_fabs(__builtin_fabs(steps - rounded) - 0.5);
            doubtful |= !(from_half > NEAR_A_HALF);
            to[column] = rounded * unit + 0.0;
        }
        if (!doubtful) continue;
        for (int64_t column = 0; column < d; column++) {
            double value = from[column];
            value = value < lower[column] ? lower[column] : value;
            value = value > upper[column] ? upper[column] : value;
            double steps = (value - lower[column]) / step[column] - half;
            to[column] = __builtin_rint(steps) * unit + 0.0;
        }
    }
}


/* ---- nearest centroids ---- */

/* Rows are scored in tiles, and their columns in parts that the first-level cache
   holds. */
enum { VECTORS = 4, TILE = VECTORS * LANES, COLUMNS_AT_ONCE = 128 };

/* Centroids as their scores need them. */
typedef struct {
    doubles *steps;   /* (k, vectors) */
    float *floats;    /* (k_even, d), the same values */
    float *offsets;   /* (k_even,), minus half their squared norms */
    int64_t k;
    int64_t k_even;   /* k, or one more, that is never the nearest */
    double largest;   /* norm */
} centroid_scores;

static void free_centroids(centroid_scores *centroids) {
    free(centroids->steps);
    free(centroids->floats);
    free(centroids->offsets);
}

static int read_centroids(
    const double *values, int64_t k, int64_t d, centroid_scores *centroids) {
    int64_t vectors = vectors_of(d);
    int64_t k_even = k + (k & 1);
    double largest_square = 0.0;
    centroids->k = k;
    centroids->k_even = k_even;
    centroids->steps = read_points(values, k, d, &largest_square);
    centroids->floats = calloc((size_t)(k_even * d + 1), sizeof(float));
    centroids->offsets = malloc((size_t)k_even * sizeof(float));
    if (!centroids->steps || !centroids->floats || !centroids->offsets) return NO_MEMORY;
    if (!(largest_square <= LARGEST_SQUARE)) return OUTSIDE;
    for (int64_t centroid = 0; centroid < k; centroid++) {
        const double *steps = (const double *)(centroids->steps + centroid * vectors);
        double square = 0.0;
        for (int64_t column = 0; column < d; column++) {
            centroids->floats[centroid * d + column] = (float)steps[column];
            square += steps[column] * steps[column];
        }
        centroids->offsets[centroid] = (float)(-0.5 * square);
    }
    if (k_even > k) centroids->offsets[k] = -INFINITY;
    centroids->largest = sqrt(largest_square);
    return DONE;
}

/* The largest difference of two float scores that does not decide.

   A score is s = x.c - |c|^2 / 2 of d columns. For any order of its d products and
   d + 1 additions, fused or not, and with |c|^2 / 2 rounded once,
       |float(s) - s| <= gamma (|x| |c| + |c|^2 / 2),  gamma = m u / (1 - m u),
   m = d + 2, u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms,
   section 3.1, with Cauchy and Schwarz for sum |x_i c_i| <= |x| |c|). Nothing
   underflows, as all values are whole, and nothing overflows below 2^49. So a centroid
   whose float score is more than twice that above all others' is the nearest one. One
   per cent covers the roundings of this computation and of the difference. */
INLINE double undecided_below(double row_norm, double centroid_norm, int64_t d) {
    double terms = ((double)d + 2.0) * 0x1p-24;
    double gamma = terms / (1.0 - terms);
    double reach = row_norm * centroid_norm + 0.5 * centroid_norm * centroid_norm;
    return 2.0 * gamma * reach * 1.01;
}

/* Best and second best scores of a tile's rows, and which centroid is best. */
typedef struct {
    floats best[VECTORS];
    floats second[VECTORS];
    masks nearest[VECTORS];
} ranking;

INLINE void rank(ranking *ranks, int vector, floats score, int32_t centroid) {
    floats best = ranks->best[vector];
    floats second = ranks->second[vector];
    masks is_better = score > best;
    ranks->best[vector] = larger(score, best);
    ranks->second[vector] = larger(second, smaller(score, best));
    masks index = {0};
    index += centroid;
    masks nearest = ranks->nearest[vector];
    ranks->nearest[vector] = (is_better & index) | (~is_better & nearest);
}

/* Reads a vector once for two products: compilers would read it for each. */
#if defined(__x86_64__)
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#elif defined(__aarch64__)
#define IN_REGISTER(vector) __asm__("" : "+w"(vector))
#else
#define IN_REGISTER(vector)
#endif

/* Adds the products of some columns to the scores of two centroids. */
INLINE void add_products(
    const floats *restrict columns, int64_t n_columns, const float *restrict first,
    const float *restrict second, floats *restrict scores) {
    floats a0 = scores[0], a1 = scores[1], a2 = scores[2], a3 = scores[3];
    floats b0 = scores[4], b1 = scores[5], b2 = scores[6], b3 = scores[7];
    for (int64_t column = 0; column < n_columns; column++) {
        const floats *rows = columns + column * VECTORS;
        floats p = all_floats(first[column]);
        floats q = all_floats(second[column]);
        floats r0 = rows[0], r1 = rows[1], r2 = rows[2], r3 = rows[3];
        IN_REGISTER(r0);
        IN_REGISTER(r1);
        IN_REGISTER(r2);
        IN_REGISTER(r3);
        a0 += r0 * p;
        a1 += r1 * p;
        a2 += r2 * p;
        a3 += r3 * p;
        b0 += r0 * q;
        b1 += r1 * q;
        b2 += r2 * q;
        b3 += r3 * q;
    }
    scores[0] = a0, scores[1] = a1, scores[2] = a2, scores[3] = a3;
    scores[4] = b0, scores[5] = b1, scores[6] = b2, scores[7] = b3;
}

INLINE void start_scores(
    const centroid_scores *centroids, int64_t pair, floats *restrict scores) {
    for (int vector = 0; vector < VECTORS; vector++) {
        scores[vector] = all_floats(centroids->offsets[pair]);
        scores[VECTORS + vector] = all_floats(centroids->offsets[pair + 1]);
    }
}

INLINE void rank_pair(ranking *ranks, const floats *scores, int64_t pair) {
    for (int vector = 0; vector < 2 * VECTORS; vector++) {
        int32_t centroid = (int32_t)(pair + vector / VECTORS);
        rank(ranks, vector % VECTORS, scores[vector], centroid);
    }
}

/* Ranks all centroids for a tile, (d, TILE), of few columns. */
INLINE void rank_narrow_tile(
    const floats *restrict tile, int64_t d, const centroid_scores *centroids,
    ranking *ranks) {
    for (int64_t pair = 0; pair < centroids->k_even; pair += 2) {
        const float *first = centroids->floats + pair * d;
        floats scores[2 * VECTORS];
        start_scores(centroids, pair, scores);
        add_products(tile, d, first, first + d, scores);
        rank_pair(ranks, scores, pair);
    }
}

/* The same of many columns, which come in parts; `scores`, (k_even, TILE), is scratch. */
static void rank_wide_tile(
    const floats *restrict tile, int64_t d, const centroid_scores *centroids,
    floats *restrict scores, ranking *ranks) {
    for (int64_t start = 0; start < d; start += COLUMNS_AT_ONCE) {
        int64_t left = d - start;
        int is_last = left <= COLUMNS_AT_ONCE;
        int64_t n_columns = is_last ? left : COLUMNS_AT_ONCE;
        for (int64_t pair = 0; pair < centroids->k_even; pair += 2) {
            const float *first = centroids->floats + pair * d + start;
            floats *of_pair = scores + pair * VECTORS;
            if (start == 0) start_scores(centroids, pair, of_pair);
            add_products(tile + start * VECTORS, n_columns, first, first + d, of_pair);
            if (is_last) rank_pair(ranks, of_pair, pair);
        }
    }
}

INLINE void rank_tile(
    const floats *restrict tile, int64_t d, const centroid_scores *centroids,
    floats *restrict scores, ranking *ranks) {
    for (int vector = 0; vector < VECTORS; vector++) {
        ranks->best[vector] = all_floats(-INFINITY);
        ranks->second[vector] = all_floats(-INFINITY);
        ranks->nearest[vector] = (masks){0};
    }
    if (d <= COLUMNS_AT_ONCE)
        rank_narrow_tile(tile, d, centroids, ranks);
    else
        rank_wide_tile(tile, d, centroids, scores, ranks);
}

/* Rows from `first` on as floats in whole steps, column by column, (d, TILE); rows
   beyond the table are zero. `by_row`, (TILE, vectors * PAIRS), is scratch. Returns the
   largest squared norm, infinite if a value is off the grid. */
INLINE double read_tile(
    const table *rows, int64_t first, float *restrict by_row, float *restrict tile,
    int64_t vectors) {
    int64_t width = vectors * PAIRS;
    double largest = 0.0;
    double_masks off_grid = {0};
    for (int64_t row = 0; row < TILE; row++) {
        float *to = by_row + row * width;
        doubles squares = {0};
        if (first + row >= rows->n) {
            memset(to, 0, (size_t)width * sizeof(float));
            continue;
        }
        for (int64_t vector = 0; vector < vectors; vector++) {
            doubles steps = read_steps(rows, first + row, vector, vectors, &off_grid);
            squares += steps * steps;
            narrow_floats narrow = __builtin_convertvector(steps, narrow_floats);
            *(floats_in_row *)(to + vector * PAIRS) = narrow;
        }
        double square = sum_of(squares);
        largest = square > largest ? square : largest;
    }
    for (int64_t column = 0; column < rows->d; column++)
        for (int64_t row = 0; row < TILE; row++)
            tile[column * TILE + row] = by_row[row * width + column];
    return any_of(off_grid) ? INFINITY : largest;
}

/* The nearest centroid, decided where all is exact; the lowest index at ties. */
static int32_t exactly_nearest(
    const table *rows, int64_t row, const centroid_scores *centroids, int64_t vectors) {
    double smallest = INFINITY;
    int32_t nearest = 0;
    for (int64_t centroid = 0; centroid < centroids->k; centroid++) {
        const doubles *at = centroids->steps + centroid * vectors;
        double square = read_residual(rows, row, at, NULL, vectors);
        if (square < smallest) {
            smallest = square;
            nearest = (int32_t)centroid;
        }
    }
    return nearest;
}

INLINE int assign_tiles(
    const table *rows, const centroid_scores *centroids, float *by_row, float *tile,
    floats *scores, int32_t *restrict labels, double *restrict squares, int64_t vectors) {
    for (int64_t first = 0; first < rows->n; first += TILE) {
        double largest_square = read_tile(rows, first, by_row, tile, vectors);
        if (!(largest_square <= LARGEST_SQUARE)) return OUTSIDE;
        ranking ranks;
        rank_tile((const floats *)tile, rows->d, centroids, scores, &ranks);
        double row_norm = sqrt(largest_square);
        double undecided = undecided_below(row_norm, centroids->largest, rows->d);
        int64_t end = first + TILE < rows->n ? first + TILE : rows->n;
        for (int64_t row = first; row < end; row++) {
            float best = ((const float *)ranks.best)[row - first];
            float second = ((const float *)ranks.second)[row - first];
            int32_t label = ((const int32_t *)ranks.nearest)[row - first];
            if ((double)best - (double)second <= undecided)
                label = exactly_nearest(rows, row, centroids, vectors);
            labels[row] = label;
            if (!squares) continue;
            const doubles *centroid = centroids->steps + label * vectors;
            double square = read_residual(rows, row, centroid, NULL, vectors);
            squares[row] = square * (STEP * STEP);
        }
    }
    return DONE;
}

static int assign_of_width(
    const table *rows, const centroid_scores *centroids, float *by_row, float *tile,
    floats *scores, int32_t *labels, double *squares, int64_t vectors) {
    WITH_CONSTANT_WIDTH(
        assign_tiles, vectors, rows, centroids, by_row, tile, scores, labels, squares)
}

/* Labels (n,) of the nearest centroids (k, d), k >= 1, and, unless `squares` is null,
   squared distances to them. */
int EXPORTED(assign_rows)(
    const double *values, int64_t n, int64_t d, const double *centroid_values, int64_t k,
    int32_t *labels, double *squares) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    centroid_scores centroids = {0};
    int status = read_centroids(centroid_values, k, d, &centroids);
    int64_t by_parts = d > COLUMNS_AT_ONCE ? centroids.k_even : 0;
    float *tile = (float *)new_vectors(2 * VECTORS * d);
    float *by_row = (float *)new_vectors(TILE * vectors);
    floats *scores = (floats *)new_vectors(2 * VECTORS * by_parts);
    if (status == DONE && (!tile || !by_row || !scores)) status = NO_MEMORY;
    if (status == DONE)
        status = assign_of_width(
            &rows, &centroids, by_row, tile, scores, labels, squares, vectors);
    free(tile);
    free(by_row);
    free(scores);
    free_centroids(&centroids);
    return status;
}


/* ---- sums of residuals ---- */

typedef struct {
    const int32_t *labels;        /* (n,), or null where all are 0 */
    const double *weights;        /* (n,), or null where all are 1 */
    const double *radii;          /* (k,), at least 2^-16 */
    const double *squared_radii;  /* (k,), beyond which rows are left out, or null */
    const doubles *centroids;     /* (k, vectors) */
    int64_t k;
    doubles *sums;                /* (k, vectors) */
    double *counts;               /* (k,) */
    double *squares;              /* (k,) */
} refinement;

/* Adds one row's residual, divided by the radius and shortened to at most 1, toward
   zero; what a weighted row adds is multiplied by its weight, toward zero again. */
INLINE int add_residual(
    const table *rows, int64_t row, const refinement *round, doubles *residual,
    int64_t vectors) {
    int64_t label = round->labels ? round->labels[row] : 0;
    if (label < 0) return OUTSIDE;
    label = label < round->k ? label : round->k - 1;
    const doubles *centroid = round->centroids + label * vectors;
    double square = read_residual(rows, row, centroid, residual, vectors);
    if (!(square <= LARGEST_SQUARE)) return OUTSIDE;
    if (round->squared_radii && square * (STEP * STEP) > round->squared_radii[label])
        return DONE;
    double length = sqrt(square) * STEP;
    double radius = round->radii[label];
    double factor = SHADE / (length > radius ? length : radius);
    double weight = round->weights ? round->weights[row] : 1.0;
    doubles *sums = round->sums + label * vectors;
    doubles of_units = {0};
    for (int64_t vector = 0; vector < vectors; vector++) {
        doubles unit = toward_zero(residual[vector] * factor);
        of_units += unit * unit;
        if (round->weights) unit = toward_zero(unit * weight);
        sums[vector] += unit;
    }
    double unit_square = __builtin_trunc(sum_of(of_units) * STEP);
    round->counts[label] += weight;
    if (round->weights) unit_square = __builtin_trunc(unit_square * weight);
    round->squares[label] += unit_square;
    return DONE;
}

INLINE int add_residuals(
    const table *rows, const refinement *round, doubles *scratch, int64_t vectors) {
    doubles in_registers[MOST_IN_REGISTERS];
    doubles *residual = vectors <= MOST_IN_REGISTERS ? in_registers : scratch;
    for (int64_t row = 0; row < rows->n; row++) {
        int status = add_residual(rows, row, round, residual, vectors);
        if (status != DONE) return status;
    }
    return DONE;
}

static int add_residuals_of_width(
    const table *rows, const refinement *round, doubles *scratch, int64_t vectors) {
    WITH_CONSTANT_WIDTH(add_residuals, vectors, rows, round, scratch)
}

/* Adds what padded sums (k, vectors) hold to sums (k, d). */
static void add_padded(const doubles *padded, int64_t k, int64_t d, double *sums) {
    int64_t vectors = vectors_of(d);
    for (int64_t row = 0; row < k; row++) {
        const double *from = (const double *)(padded + row * vectors);
        for (int64_t column = 0; column < d; column++) sums[row * d + column] += from[column];
    }
}

/* What a round of refinement sums, in steps, added to sums (k, d), counts (k,) and
   squares (k,): flwr_dpkmeans.kernels.residual_sums. */
int EXPORTED(residual_sums)(
    const double *values, int64_t n, int64_t d, const int32_t *labels,
    const double *weights, const double *centroid_values, int64_t k, const double *radii,
    const double *squared_radii, double *sums, double *counts, double *squares) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    double largest_square = 0.0;
    doubles *centroids = read_points(centroid_values, k, d, &largest_square);
    doubles *padded = new_vectors(k * vectors);
    doubles *scratch = new_vectors(vectors);
    int status = centroids && padded && scratch ? DONE : NO_MEMORY;
    if (status == DONE && !(largest_square <= LARGEST_SQUARE)) status = OUTSIDE;
    if (status == DONE) {
        refinement round = {
            labels, weights, radii, squared_radii, centroids, k, padded, counts, squares};
        status = add_residuals_of_width(&rows, &round, scratch, vectors);
    }
    if (status == DONE) add_padded(padded, k, d, sums);
    free(centroids);
    free(padded);
    free(scratch);
    return status;
}

/* Residuals over the radius, shortened to at most 1, toward zero; zeros have no sign. */
int EXPORTED(unit_residuals)(
    const double *values, int64_t n, int64_t d, double radius, double *units) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    doubles *residual = new_vectors(vectors);
    int status = residual ? DONE : NO_MEMORY;
    for (int64_t row = 0; status == DONE && row < n; row++) {
        double square = read_residual(&rows, row, NULL, residual, vectors);
        if (!(square <= LARGEST_SQUARE)) status = OUTSIDE;
        double length = sqrt(square) * STEP;
        double factor = SHADE / (length > radius ? length : radius);
        for (int64_t vector = 0; vector < vectors; vector++)
            residual[vector] = toward_zero(residual[vector] * factor) * STEP + 0.0;
        memcpy(units + row * d, residual, (size_t)d * sizeof(double));
    }
    free(residual);
    return status;
}


/* What residuals have beyond their radius, in steps and over the length of the first
   shell that is as long, added to sums (k * n_shells, d):
   flwr_dpkmeans.kmeans.residuals.excess_sums. `radii`, (k,), are at least 2^-16; `lengths`,
   (k, n_shells), are above 0, and all are finite. */
int EXPORTED(excess_sums)(
    const double *values, int64_t n, int64_t d, const int32_t *labels,
    const double *centroid_values, int64_t k, const double *radii, const double *lengths,
    int64_t n_shells, double *sums) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    double largest_square = 0.0;
    doubles *centroids = read_points(centroid_values, k, d, &largest_square);
    doubles *residual = new_vectors(vectors);
    int status = centroids && residual ? DONE : NO_MEMORY;
    if (status == DONE && !(largest_square <= LARGEST_SQUARE)) status = OUTSIDE;
    for (int64_t row = 0; status == DONE && row < n; row++) {
        int64_t label = labels[row];
        if (label < 0) status = OUTSIDE;
        label = label < 0 ? 0 : label < k ? label : k - 1;
        const doubles *centroid = centroids + label * vectors;
        double square = read_residual(&rows, row, centroid, residual, vectors);
        if (!(square <= LARGEST_SQUARE)) status = OUTSIDE;
        double length = sqrt(square) * STEP;
        if (status != DONE || !(length > radii[label])) continue;
        /* Few rows are. */
        double excess = length - radii[label];
        const double *ends = lengths + label * n_shells;
        int64_t shell = 0;
        for (int64_t before = 0; before < n_shells; before++)
            shell += excess > ends[before];
        shell = shell < n_shells ? shell : n_shells - 1;
        double longest = ends[shell] > excess ? ends[shell] : excess;
        double factor = SHADE * excess / (length * longest);
        double *sum = sums + (label * n_shells + shell) * d;
        const double *differences = (const double *)residual;
        for (int64_t column = 0; column < d; column++)
            sum[column] += __builtin_trunc(differences[column] * factor);
    }
    free(centroids);
    free(residual);
    return status;
}


/* ---- outer products ---- */

/* Rows whose products are added while they are in the first-level cache, and the part
   of the matrix, columns times vectors, that stays in registers meanwhile. */
enum { ROWS_AT_ONCE = 64, COLUMNS_IN_PART = 4, VECTORS_IN_PART = 3 };

/* Adds the products of some columns with some vectors of rows, (n_rows, vectors). */
INLINE void add_part(
    const doubles *rows, int64_t n_rows, int64_t vectors, int64_t column,
    int64_t first_vector, doubles *sums, int n_vectors) {
    doubles part[COLUMNS_IN_PART * VECTORS_IN_PART];
    for (int each = 0; each < COLUMNS_IN_PART; each++)
        for (int vector = 0; vector < n_vectors; vector++)
            part[each * VECTORS_IN_PART + vector] =
                sums[(column + each) * vectors + first_vector + vector];
    for (int64_t row = 0; row < n_rows; row++) {
        const doubles *of_row = rows + row * vectors;
        const double *numbers = (const double *)of_row + column;
        for (int each = 0; each < COLUMNS_IN_PART; each++) {
            doubles number = all_doubles(numbers[each]);
            for (int vector = 0; vector < n_vectors; vector++)
                part[each * VECTORS_IN_PART + vector] +=
                    number * of_row[first_vector + vector];
        }
    }
    for (int each = 0; each < COLUMNS_IN_PART; each++)
        for (int vector = 0; vector < n_vectors; vector++)
            sums[(column + each) * vectors + first_vector + vector] =
                part[each * VECTORS_IN_PART + vector];
}

/* Adds the outer products of rows to sums (d, vectors), from the diagonal on. Columns
   beyond the rows', up to a multiple of COLUMNS_IN_PART, are zero. */
static void add_outer_products(
    const doubles *rows, int64_t n_rows, int64_t d, int64_t vectors, doubles *sums) {
    for (int64_t column = 0; column < d; column += COLUMNS_IN_PART) {
        int64_t first = column / PAIRS;
        for (; first < vectors; first += VECTORS_IN_PART) {
            int64_t left = vectors - first;
            if (left >= 3) add_part(rows, n_rows, vectors, column, first, sums, 3);
            if (left == 2) add_part(rows, n_rows, vectors, column, first, sums, 2);
            if (left == 1) add_part(rows, n_rows, vectors, column, first, sums, 1);
        }
    }
}

/* Reads one row for its outer product: as it is, or its residual from a centre over the
   radius, shortened to at most 1, toward zero. Returns its squared length, in steps. */
INLINE double read_factor(
    const table *rows, int64_t row, const doubles *centre, double radius, doubles *factor,
    int64_t vectors) {
    double square = read_residual(rows, row, centre, factor, vectors);
    if (!centre || !(square <= LARGEST_SQUARE)) return square;
    double length = sqrt(square) * STEP;
    double shortening = SHADE / (length > radius ? length : radius);
    for (int64_t vector = 0; vector < vectors; vector++)
        factor[vector] = toward_zero(factor[vector] * shortening);
    return GRID * GRID;
}

INLINE int sum_outer_products(
    const table *rows, const doubles *centre, double radius, doubles *factors,
    doubles *sums, int64_t vectors) {
    double largest = GRID * GRID;
    for (int64_t first = 0; first < rows->n; first += ROWS_AT_ONCE) {
        int64_t left = rows->n - first;
        int64_t n_rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (int64_t row = 0; row < n_rows; row++) {
            doubles *factor = factors + row * vectors;
            double square = read_factor(rows, first + row, centre, radius, factor, vectors);
            if (!(square <= LARGEST_SQUARE)) return OUTSIDE;
            largest = square > largest ? square : largest;
        }
        add_outer_products(factors, n_rows, rows->d, vectors, sums);
    }
    /* No sum of products reaches 2^53. */
    return largest * (double)rows->n <= 0x1p52 ? DONE : OUTSIDE;
}

static int sum_outer_products_of_width(
    const table *rows, const doubles *centre, double radius, doubles *factors,
    doubles *sums, int64_t vectors) {
    WITH_CONSTANT_WIDTH(
        sum_outer_products, vectors, rows, centre, radius, factors, sums)
}

/* Sums of outer products, in squared steps, as the upper triangle, row by row, of rows
   or, unless `centre` is null, of unit residuals from it. */
int EXPORTED(outer_products)(
    const double *values, int64_t n, int64_t d, const double *centre_values,
    double radius, double *triangle) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    int64_t n_columns = (d + COLUMNS_IN_PART - 1) / COLUMNS_IN_PART * COLUMNS_IN_PART;
    /* A part of columns may reach beyond a row of two numbers. */
    int64_t n_factors = ROWS_AT_ONCE * vectors + COLUMNS_IN_PART;
    double largest_square = 0.0;
    doubles *centre = NULL;
    if (centre_values) centre = read_points(centre_values, 1, d, &largest_square);
    doubles *factors = new_vectors(n_factors);
    doubles *sums = new_vectors(n_columns * vectors);
    int status = factors && sums && (centre || !centre_values) ? DONE : NO_MEMORY;
    if (status == DONE && !(largest_square <= LARGEST_SQUARE)) status = OUTSIDE;
    if (status == DONE)
        status = sum_outer_products_of_width(&rows, centre, radius, factors, sums, vectors);
    for (int64_t row = 0; status == DONE && row < d; row++) {
        const double *of_row = (const double *)(sums + row * vectors);
        size_t n_entries = (size_t)(d - row);
        memcpy(triangle, of_row + row, n_entries * sizeof(double));
        triangle += n_entries;
    }
    free(centre);
    free(factors);
    free(sums);
    return status;
}


/* ---- projections ---- */

/* Rows that are projected together, so that a vector of the axes is read once. */
enum { PROJECTED_AT_ONCE = 4 };

/* Adds the products of neighbouring rows, (n_rows, d), with axes, (d, vectors), to the
   start, (vectors,). */
INLINE void project_neighbours(
    const double *rows, int n_rows, int64_t d, const doubles *axes, const doubles *start,
    doubles *projected, int64_t vectors) {
    for (int row = 0; row < n_rows; row++)
        for (int64_t vector = 0; vector < vectors; vector++)
            projected[row * vectors + vector] = start[vector];
    for (int64_t column = 0; column < d; column++)
        for (int row = 0; row < n_rows; row++) {
            doubles value = all_doubles(rows[row * d + column]);
            for (int64_t vector = 0; vector < vectors; vector++)
                projected[row * vectors + vector] += value * axes[column * vectors + vector];
        }
}

/* Writes a projected row on the grid. Lanes beyond its width are written too, where the
   next row, whose turn comes later, begins; not in the last row. */
INLINE void write_projected(
    const doubles *of_row, int64_t width, int is_last, double *projected, int64_t vectors) {
    for (int64_t vector = 0; vector < vectors; vector++) {
        doubles on_grid = nearest_whole(of_row[vector] * STEP) * STEP;
        double *to = projected + vector * PAIRS;
        int64_t left = width - vector * PAIRS;
        if (left >= PAIRS || !is_last) {
            *(doubles_in_row *)to = on_grid;
            continue;
        }
        for (int64_t lane = 0; lane < left; lane++) to[lane] = on_grid[lane];
    }
}

INLINE int project_all(
    const table *rows, const doubles *axes, const doubles *start, double farthest,
    doubles *scratch, int64_t width, double *projected, int64_t vectors) {
    doubles in_registers[PROJECTED_AT_ONCE * MOST_IN_REGISTERS];
    doubles *of_rows = vectors <= MOST_IN_REGISTERS ? in_registers : scratch;
    int64_t n = rows->n;
    int64_t d = rows->d;
    for (int64_t first = 0; first < n; first += PROJECTED_AT_ONCE) {
        int64_t n_left = n - first;
        int n_rows = n_left < PROJECTED_AT_ONCE ? (int)n_left : PROJECTED_AT_ONCE;
        for (int row = 0; row < n_rows; row++) {
            double square = read_residual(rows, first + row, NULL, NULL, vectors_of(d));
            if (!(square <= farthest)) return OUTSIDE;
        }
        const double *values = rows->values + first * d;
        if (n_rows == PROJECTED_AT_ONCE)
            project_neighbours(values, PROJECTED_AT_ONCE, d, axes, start, of_rows, vectors);
        else
            project_neighbours(values, n_rows, d, axes, start, of_rows, vectors);
        for (int row = 0; row < n_rows; row++) {
            int is_last = first + row == n - 1;
            double *to = projected + (first + row) * width;
            /* Lanes beyond a last vector may reach over more than the next row. */
            int is_narrow = width < PAIRS;
            write_projected(
                of_rows + row * vectors, width, is_last || is_narrow, to, vectors);
        }
    }
    return DONE;
}

static int project_of_width(
    const table *rows, const doubles *axes, const doubles *start, double farthest,
    doubles *scratch, int64_t width, double *projected, int64_t vectors) {
    WITH_CONSTANT_WIDTH(
        project_all, vectors, rows, axes, start, farthest, scratch, width, projected)
}

/* Rows (n, d) times axes (d, width) less a shift (width,), rounded to the grid, halves
   to the even step. The shift, a product of two values on the grid, is in squared
   steps. So are the sums: the axes have the rows' factor, too. */
int EXPORTED(project_rows)(
    const double *values, int64_t n, int64_t d, const double *axis_values, int64_t width,
    const double *shift, double *projected) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(width);
    double largest_square = 0.0;
    doubles *axes = read_points(axis_values, d, width, &largest_square);
    doubles *start = new_vectors(vectors);
    doubles *scratch = new_vectors(PROJECTED_AT_ONCE * vectors);
    int status = axes && start && scratch ? DONE : NO_MEMORY;
    for (int64_t vector = 0; axes && vector < d * vectors; vector++) axes[vector] *= GRID;
    /* A column of the axes is at most sqrt(d) times the longest of their rows. With
       Cauchy and Schwarz no sum of products, nor the shift, reaches 2^52. */
    double farthest = 0x1p100 / ((double)(d > 0 ? d : 1) * (largest_square + 1.0));
    if (farthest > LARGEST_SQUARE) farthest = LARGEST_SQUARE;
    if (status == DONE && !(largest_square <= LARGEST_SQUARE)) status = OUTSIDE;
    for (int64_t column = 0; status == DONE && column < width; column++) {
        if (!(fabs(shift[column]) <= 0x1p50)) status = OUTSIDE;
        ((double *)start)[column] = -shift[column];
    }
    if (status == DONE)
        status = project_of_width(
            &rows, axes, start, farthest, scratch, width, projected, vectors);
    free(axes);
    free(start);
    free(scratch);
    return status;
}


/* ---- sums, counts and clipped rows ---- */

INLINE int add_labelled(
    const table *rows, const int32_t *labels, int64_t n_labels, doubles *sums,
    double *counts, int64_t vectors) {
    double_masks off_grid = {0};
    for (int64_t row = 0; row < rows->n; row++) {
        int64_t label = labels[row];
        if (label < 0 || label >= n_labels) return OUTSIDE;
        doubles *sum = sums + label * vectors;
        doubles magnitude = {0};
        for (int64_t vector = 0; vector < vectors; vector++) {
            doubles steps = read_steps(rows, row, vector, vectors, &off_grid);
            sum[vector] += steps;
            magnitude += steps * steps;
        }
        if (!(sum_of(magnitude) <= LARGEST_SQUARE)) return OUTSIDE;
        counts[label] += 1.0;
    }
    return any_of(off_grid) ? OUTSIDE : DONE;
}

static int add_labelled_of_width(
    const table *rows, const int32_t *labels, int64_t n_labels, doubles *sums,
    double *counts, int64_t vectors) {
    WITH_CONSTANT_WIDTH(add_labelled, vectors, rows, labels, n_labels, sums, counts)
}

/* Adds rows, in steps, to sums (n_labels, d) by their label, and counts them. */
int EXPORTED(label_sums)(
    const double *values, int64_t n, int64_t d, const int32_t *labels, int64_t n_labels,
    double *sums, double *counts) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    doubles *padded = new_vectors(n_labels * vectors);
    if (!padded) return NO_MEMORY;
    int status = add_labelled_of_width(&rows, labels, n_labels, padded, counts, vectors);
    if (status == DONE) add_padded(padded, n_labels, d, sums);
    free(padded);
    return status;
}

/* Counts rows by their squared distance from a centre. `edges`, (n_bins,), rise; a row
   is in bin n_bins - 1 - (number of edges below its square), at least 0. */
int EXPORTED(distance_counts)(
    const double *values, int64_t n, int64_t d, const double *centre,
    const double *edges, int64_t n_bins, double *counts) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    double largest_square = 0.0;
    doubles *middle = read_points(centre, 1, d, &largest_square);
    if (!middle) return NO_MEMORY;
    int status = largest_square <= LARGEST_SQUARE ? DONE : OUTSIDE;
    for (int64_t row = 0; status == DONE && row < n; row++) {
        double square = read_residual(&rows, row, middle, NULL, vectors);
        if (!(square <= LARGEST_SQUARE)) status = OUTSIDE;
        double distance = square * (STEP * STEP);
        /* Most rows are far, where the high edges are. */
        int64_t n_below = n_bins;
        while (n_below > 0 && !(edges[n_below - 1] < distance)) n_below--;
        int64_t bin = n_bins - 1 - n_below;
        counts[bin > 0 ? bin : 0] += 1.0;
    }
    free(middle);
    return status;
}

/* Pulls rows beyond a radius back to it, toward zero. `shaded` is the radius times
   SHADE; `n_clipped` says how many rows there were. */
int EXPORTED(clip_rows)(
    const double *values, int64_t n, int64_t d, double largest_square, double shaded,
    double *clipped, int64_t *n_clipped) {
    table rows = table_of(values, n, d);
    int64_t vectors = vectors_of(d);
    int64_t n_far = 0;
    memcpy(clipped, values, (size_t)(n * d) * sizeof(double));
    for (int64_t row = 0; row < n; row++) {
        double square = read_residual(&rows, row, NULL, NULL, vectors);
        if (!(square <= LARGEST_SQUARE)) return OUTSIDE;
        double distance = square * (STEP * STEP);
        if (distance <= largest_square) continue;
        double factor = shaded / sqrt(distance);
        n_far++;
        for (int64_t column = 0; column < d; column++) {
            double steps = __builtin_trunc(values[row * d + column] * factor * GRID);
            clipped[row * d + column] = steps * STEP + 0.0;
        }
    }
    *n_clipped = n_far;
    return DONE;
}
