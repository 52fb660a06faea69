/* One attention call and the small products under it. */
#ifndef FT_ATTENTION_H
#define FT_ATTENTION_H

#include "common.h"

enum { MAX_DIM = 256 };

typedef struct {
    const float *qkv; /* [tokens, heads + 2 kv_heads, dim] */
    const float *q_norm, *k_norm; /* [dim] or NULL */
    const float *cos, *sin;       /* [rows, dim / 2] */
    const int64_t *rope_rows, *slots; /* [tokens]; a padding token's slot is negative */
    const int32_t *query_start, *context_lens; /* [rows + 1], [rows] */
    const int32_t *block_tables;  /* [rows, table_stride] */
    float *k, *v;                 /* [blocks, kv_heads, block_size, dim] */
    float *out;                   /* [tokens, heads, dim] */
    int64_t tokens, rows, heads, kv_heads, dim, block_size, table_stride;
    float q_eps, k_eps, scale;
} ft_attention;

/* RMSNorm (where `norm` is not NULL), rotation of the paired halves, and a factor. */
void ft_norm_rotate(const float *x, const float *norm, float eps, const float *cos, const float *sin, int64_t dim,
                    float scale, float *out);

/* scores[i * stride + c] = q[i] . k[at[c]]. Writes up to an even number of columns. */
void ft_scores(const float *const *q, int64_t queries, const float *k, const int64_t *at, int64_t keys, int64_t dim,
               float *scores, int64_t stride);

/* scores[0..valid) become e^(score - maximum), the rest up to `padded` (a multiple of 8) becomes 0. */
void ft_softmax(float *scores, int64_t valid, int64_t padded, float *maximum, float *sum);

/* out[i * out_stride + d] = sum over c of p[i * stride + c] * v[at[c] + d], in order of c. */
void ft_values(const float *p, int64_t stride, int64_t queries, const float *v, const int64_t *at, int64_t keys,
               int64_t dim, float *out, int64_t out_stride);

#endif
