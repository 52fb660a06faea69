/* The arithmetic of attention on float rows. Each result is summed in an order that no neighbour can change. */
#include "attention.h"

void ft_norm_rotate(const float *x, const float *norm, float eps, const float *cos, const float *sin, int64_t dim,
                    float scale, float *out) {
    float buffer[MAX_DIM];
    const int64_t half = dim / 2;
    if (norm) {
        f8 squares = f8_all(0.0f);
        for (int64_t d = 0; d < dim; d += 8) squares = f8_fma(f8_load(x + d), f8_load(x + d), squares);
        const f8 rms = f8_all(1.0f / sqrtf(f8_sum(squares) / (float)dim + eps));
        for (int64_t d = 0; d < dim; d += 8) f8_store(buffer + d, f8_load(x + d) * rms * f8_load(norm + d));
        x = buffer;
    }
    for (int64_t d = 0; d < half; d += 8) {
        const f8 a = f8_load(x + d), b = f8_load(x + half + d), c = f8_load(cos + d), s = f8_load(sin + d);
        f8_store(out + d, f8_fma(a, c, -(b * s)) * f8_all(scale));
        f8_store(out + half + d, f8_fma(b, c, a * s) * f8_all(scale));
    }
}

/* Sums of 8 vectors, each in the order of f8_sum. */
FT_INLINE f8 eight_sums(const f8 *v) {
#ifdef FT_AVX2
    __m256 ab = _mm256_hadd_ps((__m256)v[0], (__m256)v[1]), cd = _mm256_hadd_ps((__m256)v[2], (__m256)v[3]);
    __m256 ef = _mm256_hadd_ps((__m256)v[4], (__m256)v[5]), gh = _mm256_hadd_ps((__m256)v[6], (__m256)v[7]);
    __m256 abcd = _mm256_hadd_ps(ab, cd), efgh = _mm256_hadd_ps(ef, gh);
    return (f8)_mm256_add_ps(_mm256_permute2f128_ps(abcd, efgh, 0x20), _mm256_permute2f128_ps(abcd, efgh, 0x31));
#else
    return (f8){f8_sum(v[0]), f8_sum(v[1]), f8_sum(v[2]), f8_sum(v[3]),
                f8_sum(v[4]), f8_sum(v[5]), f8_sum(v[6]), f8_sum(v[7])};
#endif
}

/* Four queries by two keys: eight sums in registers. */
FT_INLINE f8 four_by_two(const float *const *q, const float *k0, const float *k1, int64_t dim) {
    f8 acc[8];
    for (int i = 0; i < 8; i++) acc[i] = f8_all(0.0f);
    for (int64_t d = 0; d < dim; d += 8) {
        const f8 a = f8_load(k0 + d), b = f8_load(k1 + d);
        for (int i = 0; i < 4; i++) {
            const f8 x = f8_load(q[i] + d);
            acc[i] = f8_fma(x, a, acc[i]);
            acc[4 + i] = f8_fma(x, b, acc[4 + i]);
        }
    }
    return eight_sums(acc);
}

void ft_scores(const float *const *q, int64_t queries, const float *k, const int64_t *at, int64_t keys, int64_t dim,
               float *scores, int64_t stride) {
    for (int64_t c = 0; c < keys; c += 2) {
        const float *k0 = k + at[c], *k1 = k + at[c + 1 < keys ? c + 1 : c];
        for (int64_t i = 0; i < queries; i += 4) {
            const float *four[4];
            for (int64_t j = 0; j < 4; j++) four[j] = q[i + j < queries ? i + j : queries - 1];
            float sums[8];
            f8_store(sums, four_by_two(four, k0, k1, dim));
            for (int64_t j = 0; j < 4 && i + j < queries; j++) {
                scores[(i + j) * stride + c] = sums[j];
                scores[(i + j) * stride + c + 1] = sums[4 + j];
            }
        }
    }
}

void ft_softmax(float *scores, int64_t valid, int64_t padded, float *maximum, float *sum) {
    for (int64_t c = valid; c < padded; c++) scores[c] = -INFINITY;
    f8 most = f8_load(scores), total = f8_all(0.0f);
    for (int64_t c = 8; c < padded; c += 8) most = f8_max(most, f8_load(scores + c));
    *maximum = f8_max_lane(most);
    const f8 shift = f8_all(*maximum);
    for (int64_t c = 0; c < padded; c += 8) {
        const f8 e = f8_exp(f8_load(scores + c) - shift);
        f8_store(scores + c, e);
        total += e;
    }
    *sum = f8_sum(total);
}

/* Two rows of weights by 8 * N value columns. */
FT_INLINE void two_rows(const float *p0, const float *p1, const float *v, const int64_t *at, int64_t keys, float *out0,
                        float *out1, const int N) {
    f8 a[4], b[4];
    for (int n = 0; n < N; n++) a[n] = b[n] = f8_all(0.0f);
    for (int64_t c = 0; c < keys; c++) {
        const f8 x = f8_all(p0[c]), y = f8_all(p1[c]);
        const float *row = v + at[c];
        for (int n = 0; n < N; n++) {
            const f8 z = f8_load(row + 8 * n);
            a[n] = f8_fma(x, z, a[n]);
            b[n] = f8_fma(y, z, b[n]);
        }
    }
    for (int n = 0; n < N; n++) {
        f8_store(out1 + 8 * n, b[n]);
        f8_store(out0 + 8 * n, a[n]); /* last: a single row passes itself twice */
    }
}

void ft_values(const float *p, int64_t stride, int64_t queries, const float *v, const int64_t *at, int64_t keys,
               int64_t dim, float *out, int64_t out_stride) {
    for (int64_t i = 0; i < queries; i += 2) {
        const int64_t j = i + 1 < queries ? i + 1 : i;
        const float *p0 = p + i * stride, *p1 = p + j * stride;
        float *out0 = out + i * out_stride, *out1 = out + j * out_stride;
        int64_t d = 0;
        for (; d + 32 <= dim; d += 32) two_rows(p0, p1, v + d, at, keys, out0 + d, out1 + d, 4);
        for (; d + 8 <= dim; d += 8) two_rows(p0, p1, v + d, at, keys, out0 + d, out1 + d, 1);
    }
}
