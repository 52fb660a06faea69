/* Activations to int8, one scale a row and group of 32, with RMSNorm on the way. */
#include "linear.h"

typedef struct {
    const float *x, *norm;
    float eps;
    int64_t in;
    int8_t *q;
    float *scale, *low;
    int32_t *sum;
} job;

static float inverse_rms(const float *x, int64_t n, float eps) {
    f8 squares = f8_all(0.0f);
    for (int64_t i = 0; i < n; i += 8) {
        f8 v = f8_load(x + i);
        squares = f8_fma(v, v, squares);
    }
    return 1.0f / sqrtf(f8_sum(squares) / (float)n + eps);
}

static void group(const job *j, int64_t at, const float *x, const float *norm, float rms) {
    f8 v[4], most = f8_all(0.0f);
    for (int i = 0; i < 4; i++) {
        v[i] = f8_load(x + 8 * i);
        if (norm) v[i] = v[i] * f8_all(rms) * f8_load(norm + 8 * i);
        most = f8_max(most, f8_max(v[i], -v[i]));
    }
    const float largest = f8_max_lane(most);
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    int8_t *q = j->q + at * GROUP;
    int32_t sum = 0;
#ifdef FT_AVX2
    __m256i n[4];
    for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32((__m256)(v[i] * f8_all(inverse)));
    __m256i total = _mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    sum = _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* packs works by halves */
    _mm256_storeu_si256((__m256i *)q, bytes);
#else
    for (int i = 0; i < GROUP; i++) {
        float r = rintf(v[i / 8][i % 8] * inverse);
        q[i] = (int8_t)(r > 127.0f ? 127.0f : r > -127.0f ? r : -127.0f);
        sum += q[i];
    }
#endif
    const float scale = largest / 127.0f;
    j->scale[at] = scale;
    j->sum[at] = sum;
    j->low[at] = scale * (float)sum;
}

static void rows(void *context, int64_t begin, int64_t end) {
    const job *j = context;
    const int64_t groups = j->in / GROUP;
    for (int64_t row = begin; row < end; row++) {
        const float *x = j->x + row * j->in;
        const float rms = j->norm ? inverse_rms(x, j->in, j->eps) : 1.0f;
        for (int64_t g = 0; g < groups; g++)
            group(j, row * groups + g, x + g * GROUP, j->norm ? j->norm + g * GROUP : NULL, rms);
    }
}

int ft_quantize(const float *x, int64_t count, int64_t in, const float *norm, float eps, ft_rows *out) {
    const size_t groups = (size_t)(count * (in / GROUP));
    uint8_t *memory = ft_scratch(0, groups * (GROUP + 12));
    if (!memory) return 0;
    job j = {.x = x, .norm = norm, .eps = eps, .in = in, .q = (int8_t *)memory};
    j.scale = (float *)(memory + groups * GROUP);
    j.low = j.scale + groups;
    j.sum = (int32_t *)(j.low + groups);
    *out = (ft_rows){.q = j.q, .scale = j.scale, .low = j.low, .sum = j.sum};
    if (count * in < 16384) rows(&j, 0, count); /* waking others costs more */
    else ft_parallel(rows, &j, count, 1 + 8192 / in);
    return 1;
}
