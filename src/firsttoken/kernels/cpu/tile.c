/* The inner product of everything: a block of 16 output rows times a few activation rows, in exact integers a group. */
#include "linear.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

/* 16 rows in one register. */
enum { PARTS = 1 };
typedef __m512i vi;
typedef __m512 vf;
#define vi_load(p) _mm512_loadu_si512(p)
#define vi_zero() _mm512_setzero_si512()
#define vi_all8(x) _mm512_set1_epi8(x)
#define vi_all32(x) _mm512_set1_epi32(x)
#define vi_and(a, b) _mm512_and_si512(a, b)
#define vi_xor(a, b) _mm512_xor_si512(a, b)
#define vi_high(a) _mm512_srli_epi16(a, 4)
#define vf_zero() _mm512_setzero_ps()
#define vf_all(x) _mm512_set1_ps(x)
#define vf_halves(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define vf_from(a) _mm512_cvtepi32_ps(a)
#define vf_mul(a, b) _mm512_mul_ps(a, b)
#define vf_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vf_store(p, a) _mm512_storeu_ps(p, a)
#define dot_u8(acc, u, x) _mm512_dpbusd_epi32(acc, u, x)
#define FT_VECTOR 1
#define FT_VNNI 1

#elif defined(FT_AVX2)

/* 8 rows a register, twice. */
enum { PARTS = 2 };
typedef __m256i vi;
typedef __m256 vf;
#define vi_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vi_zero() _mm256_setzero_si256()
#define vi_all8(x) _mm256_set1_epi8(x)
#define vi_all32(x) _mm256_set1_epi32(x)
#define vi_and(a, b) _mm256_and_si256(a, b)
#define vi_xor(a, b) _mm256_xor_si256(a, b)
#define vi_high(a) _mm256_srli_epi16(a, 4)
#define vf_zero() _mm256_setzero_ps()
#define vf_all(x) _mm256_set1_ps(x)
#define vf_halves(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define vf_from(a) _mm256_cvtepi32_ps(a)
#define vf_mul(a, b) _mm256_mul_ps(a, b)
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vf_store(p, a) _mm256_storeu_ps(p, a)
#define FT_VECTOR 1
#if defined(__AVXVNNI__)
#define dot_u8(acc, u, x) _mm256_dpbusd_avx_epi32(acc, u, x)
#define FT_VNNI 1
#endif

#endif

#ifdef FT_VECTOR

FT_INLINE int32_t four_bytes(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, 4);
    return v;
}

enum { LANES = ROWS / PARTS };

/* The hardware's own prefetch stops at the end of a page; asking ahead of it is worth a fifth of a decode step. */
FT_INLINE void fetch_ahead(const uint8_t *w, int lines) {
    for (int i = 0; i < lines; i++) __builtin_prefetch(w + 1280 + 64 * i);
}

FT_INLINE void tile4(const uint8_t *w, int64_t groups, const ft_rows *x, int64_t first, const int T, float (*out)[ROWS]) {
    const int64_t in = groups * GROUP;
    const int8_t *q = x->q + first * in;
    const float *scale = x->scale + first * groups, *low = x->low + first * groups;
    const vi nibble = vi_all8(15);
    vf sum[TILE][PARTS];
    for (int t = 0; t < T; t++)
        for (int h = 0; h < PARTS; h++) sum[t][h] = vf_zero();
    for (int64_t g = 0; g < groups; g++, w += BYTES4, q += GROUP, scale++, low++) {
        fetch_ahead(w, 5);
        vi acc[TILE][PARTS];
        for (int t = 0; t < T; t++)
            for (int h = 0; h < PARTS; h++) acc[t][h] = vi_zero();
        for (int s = 0; s < 4; s++) {
            for (int h = 0; h < PARTS; h++) {
                vi both = vi_load(w + 64 + s * 64 + h * 4 * LANES);
                vi a = vi_and(both, nibble), b = vi_and(vi_high(both), nibble);
                for (int t = 0; t < T; t++) {
                    vi xa = vi_all32(four_bytes(q + t * in + 4 * s)), xb = vi_all32(four_bytes(q + t * in + 16 + 4 * s));
#ifdef FT_VNNI
                    acc[t][h] = dot_u8(dot_u8(acc[t][h], a, xa), b, xb);
#else
                    /* 16-bit sums hold a whole group: 8 * 2 * 15 * 127 = 30480 */
                    acc[t][h] = _mm256_add_epi16(acc[t][h], _mm256_maddubs_epi16(a, xa));
                    acc[t][h] = _mm256_add_epi16(acc[t][h], _mm256_maddubs_epi16(b, xb));
#endif
                }
            }
        }
        for (int h = 0; h < PARTS; h++) {
            vf ws = vf_halves(w + h * 2 * LANES), wl = vf_halves(w + 32 + h * 2 * LANES);
            for (int t = 0; t < T; t++) {
#ifdef FT_VNNI
                vf dot = vf_from(acc[t][h]);
#else
                vf dot = vf_from(_mm256_madd_epi16(acc[t][h], _mm256_set1_epi16(1)));
#endif
                sum[t][h] = vf_fma(dot, vf_mul(ws, vf_all(scale[t * groups])), sum[t][h]);
                sum[t][h] = vf_fma(wl, vf_all(low[t * groups]), sum[t][h]);
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < PARTS; h++) vf_store(out[t] + h * LANES, sum[t][h]);
}

FT_INLINE void tile8(const uint8_t *w, int64_t groups, const ft_rows *x, int64_t first, const int T, float (*out)[ROWS]) {
    const int64_t in = groups * GROUP;
    const int8_t *q = x->q + first * in;
    const float *scale = x->scale + first * groups;
    vf sum[TILE][PARTS];
    for (int t = 0; t < T; t++)
        for (int h = 0; h < PARTS; h++) sum[t][h] = vf_zero();
#ifdef FT_VNNI
    const int32_t *xsum = x->sum + first * groups;
    const vi flip = vi_all8((char)0x80);
#else
    const vi ones = _mm256_set1_epi16(1);
#endif
    for (int64_t g = 0; g < groups; g++, w += BYTES8, q += GROUP, scale++) {
        fetch_ahead(w, 9);
        vi acc[TILE][PARTS];
        for (int t = 0; t < T; t++)
            for (int h = 0; h < PARTS; h++)
#ifdef FT_VNNI
                acc[t][h] = vi_all32(-128 * xsum[t * groups + g]); /* the weights below are 128 too large */
#else
                acc[t][h] = vi_zero();
#endif
        for (int s = 0; s < 8; s++) {
            for (int h = 0; h < PARTS; h++) {
                vi ws = vi_load(w + 32 + s * 64 + h * 4 * LANES);
#ifdef FT_VNNI
                vi wu = vi_xor(ws, flip);
#else
                vi wu = _mm256_abs_epi8(ws);
#endif
                for (int t = 0; t < T; t++) {
                    vi xs = vi_all32(four_bytes(q + t * in + 4 * s));
#ifdef FT_VNNI
                    acc[t][h] = dot_u8(acc[t][h], wu, xs);
#else
                    vi pairs = _mm256_maddubs_epi16(wu, _mm256_sign_epi8(xs, ws));
                    acc[t][h] = _mm256_add_epi32(acc[t][h], _mm256_madd_epi16(pairs, ones));
#endif
                }
            }
        }
        for (int h = 0; h < PARTS; h++) {
            vf ws = vf_halves(w + h * 2 * LANES);
            for (int t = 0; t < T; t++)
                sum[t][h] = vf_fma(vf_from(acc[t][h]), vf_mul(ws, vf_all(scale[t * groups])), sum[t][h]);
        }
    }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < PARTS; h++) vf_store(out[t] + h * LANES, sum[t][h]);
}

#else /* plain C: the compiler's own vectors */

FT_INLINE void add_group(const ft_rows *x, int64_t at, const int32_t *acc, const uint8_t *halves, int lows, float *out) {
    for (int r = 0; r < ROWS; r++) {
        uint16_t scale, low;
        memcpy(&scale, halves + 2 * r, 2);
        float total = out[r] + (float)acc[r] * (half_to_float(scale) * x->scale[at]);
        if (lows) {
            memcpy(&low, halves + 32 + 2 * r, 2);
            total += half_to_float(low) * x->low[at];
        }
        out[r] = total;
    }
}

FT_INLINE void tile4(const uint8_t *w, int64_t groups, const ft_rows *x, int64_t first, const int T, float (*out)[ROWS]) {
    memset(out, 0, sizeof(float) * ROWS * (size_t)T);
    for (int64_t g = 0; g < groups; g++, w += BYTES4) {
        for (int t = 0; t < T; t++) {
            const int8_t *q = x->q + ((first + t) * groups + g) * GROUP;
            int32_t acc[ROWS] = {0};
            for (int s = 0; s < 4; s++)
                for (int r = 0; r < ROWS; r++)
                    for (int i = 0; i < 4; i++) {
                        uint8_t both = w[64 + 64 * s + 4 * r + i];
                        acc[r] += (both & 15) * q[4 * s + i] + (both >> 4) * q[16 + 4 * s + i];
                    }
            add_group(x, (first + t) * groups + g, acc, w, 1, out[t]);
        }
    }
}

FT_INLINE void tile8(const uint8_t *w, int64_t groups, const ft_rows *x, int64_t first, const int T, float (*out)[ROWS]) {
    memset(out, 0, sizeof(float) * ROWS * (size_t)T);
    for (int64_t g = 0; g < groups; g++, w += BYTES8) {
        for (int t = 0; t < T; t++) {
            const int8_t *q = x->q + ((first + t) * groups + g) * GROUP;
            int32_t acc[ROWS] = {0};
            for (int s = 0; s < 8; s++)
                for (int r = 0; r < ROWS; r++)
                    for (int i = 0; i < 4; i++) acc[r] += (int8_t)w[32 + 64 * s + 4 * r + i] * q[4 * s + i];
            add_group(x, (first + t) * groups + g, acc, w, 0, out[t]);
        }
    }
}

#endif

#define EACH(T)                                                  \
    case T:                                                      \
        if (w->bits == 4) tile4(data, groups, x, first, T, out); \
        else tile8(data, groups, x, first, T, out);              \
        break;

void ft_tile(const ft_linear *w, int64_t block, const ft_rows *x, int64_t first, int64_t tokens, float (*out)[ROWS]) {
    const int64_t groups = groups_of(w);
    const uint8_t *data = w->data + block * groups * group_bytes(w);
    switch (tokens) {
        EACH(1)
        EACH(2)
        EACH(3)
        EACH(4)
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
        EACH(5)
        EACH(6)
        EACH(7)
        EACH(8)
#endif
    }
}
