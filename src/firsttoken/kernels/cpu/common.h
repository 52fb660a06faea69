/* Shared by every file of the CPU kernels: small vectors, float16, exp, and the thread pool.
 *
 * Plain C11 with GCC/Clang vector extensions; x86 intrinsics only where they are worth it, under #ifdef.
 * Every result depends on its own row alone: no float sum is ever split by thread, by batch or by tile.
 */
#ifndef FT_COMMON_H
#define FT_COMMON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define FT_AVX2 1
#endif

#define FT_API __attribute__((visibility("default")))
#define FT_INLINE static inline __attribute__((always_inline))

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));

FT_INLINE f8 f8_load(const float *p) {
    f8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

FT_INLINE void f8_store(float *p, f8 v) { memcpy(p, &v, sizeof v); }

FT_INLINE f8 f8_all(float x) { return (f8){x, x, x, x, x, x, x, x}; }

/* a * b + c, fused where the machine has it, so that every use rounds alike. */
FT_INLINE f8 f8_fma(f8 a, f8 b, f8 c) {
#ifdef FT_AVX2
    return (f8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

FT_INLINE f8 f8_max(f8 a, f8 b) {
#ifdef FT_AVX2
    return (f8)_mm256_max_ps((__m256)a, (__m256)b);
#else
    i8 more = a > b;
    return (f8)((more & (i8)a) | (~more & (i8)b));
#endif
}

/* Sums in one fixed order: ((0+1)+(2+3)) + ((4+5)+(6+7)). */
FT_INLINE float f8_sum(f8 v) { return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])); }

FT_INLINE float f8_max_lane(f8 v) {
    float m = v[0];
    for (int i = 1; i < 8; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* e^x to about 1e-7 relative; 0 below -87 (so e^-inf is 0), and at most e^88. Cody-Waite reduction, then a polynomial. */
FT_INLINE f8 f8_exp(f8 x) {
    const f8 shift = f8_all(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    i8 alive = x > f8_all(-87.0f);
    x = (f8)((i8)x & alive);
    i8 big = x > f8_all(88.0f);
    x = (f8)((big & (i8)f8_all(88.0f)) | (~big & (i8)x));
    f8 t = f8_fma(x, f8_all(1.44269504f), shift);
    f8 n = t - shift;
    f8 r = f8_fma(n, f8_all(-0.693145752f), x);
    r = f8_fma(n, f8_all(-1.42860677e-6f), r);
    f8 p = f8_all(1.38888889e-3f);
    p = f8_fma(p, r, f8_all(8.33333333e-3f));
    p = f8_fma(p, r, f8_all(4.16666667e-2f));
    p = f8_fma(p, r, f8_all(1.66666667e-1f));
    p = f8_fma(p, r, f8_all(0.5f));
    p = f8_fma(p, r, f8_all(1.0f));
    p = f8_fma(p, r, f8_all(1.0f));
    i8 bits = (i8)p + ((i8)t << 23); /* t's low mantissa bits hold n, two's complement */
    return (f8)(bits & alive);
}

/* IEEE half to float, subnormals and infinities included. */
FT_INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, body = (uint32_t)(h & 0x7fffu) << 13;
    float f;
    if (body >= 0x0f800000u) { /* infinity or NaN */
        body |= 0x7f800000u;
        body |= sign;
        memcpy(&f, &body, 4);
        return f;
    }
    memcpy(&f, &body, 4);
    f *= 5.192296858534828e33f; /* 2^112 moves the exponent's bias, exact for subnormals too */
    memcpy(&body, &f, 4);
    body |= sign;
    memcpy(&f, &body, 4);
    return f;
}

/* Rounds to nearest even; too large becomes infinity. */
FT_INLINE uint16_t float_to_half(float f) {
    uint32_t x;
    memcpy(&x, &f, 4);
    uint32_t sign = (x >> 16) & 0x8000u;
    x &= 0x7fffffffu;
    if (x >= 0x7f800000u) return (uint16_t)(sign | 0x7c00u | (x > 0x7f800000u ? 0x200u : 0u));
    if (x >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (x < 0x38800000u) { /* subnormal half: let float addition do the rounding */
        float tiny;
        memcpy(&tiny, &x, 4);
        tiny += 0.5f;
        memcpy(&x, &tiny, 4);
        return (uint16_t)(sign | (x - 0x3f000000u));
    }
    x += 0xfffu + ((x >> 13) & 1u);
    return (uint16_t)(sign | ((x - 0x38000000u) >> 13));
}

/* Runs task over [0, count) in pieces of `chunk`, on the pool and on the calling thread; returns when all is done.
 * Pieces are taken dynamically, so a worker that the system does not schedule costs nothing but its help. */
typedef void (*ft_task)(void *context, int64_t begin, int64_t end);
void ft_parallel(ft_task task, void *context, int64_t count, int64_t chunk);
int ft_thread_count(void);

/* One op at a time owns the pool and the scratch memory below. */
void ft_enter(void);
void ft_leave(void);

/* Grow-only scratch, 64-byte aligned, valid until ft_leave; NULL when memory is out. `slot` is 0..FT_SCRATCH-1. */
#define FT_SCRATCH 4
void *ft_scratch(int slot, size_t bytes);

#endif
